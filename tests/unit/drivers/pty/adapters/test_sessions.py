"""Gemini's and Copilot's transcripts are found by their session, never by their text."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from synapse.drivers.pty.adapters.adapter import Adapter, LaunchContext
from synapse.drivers.pty.adapters.copilot import CopilotSignals
from synapse.drivers.pty.adapters.gemini import GeminiSignals
from synapse.drivers.pty.adapters.transcript import shows_open_files
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener
from tests.unit.terminal.signals.recordings import recorded

ADAPTERS: list[Callable[[LaunchContext], Adapter]] = [GeminiSignals, CopilotSignals]


@pytest.fixture
def command(tmp_path: Path) -> str:
    path = tmp_path / "cli"
    path.write_text(f"#!/bin/sh\necho asked >>{tmp_path}/asked\necho '  --session-id <id>'\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_new_conversation_gets_our_name(
    tmp_path: Path, command: str, adapter: Callable[[LaunchContext], Adapter]
) -> None:
    launch = launch_in(tmp_path, command=command)

    for _ in range(2):
        prepared = adapter(launch).prepare(("-m", "x"))
        assert prepared.arguments == ("--session-id", launch.new_session, "-m", "x")

    assert (tmp_path / "asked").read_text(encoding="utf-8") == "asked\n"


@pytest.mark.parametrize("arguments", [("--session-id", "theirs"), ("--session-id=theirs",)])
async def test_a_name_that_the_person_chose_is_kept_and_used(
    tmp_path: Path, command: str, arguments: tuple[str, ...]
) -> None:
    signals, listener = CopilotSignals(launch_in(tmp_path, command=command)), KeepingListener()
    assert signals.prepare(arguments).arguments == arguments
    events = tmp_path / ".copilot" / "session-state" / "theirs" / "events.jsonl"

    reports = await reported(signals, listener, events, [json.dumps(line) for line in recorded("copilot", events.name)])

    assert [report.kind for report in reports][:2] == [SignalKind.SUBMITTED, SignalKind.ANSWERED]


async def reported(signals: Adapter, listener: KeepingListener, file: Path, lines: list[str]) -> list[SignalReport]:
    signals.start(listener, 0)
    signals.look()
    signals.receive({})
    write(file, lines)
    await until(lambda: len(listener.reports) > 1)
    signals.stop()
    return listener.reports


def write(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(("argument", "program"), [("--resume", "cli"), ("-m", "true"), ("-m", "no-such-program")])
def test_an_old_conversation_and_an_old_version_get_no_name(
    tmp_path: Path, command: str, adapter: Callable[[LaunchContext], Adapter], argument: str, program: str
) -> None:
    chosen = command if program == "cli" else program

    assert adapter(launch_in(tmp_path, command=chosen)).prepare((argument,)).arguments == (argument,)


@pytest.mark.parametrize(
    ("adapter", "recording", "place"),
    [
        (CopilotSignals, "copilot/events.jsonl", ".copilot/session-state/other/events.jsonl"),
        (GeminiSignals, "gemini/chat.jsonl", ".gemini/tmp/proj/chats/session-other.jsonl"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_another_session_that_holds_our_message_is_not_read(
    tmp_path: Path, adapter: Callable[[LaunchContext], Adapter], recording: str, place: str, *, named: bool
) -> None:
    lines = [json.dumps(line) for line in recorded(*recording.split("/"))]
    header = next(line for line in lines if "[A2A:" in line).partition("[A2A:")[2].partition("]")[0]

    signals, listener = adapter(launch_in(tmp_path)), KeepingListener()
    signals.prepare(("--session-id", "0f8b4c1e-own") if named else ("--resume",))
    signals.start(listener, 0)
    listener.is_ready, listener.last_typed = True, f"[A2A:{header}] hello\nthere"
    write(tmp_path / place, lines)
    signals.look()
    signals.stop()

    assert listener.reports == []


def copilot_turn(number: int) -> list[str]:
    data = {"interactionId": str(number), "content": f"message {number}"}
    return [json.dumps({"type": "user.message", "timestamp": "2026-11-15T11:00:00.000Z", "data": data})]


@pytest.mark.skipif(not shows_open_files(), reason="this system does not show open files")
async def test_copilots_session_is_the_one_that_it_holds_open(tmp_path: Path) -> None:
    sessions = tmp_path / ".copilot" / "session-state"
    for number in (1, 2):
        write(sessions / str(number) / "events.jsonl", copilot_turn(number))

    async def story() -> list[str]:
        signals, listener = CopilotSignals(launch_in(tmp_path)), KeepingListener()
        signals.prepare(("--resume",))
        signals.start(listener, os.getpid())
        for number in (1, 2, 1):
            with (sessions / str(number) / f"inuse.{os.getpid()}.hold").open("w", encoding="utf-8"):
                signals.look()
        signals.stop()
        return [report.text for report in listener.reports]

    result = await story()

    assert result == ["message 1", "message 2"]


class ResumedGemini:
    """Gemini goes on with an old session: its name is added to the session's chat once more."""

    def __init__(self, folder: Path) -> None:
        self.chats = folder / ".gemini" / "tmp" / "proj" / "chats"
        self.project = hashlib.sha256(bytes(folder.resolve())).hexdigest()
        self.chats.mkdir(parents=True)
        for session in ("first-session", "second-session"):
            self.add(session, {"sessionId": session, "projectHash": self.project})
        self.signals, self.listener = GeminiSignals(launch_in(folder)), KeepingListener()
        self.signals.prepare(("--resume",))
        self.signals.start(self.listener, 0)

    def add(self, session: str, *records: Mapping[str, object]) -> None:
        with (self.chats / f"session-{session[:8]}.jsonl").open("a", encoding="utf-8") as chat:
            chat.write("".join(json.dumps(record) + "\n" for record in records))

    def resume(self, session: str) -> None:
        prompt = {"id": "1", "timestamp": "2026-11-15T11:00:00.000Z", "type": "user", "content": [{"text": session}]}
        self.add(session, {"$set": {"sessionId": session}}, prompt)

    def look(self) -> list[str]:
        self.signals.look()
        return [report.text for report in self.listener.reports]


async def test_geminis_session_is_the_one_that_it_resumes_at_its_start(tmp_path: Path) -> None:
    gemini = ResumedGemini(tmp_path)
    gemini.add("first-session", {"$set": {"lastUpdated": "now"}})
    gemini.listener.is_ready = True
    assert gemini.look() == []
    gemini.resume("second-session")
    assert gemini.look() == ["second-session"]
    gemini.resume("first-session")
    seen = gemini.look()
    gemini.signals.stop()

    assert seen == ["second-session"]


async def test_if_two_sessions_are_resumed_at_once_none_counts_as_geminis(tmp_path: Path) -> None:
    gemini = ResumedGemini(tmp_path)
    gemini.resume("first-session")
    gemini.resume("second-session")
    assert gemini.look() == []
    gemini.listener.is_ready = True
    gemini.look()
    gemini.look()
    gemini.signals.stop()
    listener = gemini.listener

    assert listener.reports == []
    assert "several sessions were opened" in listener.missing[Source.TRANSCRIPT]


async def test_a_session_of_another_folder_is_not_geminis(tmp_path: Path) -> None:
    gemini = ResumedGemini(tmp_path)
    gemini.add("third-session", {"sessionId": "third-session", "projectHash": "of another folder"})
    gemini.resume("third-session")
    gemini.listener.is_ready = True
    seen = gemini.look()
    gemini.signals.stop()

    assert seen == []
