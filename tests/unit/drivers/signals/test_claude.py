"""Claude Code's hooks are switched on by a file of the launch, and its interrupts are read from its transcript."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from synapse.drivers.pty.signals.claude import ClaudeSignals
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import Told
from tests.unit.drivers.signals.listeners import KeepingListener
from tests.unit.drivers.signals.surroundings import around, until
from tests.unit.terminal.signals.recordings import recorded


def test_the_settings_of_a_launch_are_private_and_go_with_it(tmp_path: Path) -> None:
    signals = ClaudeSignals(around(tmp_path))

    prepared = signals.prepare(("--permission-mode", "manual"))

    flag, path, *rest = prepared.arguments
    assert (flag, rest, prepared.missing, prepared.env) == ("--settings", ["--permission-mode", "manual"], "", {})
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    assert "s3cret" not in " ".join(prepared.arguments)
    signals.stop()
    assert not Path(path).parent.exists()


@pytest.mark.parametrize("given", ["own.json", '{"model": "m"}'])
def test_the_persons_own_settings_keep_working(tmp_path: Path, given: str) -> None:
    (tmp_path / "own.json").write_text('{"model": "m"}', encoding="utf-8")

    prepared = ClaudeSignals(around(tmp_path)).prepare(("--settings", given))

    settings = json.loads(Path(prepared.arguments[1]).read_text(encoding="utf-8"))
    assert settings["model"] == "m"
    assert "Stop" in settings["hooks"]


@pytest.mark.parametrize("given", ["missing.json", "{", "[]", '{"disableAllHooks": true}'])
def test_settings_that_leave_no_room_for_hooks_are_passed_on_and_said(tmp_path: Path, given: str) -> None:
    (tmp_path / "[]").write_text("[]", encoding="utf-8")
    signals, listener = ClaudeSignals(around(tmp_path)), KeepingListener()

    prepared = signals.prepare(("--settings", given))
    signals.start(listener, 0)

    assert prepared.arguments == ("--settings", given)
    assert "its hooks are off" in listener.lacking[Source.SIGNAL]


@pytest.mark.parametrize(
    ("env", "added"),
    [
        ({"no_proxy": "intranet"}, {}),
        ({"HTTPS_PROXY": "http://proxy"}, {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}),
        (
            {"http_proxy": "http://proxy", "no_proxy": "intranet"},
            {"NO_PROXY": "intranet,127.0.0.1", "no_proxy": "intranet,127.0.0.1"},
        ),
    ],
)
def test_hooks_do_not_go_by_way_of_a_proxy(tmp_path: Path, env: dict[str, str], added: dict[str, str]) -> None:
    assert ClaudeSignals(around(tmp_path, env)).prepare(()).env == added


def test_an_interrupt_in_the_transcript_ends_the_turn(tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    taken = next(hook for hook in recorded("claude", "hooks.jsonl") if hook.get("prompt") == "SLOW one")
    lines = [line for line in recorded("claude", "transcript.jsonl") if line.get("promptId") == taken["prompt_id"]]

    async def story() -> KeepingListener:
        signals, listener = ClaudeSignals(around(tmp_path)), KeepingListener()
        signals.start(listener, 0)
        signals.receive({**taken, "transcript_path": str(transcript)})
        with transcript.open("a", encoding="utf-8") as file:
            file.write("\n".join(json.dumps(line) for line in lines) + "\nnot JSON\n")
        await until(lambda: len(listener.reports) == 2)
        signals.stop()
        return listener

    listener = asyncio.run(story())

    assert [report.told for report in listener.reports] == [Told.SUBMITTED, Told.FAILED]
    assert listener.reports[1].reason == "interrupted"


def test_an_answer_ends_the_watch_over_the_transcript(tmp_path: Path) -> None:
    async def story() -> KeepingListener:
        signals, listener = ClaudeSignals(around(tmp_path)), KeepingListener()
        signals.start(listener, 0)
        for hook in recorded("claude", "hooks.jsonl")[:2]:
            signals.receive(hook)
        signals.receive({"hook_event_name": "SessionEnd"})
        signals.look()
        signals.stop()
        return listener

    assert [report.told for report in asyncio.run(story()).reports] == [Told.SUBMITTED, Told.ANSWERED]
