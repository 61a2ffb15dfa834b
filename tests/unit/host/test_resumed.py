"""A launch that goes on with the conversation of the run before: what the next run, a person and the tasks learn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.config.settings import Settings
from synapse.core.agent import READY, STARTING, WORKING, AgentEntry
from synapse.core.driver import AgentStatus, SendOutcome
from synapse.drivers.pty.adapters.adapter import ToolServer
from synapse.drivers.pty.process import Launch
from synapse.host.conversations import RunRecord
from synapse.host.pty import CliSignals
from tests.fakes.clock import FakeClock
from tests.unit.terminal.bundled import bundled

SESSION = "7cbe5f9e-2d57-4b3c-9c60-0d6c8c1f5b1a"
TYPED = "[A2A:12345678:bob] do this"


class LaunchHarness:
    """A copilot that had a conversation in an earlier run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "copilot"
        program.write_text("#!/bin/sh\necho '--resume --session-id'\n", encoding="utf-8")
        program.chmod(0o755)
        self.profile = replace(bundled("copilot"), command=(str(program),))
        first = self.record()
        first.begin(None)
        first.tell("digest")
        first.converse(SESSION)
        self.events = folder / ".copilot" / "session-state" / SESSION / "events.jsonl"
        self.events.parent.mkdir(parents=True)
        lines = (
            {"type": "session.start", "data": {"context": {"cwd": str(folder)}}},
            {"type": "user.message", "data": {"interactionId": "1", "content": TYPED}},
        )
        self.events.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def record(self) -> RunRecord:
        me = AgentEntry("synapse-copilot-8140", "copilot", inbox="ada", port=8140, working_dir=str(self.folder))
        return RunRecord(self.folder, me, ("python",), FakeClock())

    def session(self) -> str:
        """What the next run would go on with."""
        last = self.record().last()
        assert last is not None
        return last.session

    def start(self, *arguments: str, resume: bool = True) -> tuple[CliSignals, tuple[str, ...]]:
        env = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
        me = AgentEntry("synapse-copilot-8140", "copilot", inbox="ada", port=8140, working_dir=str(self.folder))
        signals = CliSignals(
            me, self.profile, Settings(home=self.folder), env, ToolServer(), self.record(), resume=resume
        )
        launch = Launch(command=(*self.profile.command, *arguments), env=env, columns=80, rows=24)
        return signals, signals.prepare(launch, arguments).command


@pytest.fixture
def harness(tmp_path: Path) -> LaunchHarness:
    return LaunchHarness(tmp_path)


def status(state: str) -> AgentStatus:
    return AgentStatus(state=state, why="", source="screen", since=FakeClock().now())


def test_the_cli_goes_on_and_was_told_its_instructions(harness: LaunchHarness) -> None:
    signals, command = harness.start()

    assert f"--resume={SESSION}" in command
    assert signals.conversation is not None
    assert (signals.conversation.resumed, signals.conversation.why) == (True, "")
    assert signals.told == "digest"
    assert harness.session() == SESSION


def test_a_fresh_start_forgets_the_conversation(harness: LaunchHarness) -> None:
    signals, command = harness.start(resume=False)

    assert SESSION not in " ".join(command)
    assert signals.conversation is not None
    assert (signals.conversation.resumed, signals.conversation.why) == (False, "")
    assert signals.told == ""
    assert harness.session() == ""


def test_a_conversation_that_is_gone_is_said_to_be(harness: LaunchHarness) -> None:
    harness.events.unlink()

    signals, command = harness.start()
    notices: list[str] = []
    signals.notify = notices.append
    for state in (STARTING, READY, WORKING, READY):
        signals.note_status(status(state))

    assert notices == ["a new conversation: its CLI no longer has the conversation of the last run"]
    assert SESSION not in " ".join(command)
    assert signals.conversation is not None
    assert signals.conversation.why == "its CLI no longer has the conversation of the last run"
    assert (signals.told, harness.session()) == ("", "")


def test_a_resumed_cli_that_was_never_ready_begins_anew_the_next_time(harness: LaunchHarness) -> None:
    signals, _ = harness.start()
    signals.note_status(status(STARTING))

    signals.note_exit()

    assert harness.session() == ""


def test_a_resumed_cli_that_was_ready_once_is_resumed_again(harness: LaunchHarness) -> None:
    signals, _ = harness.start()
    signals.note_status(status(READY))

    signals.note_exit()

    assert harness.session() == SESSION


@pytest.mark.parametrize("resume", [True, False])
async def test_a_message_that_the_transcript_has_was_taken(harness: LaunchHarness, *, resume: bool) -> None:
    signals, _ = harness.start(resume=resume)

    assert await signals.reconcile("key", TYPED.replace("do this", "do\n  this")) is SendOutcome.TAKEN


@pytest.mark.parametrize("typed", ["[A2A:87654321:bob] do this", ""])
async def test_a_message_that_the_transcript_lacks_stays_in_doubt(
    harness: LaunchHarness, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.host.pty._SENDER_SECONDS", 0.0)
    signals, _ = harness.start()

    assert await signals.reconcile("key", typed) is SendOutcome.UNKNOWN
