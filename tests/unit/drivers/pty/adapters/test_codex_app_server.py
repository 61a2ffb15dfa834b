"""Codex gets a server of its own where that means the same to its terminal; otherwise its rollout is followed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from synapse.core.question import Choice
from synapse.drivers.pty.adapters import codex_client
from synapse.drivers.pty.adapters.codex import CodexAppServerSignals, would_ask_for_trust
from synapse.terminal.evidence import Source
from tests.samples.repositories import commit, configure_git, git, new_repository
from tests.unit.drivers.pty.adapters.launches import launch_in
from tests.unit.drivers.pty.adapters.listeners import KeepingListener

# A codex that names what it can in its help, and whose server "listens" by making its socket's name.
KNOWS = "      --no-daemon\n      --remote <ADDR>  `ws://host:port` or `unix://PATH`"
SCRIPT = """#!/bin/sh
case "$1" in
--help) cat <<'END'
{help}
END
;;
app-server) {server} ;;
esac
"""
LISTENS = 'echo "$@" > started; for last; do :; done; : > "${last#unix://}"; exec sleep 600'

ENDS_LATER = 'for last; do :; done; : > "${last#unix://}"; until [ -e enough ]; do sleep 0.05; done'


@pytest.fixture(autouse=True)
def _the_terminal_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codex_client, "_TUI_SECONDS", 0.1)
    monkeypatch.setattr(codex_client, "_BLIND_SECONDS", 0.0)


@pytest.fixture
def made() -> Iterator[list[CodexAppServerSignals]]:
    signals: list[CodexAppServerSignals] = []
    yield signals
    for one in signals:
        one.stop()


def codex(
    folder: Path,
    made: list[CodexAppServerSignals],
    *,
    help_text: str = KNOWS,
    server: str = LISTENS,
    home: Path | None = None,
) -> CodexAppServerSignals:
    folder.mkdir(exist_ok=True)
    path = folder / "codex"
    path.write_text(SCRIPT.format(help=help_text, server=server), encoding="utf-8")
    path.chmod(0o755)
    signals = CodexAppServerSignals(launch_in(folder, {"HOME": str(home or folder)}, command=str(path)))
    made.append(signals)
    return signals


def test_its_terminal_is_given_a_server_that_is_configured_like_itself(
    tmp_path: Path, made: list[CodexAppServerSignals]
) -> None:
    socket = tmp_path / "launch" / "codex-0f8b4c1e.sock"

    prepared = codex(tmp_path, made).prepare(("--no-daemon", "-c", "a=1", "-m", "x"))

    assert prepared.arguments == ("--remote", f"unix://{socket}", "-c", "a=1", "-m", "x")
    started = (tmp_path / "started").read_text(encoding="utf-8").split()
    assert started == ["app-server", "-c", "a=1", "--listen", f"unix://{socket}"]
    assert (tmp_path / "launch").stat().st_mode & 0o777 == 0o700


CONVERSATION = "01a1e1c5-3e2d-76c2-80cf-72eb4097bb4a"


def test_a_last_line_that_names_the_server_is_corrected(tmp_path: Path, made: list[CodexAppServerSignals]) -> None:
    signals = codex(tmp_path, made)
    _, remote, *_ = signals.prepare(()).arguments

    shown = f"To reconnect, run:  codex --remote {remote} resume {CONVERSATION}Stop the current turn: run codex"

    assert signals.correction(shown).endswith(f"To go on: synapse codex --name ada -- resume {CONVERSATION}")
    assert signals.correction(f"To reconnect, run: codex --remote {remote}").endswith("--name ada -- resume")


def test_a_last_line_without_a_server_is_left_alone(tmp_path: Path, made: list[CodexAppServerSignals]) -> None:
    alone, served = codex(tmp_path, made, help_text="--no-daemon"), codex(tmp_path / "other", made)
    alone.prepare(())
    served.prepare(())

    for signals in (alone, served):
        assert signals.correction(f"To continue this session, run codex resume {CONVERSATION}") == ""


def test_the_files_of_a_launch_are_removed_with_it(tmp_path: Path) -> None:
    signals = codex(tmp_path, [])
    signals.prepare(())

    signals.stop()

    assert not (tmp_path / "launch").exists()


async def test_a_terminal_whose_server_has_ended_ends_too(tmp_path: Path, made: list[CodexAppServerSignals]) -> None:
    """It would show that it waits for its server, for ever."""
    signals = codex(tmp_path, made, server=ENDS_LATER)
    signals.prepare(())

    terminal = await asyncio.create_subprocess_exec("sleep", "600")
    signals.start(KeepingListener(), terminal.pid)
    (tmp_path / "enough").touch()
    code = await asyncio.wait_for(terminal.wait(), 30.0)

    assert code == -signal.SIGTERM


async def followed_instead(
    signals: CodexAppServerSignals, arguments: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], str]:
    """The arguments that it is started with, and what `--explain` says is missing."""
    prepared, listener = signals.prepare(arguments), KeepingListener()

    signals.start(listener, 0)
    signals.look()
    assert signals.sender() is None
    assert not await signals.answer("codex-0", Choice(option="1"))
    signals.stop()
    assert Source.TRANSCRIPT in listener.expected
    return prepared.arguments, listener.missing[Source.SIGNAL]


async def test_an_older_version_is_followed_by_its_rollout(tmp_path: Path) -> None:
    arguments, missing = await followed_instead(codex(tmp_path, [], help_text="      --no-daemon"))

    assert arguments == ("--no-daemon",)
    assert "this version has no server" in missing


async def test_arguments_that_are_not_for_a_server_are_kept(tmp_path: Path) -> None:
    arguments, missing = await followed_instead(codex(tmp_path, []), ("--add-dir", "/srv"))

    assert arguments == ("--no-daemon", "--add-dir", "/srv")
    assert "its arguments" in missing


async def test_if_the_server_does_not_start_the_rollout_is_followed(tmp_path: Path) -> None:
    arguments, missing = await followed_instead(codex(tmp_path, [], server="exit 1"))

    assert arguments == ("--no-daemon",)
    assert "did not start" in missing


async def test_where_the_tui_would_ask_for_trust_it_runs_without_a_server(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    signals = codex(tmp_path, [], home=tmp_path / "elsewhere")

    arguments, missing = await followed_instead(signals)

    assert arguments == ("--no-daemon",)
    assert "not trusted yet" in missing


@pytest.mark.parametrize(
    ("settings", "trusted", "asks"),
    [
        ("work/.codex", "", True),
        ("work/project/.codex", "", True),
        ("work/.codex", "work", False),
        ("work/.codex", "work/project", False),
        (".codex", "", False),
    ],
)
def test_trust_is_asked_for_settings_of_a_folder_that_no_person_has_judged(
    tmp_path: Path, settings: str, trusted: str, *, asks: bool
) -> None:
    (tmp_path / "work" / "project").mkdir(parents=True)
    (tmp_path / settings).mkdir()
    (tmp_path / ".codex").mkdir(exist_ok=True)
    judged = f'[projects."{tmp_path / trusted}"]\ntrust_level = "trusted"\n' if trusted else "no toml ["
    (tmp_path / ".codex" / "config.toml").write_text(judged, encoding="utf-8")

    assert would_ask_for_trust(tmp_path / "work" / "project", tmp_path / ".codex") is asks


def test_trust_in_a_repository_holds_in_its_worktrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in configure_git(tmp_path).items():
        monkeypatch.setenv(name, value)
    repository, worktree, home = new_repository(tmp_path / "shop"), tmp_path / "worktree", tmp_path / ".codex"
    commit(repository, ".codex/config.toml")
    git(repository, "worktree", "add", "--quiet", str(worktree))
    home.mkdir()
    assert would_ask_for_trust(worktree, home)

    (home / "config.toml").write_text(f'[projects."{repository}"]\ntrust_level = "trusted"\n', encoding="utf-8")

    assert not would_ask_for_trust(worktree, home)
