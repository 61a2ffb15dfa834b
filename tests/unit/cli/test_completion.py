"""`synapse completion`: scripts that real shells read, words for them, and where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from synapse.cli.completion_scripts import SCRIPTS, actions_of, script_path
from synapse.store.recent import recent_tasks
from tests.fakes.link import FakeLink
from tests.unit.cli.conftest import Cli, HostFactory

STATUS = "agents remote-agents tasks"
HOSTILE = "$(touch pwned) `touch pwned` 'a' \"b\" : \\ \x1b[31m\ttab"


def in_shell(shell: str, home: Path, *commands: str) -> list[str]:
    """Runs commands after the completion script, beside a `synapse` that knows two tasks and an agent."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    programs = home / "programs"
    programs.mkdir(exist_ok=True)
    command = programs / "synapse"
    words = f"reviewer\tcodex in ~/src\ncodex@box2\tcodex\n54241e7e\t{HOSTILE}\n99887766\tplain\n"
    (home / "words").write_text(words, encoding="utf-8")
    command.write_text(f'#!/bin/sh\necho "$*" >> {home}/asked\ncat {home}/words\n', encoding="utf-8")
    command.chmod(0o755)
    script = home / f"script.{shell}"
    script.write_text(SCRIPTS[shell](), encoding="utf-8")
    ran = subprocess.run(
        [shell, "-c", "\n".join([f"source {script}", *commands])],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home)},
        cwd=home,
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=False,
    )
    assert ran.returncode == 0, ran
    assert not (home / "pwned").exists()
    return ran.stdout.splitlines()


def completed_by_bash(home: Path, *words: str) -> list[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    return in_shell(
        "bash", home, f"COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}; _synapse", 'printf "%s\\n" "${COMPREPLY[@]}"'
    )


def test_bash_completes_the_machine_of_an_agent(home: Path) -> None:
    # Bash takes `@` for the end of a word, and replaces only what follows it.
    typed = (
        "COMP_WORDS=(synapse send codex @ bo) COMP_CWORD=4 COMP_LINE='synapse send codex@bo' COMP_POINT=21; _synapse"
    )

    assert in_shell("bash", home, typed, "_synapse", 'printf "%s\\n" "${COMPREPLY[@]}"') == ["box2"]


def test_bash_completes_agents_and_tasks(home: Path) -> None:
    assert completed_by_bash(home, "synapse", "status", "") == ["reviewer", "codex@box2", "54241e7e", "99887766"]
    assert completed_by_bash(home, "synapse", "status", "54") == ["54241e7e"]
    assert completed_by_bash(home, "synapse", "watch", "--task", "9") == ["99887766"]
    assert completed_by_bash(home, "synapse", "cancel", "5") == ["54241e7e"]
    asked = (home / "asked").read_text(encoding="utf-8").splitlines()
    assert asked == [f"completion --words {kinds}" for kinds in (STATUS, STATUS, "tasks", "open-tasks")]


def test_bash_completes_verbs_actions_and_options(home: Path) -> None:
    assert completed_by_bash(home, "synapse", "res") == ["restart", "resolve"]
    assert completed_by_bash(home, "synapse", "keys", "") == ["create", "list", "revoke"]
    assert completed_by_bash(home, "synapse", "service", "") == ["install", "status", "uninstall"]
    assert completed_by_bash(home, "synapse", "service", "install", "") == ["gateway", "link", "team"]
    assert completed_by_bash(home, "synapse", "stop", "--f") == ["--force"]
    assert completed_by_bash(home, "synapse", "help", "broad") == ["broadcast"]


def test_zsh_completes_tasks_with_their_texts(home: Path) -> None:
    # Outside of its line editor zsh completes nothing, so the test notes what the script hands over.
    told = in_shell(
        "zsh",
        home,
        "_describe() { local name=${@[-1]}; print -rl -- ${(P)name}; }",
        "words=(synapse status '') CURRENT=3 PREFIX=''; _synapse",
    )

    assert told[0] == "reviewer:codex in ~/src"
    assert told[2].startswith("54241e7e:$(touch pwned) `touch pwned` 'a' \"b\" : ")
    assert told[-1] == "99887766:plain"


def test_zsh_offers_each_verb_with_its_summary(home: Path) -> None:
    told = in_shell(
        "zsh",
        home,
        '_describe() { local name=${@[-1]}; print -rl -- ${(P)name}; }; compadd() { print -r -- "$@"; }',
        "words=(synapse '') CURRENT=2 PREFIX=''; _synapse",
        "words=(synapse keys '') CURRENT=3 PREFIX=''; _synapse",
        "words=(synapse stop --f) CURRENT=3 PREFIX=--f; _synapse",
    )

    assert "stop:stop an agent" in told
    assert "attach:open an agent's terminal in this one" in told
    assert "-- create list revoke" in told
    assert "-- --all --force --help --json" in told


def test_fish_completes_tasks_with_their_texts(home: Path) -> None:
    told = in_shell(
        "fish", home, 'complete -C "synapse status "', 'complete -C "synapse res"', 'complete -C "synapse keys "'
    )

    assert "reviewer\tcodex in ~/src" in told
    assert any(line.startswith("54241e7e\t$(touch pwned)") for line in told)
    assert "resolve\tdecide about a message that may not have been delivered" in told
    assert {"create", "list", "revoke"} <= set(told)


def test_words_are_harmless_and_carry_a_text(synapse: Cli, start: HostFactory) -> None:
    start("codex", name="reviewer")
    start("codex", 8121, name="$(touch pwned)")

    lines = synapse("completion", "--words", "agents").out.splitlines()

    # Scripts of earlier versions ask for names alone.
    assert synapse("completion", "agents").out == "codex\nreviewer\n"
    assert [line.partition("\t")[0] for line in lines] == ["codex", "reviewer"]
    assert lines[1].startswith("reviewer\tcodex in ")


def test_without_a_store_there_are_no_tasks(synapse: Cli, home: Path) -> None:
    assert synapse("completion", "--words", "tasks", "open-tasks").out == "\n"
    (home / "store.db").write_text(
        "this is no database, but it is long enough to be read as one" * 20, encoding="utf-8"
    )
    assert synapse("completion", "--words", "tasks").out == "\n"
    assert list(recent_tasks(str(home / "none.db"), 5, only_open=False, system="", scope="local")) == []
    assert not (home / "none.db").exists()


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", "share/bash-completion/completions/synapse"),
        ("zsh", "share/zsh/site-functions/_synapse"),
        ("fish", "config/fish/completions/synapse.fish"),
    ],
)
def test_a_script_is_installed_where_its_shell_looks(
    synapse: Cli, home: Path, shell: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "share"))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    monkeypatch.delenv("BASH_COMPLETION_USER_DIR", raising=False)

    ran = synapse("completion", "--install")

    assert ran.code == 0, ran
    assert str(home / place) in ran.err
    assert (home / place).read_text(encoding="utf-8") == SCRIPTS[shell]()
    assert synapse("completion", "--install", shell).code == 0
    assert "completion" not in synapse("doctor").out
    (home / place).write_text(SCRIPTS[shell]().replace("broadcast", ""), encoding="utf-8")
    assert f"→ synapse completion --install {shell}\n" in synapse("doctor").out
    (home / place).write_text("# mine\n", encoding="utf-8")
    assert "completion" not in synapse("doctor").out
    refused = synapse("completion", "--install")
    assert (refused.code, (home / place).read_text(encoding="utf-8")) == (7, "# mine\n")


def test_bash_completions_have_a_folder_of_their_own() -> None:
    assert script_path("bash", {"BASH_COMPLETION_USER_DIR": "/b"}) == Path("/b/completions/synapse")


@pytest.mark.parametrize("shell", ["", "/bin/dash"])
def test_an_unknown_shell_is_asked_for(synapse: Cli, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", shell)

    ran = synapse("completion", "--install")

    assert (ran.code, "bash, zsh or fish" in ran.err) == (2, True)
    assert synapse("completion").code == 2


def test_actions_are_read_from_the_help() -> None:
    assert actions_of("external") == ["add", "list", "send", "cancel", "remove"]
    assert actions_of("dashboard") == ["sessions", "revoke"]
    assert actions_of("send") == []


def test_agents_of_other_machines_are_words_where_a_verb_takes_them(synapse: Cli, home: Path) -> None:
    assert synapse("completion", "--words", "agents", "remote-agents").out.split() == []
    with FakeLink(home).serving() as link:
        link.start("box2")

        (line,) = synapse("completion", "--words", "agents", "remote-agents").out.splitlines()
    silent = synapse("completion", "--words", "remote-agents")

    assert line.startswith("codex-8120@box2\tcodex in ")
    assert (silent.code, silent.out.strip(), silent.err) == (0, "", "")
