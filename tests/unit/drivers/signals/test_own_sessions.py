"""Gemini's and Copilot's transcripts are found by the name that we give their conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from synapse.drivers.pty.signals.adapter import Adapter, Surroundings
from synapse.drivers.pty.signals.copilot import CopilotSignals
from synapse.drivers.pty.signals.gemini import GeminiSignals
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import Report, Told
from tests.unit.drivers.signals.listeners import KeepingListener
from tests.unit.drivers.signals.surroundings import around, until
from tests.unit.terminal.signals.recordings import recorded

ADAPTERS: list[Callable[[Surroundings], Adapter]] = [GeminiSignals, CopilotSignals]


@pytest.fixture
def command(tmp_path: Path) -> str:
    path = tmp_path / "cli"
    path.write_text(f"#!/bin/sh\necho asked >>{tmp_path}/asked\necho '  --session-id <id>'\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_new_conversation_gets_our_name(
    tmp_path: Path, command: str, adapter: Callable[[Surroundings], Adapter]
) -> None:
    surroundings = around(tmp_path, command=command)

    for _ in range(2):
        prepared = adapter(surroundings).prepare(("-m", "x"))
        assert prepared.arguments == ("--session-id", surroundings.new_session, "-m", "x")

    assert (tmp_path / "asked").read_text(encoding="utf-8") == "asked\n"


@pytest.mark.parametrize("arguments", [("--session-id", "theirs"), ("--session-id=theirs",)])
def test_a_name_that_the_person_chose_is_kept_and_used(
    tmp_path: Path, command: str, arguments: tuple[str, ...]
) -> None:
    signals, listener = CopilotSignals(around(tmp_path, command=command)), KeepingListener()
    assert signals.prepare(arguments).arguments == arguments
    events = tmp_path / ".copilot" / "session-state" / "theirs" / "events.jsonl"

    reports = asyncio.run(
        heard(signals, listener, events, [json.dumps(line) for line in recorded("copilot", events.name)])
    )

    assert [report.told for report in reports][:2] == [Told.SUBMITTED, Told.ANSWERED]


async def heard(signals: Adapter, listener: KeepingListener, file: Path, lines: list[str]) -> list[Report]:
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
    tmp_path: Path, command: str, adapter: Callable[[Surroundings], Adapter], argument: str, program: str
) -> None:
    chosen = command if program == "cli" else program

    assert adapter(around(tmp_path, command=chosen)).prepare((argument,)).arguments == (argument,)


@pytest.mark.parametrize(
    ("adapter", "recording", "place"),
    [
        (CopilotSignals, "copilot/events.jsonl", ".copilot/session-state/old/events.jsonl"),
        (GeminiSignals, "gemini/chat.jsonl", ".gemini/tmp/proj/chats/session-old.jsonl"),
    ],
)
def test_a_conversation_without_our_name_is_found_by_our_message(
    tmp_path: Path, adapter: Callable[[Surroundings], Adapter], recording: str, place: str
) -> None:
    lines = [json.dumps(line) for line in recorded(*recording.split("/"))]
    header = next(line for line in lines if "[A2A:" in line).partition("[A2A:")[2].partition("]")[0]
    write(tmp_path / place, lines)
    write(tmp_path / place.replace("old", "older").replace("proj", "other"), ["{}"])

    async def story() -> KeepingListener:
        signals, listener = adapter(around(tmp_path)), KeepingListener()
        signals.prepare(())
        signals.start(listener, 0)
        for listener.last_typed in ("no header", "[A2A:99999999:user] unknown", f"[A2A:{header}] hello"):
            assert listener.reports == []
            signals.look()
        signals.stop()
        return listener

    listener = asyncio.run(story())

    assert Source.TRANSCRIPT in listener.expected
    assert listener.reports[0].told is Told.SUBMITTED
