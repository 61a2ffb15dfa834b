"""Adapters pass on what requests cost, from the launch of their CLI on, and each at least once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from synapse.core.usage import SESSION_COST, UsageReport
from synapse.drivers.pty.adapters.claude import ClaudeSignals
from synapse.drivers.pty.adapters.codex_client import CodexUsage
from synapse.drivers.pty.adapters.copilot import CopilotSignals
from synapse.drivers.pty.adapters.gemini import GeminiSignals
from synapse.drivers.pty.adapters.transcript import UsageTail
from synapse.terminal.signals.usage import ClaudeUsage
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener
from tests.unit.terminal.signals.recordings import recorded

EARLIER = "2026-11-15T10:00:00.000Z"
"""Before the recordings."""
LATER = "2026-11-17T00:00:00.000Z"


def write(path: Path, records: list[dict[str, Any]], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return path


def requests_in(reports: list[UsageReport]) -> set[str]:
    return {report.request for report in reports}


async def test_claude_tells_what_the_transcript_has_and_at_its_end_what_the_session_cost(tmp_path: Path) -> None:
    records = recorded("claude", "usage.jsonl")
    transcript = tmp_path / "transcript.jsonl"
    first, rest = records[:2], records[2:]
    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    signals.start(listener, 0)
    write(transcript, first)
    prompt = {"hook_event_name": "UserPromptSubmit", "prompt_id": "p", "transcript_path": str(transcript)}
    signals.receive(prompt)
    await until(lambda: requests_in(listener.used) == {"msg_1"})
    write(transcript, [record for record in rest if record["type"] != "cost-state"], "a")
    await until(lambda: requests_in(listener.used) == {"msg_1", "msg_2", "msg_3"})
    write(transcript, [record for record in rest if record["type"] == "cost-state"], "a")
    signals.stop()

    assert listener.used[-1].request == SESSION_COST


async def test_the_sub_agents_of_claude_belong_to_the_turn_that_called_them(tmp_path: Path) -> None:
    asked, said, *_ = recorded("claude", "usage.jsonl")
    transcript = write(tmp_path / "session.jsonl", [asked, said])
    message = {**said["message"], "id": "msg_of_sub_agent"}
    of_sub_agent = [{**asked, "isSidechain": True}, {**said, "isSidechain": True, "message": message}]
    write(tmp_path / "session" / "subagents" / "agent-1.jsonl", of_sub_agent)
    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    listener.is_ready = True
    signals.start(listener, 0)
    turn = {"prompt_id": asked["promptId"], "transcript_path": str(transcript)}
    signals.receive({"hook_event_name": "UserPromptSubmit", **turn})
    signals.receive({"hook_event_name": "StopFailure", "error": "overloaded", **turn})
    signals.stop()

    assert requests_in(listener.used) == {"msg_1", "msg_of_sub_agent"}
    assert {report.turn for report in listener.used} == {asked["promptId"]}


@pytest.mark.parametrize(("started", "count"), [(EARLIER, 3), (LATER, 0)])
def test_records_from_before_the_launch_are_not_told_again(tmp_path: Path, started: str, count: int) -> None:
    records = [record for record in recorded("claude", "usage.jsonl") if record["type"] != "cost-state"]
    reports: list[UsageReport] = []
    tail = UsageTail(ClaudeUsage, started, reports.append)
    tail.follow(write(tmp_path / "transcript.jsonl", records))
    tail.read()
    tail.read()

    assert len(reports) == count


def test_of_a_long_transcript_only_the_end_is_read(tmp_path: Path) -> None:
    records = [record for record in recorded("claude", "usage.jsonl") if record["type"] != "cost-state"]
    filler: list[dict[str, Any]] = [{"type": "attachment", "text": "x" * 1000}] * 2000
    reports: list[UsageReport] = []
    tail = UsageTail(ClaudeUsage, EARLIER, reports.append)
    tail.follow(write(tmp_path / "transcript.jsonl", [*records[:2], *filler, *records[2:]]))
    tail.read()

    assert requests_in(reports) == {"msg_2", "msg_3"}


async def test_gemini_and_copilot_tell_what_their_files_have(tmp_path: Path) -> None:
    chat = recorded("gemini", "usage.jsonl")
    session = chat[0]["sessionId"]
    write(tmp_path / ".gemini" / "tmp" / "project" / "chats" / f"session-2026-{session[:8]}.jsonl", chat)
    write(tmp_path / ".copilot" / "session-state" / "theirs" / "events.jsonl", recorded("copilot", "usage.jsonl"))

    for signals, name in (
        (GeminiSignals(launch_in(tmp_path)), session),
        (CopilotSignals(launch_in(tmp_path)), "theirs"),
    ):
        listener = KeepingListener()
        signals.prepare(("--session-id", name))
        signals.start(listener, 0)
        signals.look()
        signals.stop()

        assert len(requests_in(listener.used)) == 3


def test_codex_tells_what_its_server_says_of_the_turn_that_runs() -> None:
    reports: list[UsageReport] = []
    usage = CodexUsage(EARLIER, reports.append)
    turn = ""
    for message in recorded("codex", "usage_server.jsonl"):
        turn = message["params"].get("turnId") or turn
        usage.read(message, turn)

    assert len(requests_in(reports)) == 3


def test_codex_does_not_tell_the_last_request_of_a_conversation_that_is_resumed() -> None:
    reports: list[UsageReport] = []
    usage = CodexUsage(EARLIER, reports.append)
    for message in recorded("codex", "usage_server.jsonl"):
        usage.read(message, "")

    assert reports == []


def test_codex_reads_from_its_rollout_what_came_before_we_subscribed(tmp_path: Path) -> None:
    rollout = write(tmp_path / "rollout.jsonl", recorded("codex", "usage_rollout.jsonl"))
    reports: list[UsageReport] = []
    usage = CodexUsage(EARLIER, reports.append)
    usage.note_thread({"id": "thread", "model": "m", "path": str(rollout)})
    usage.catch_up("thread")
    usage.catch_up("another")

    assert len(reports) == 3
