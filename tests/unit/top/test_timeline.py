"""The timeline of a task: one line per event, with evidence; gaps are drawn."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from synapse.config.process import SystemClock
from synapse.core.errors import AgentNotResponding, TaskNotFound
from synapse.top.lines import UNICODE
from synapse.top.timeline import TaskEvents, Timeline
from tests.unit.cli.fake_host import FakeHost
from tests.unit.top.statuses import task

CLOCK = SystemClock()
BEGUN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def event(kind: str, seconds: float = 0, **fields: Any) -> dict[str, Any]:
    at = (BEGUN + timedelta(seconds=seconds)).isoformat()
    return {"event": {"type": kind, "at": at, **fields}, "task": task(1, "review it")}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"parts": [{"type": "text", "text": words}], **more}


def told(*events: dict[str, Any]) -> list[str]:
    timeline = Timeline(UNICODE)
    for one in events:
        timeline.add(one)
    return ["".join(cell.text for cell in line)[10:].rstrip() for line in timeline.lines]


def test_each_event_is_a_word_and_its_evidence() -> None:
    assert told(
        event("task_opened", message=text("review it\nall of it")),
        event("receipt_changed", step="turn_started", source="hook", evidence="UserPromptSubmit"),
        event("metadata_changed", metadata={"question": {"title": "Run it?"}}),
        event("metadata_changed", metadata={"other": 1}),
        event("message_added", message=text("go on", role="user")),
        event("attention_changed", attention="no proof"),
        event("attention_changed", attention=""),
        event("artifact_added", artifact=text("fine\u202e"), append=False, last_chunk=True),
        event("state_changed", status="input_required", note="it asks"),
        event("task_hidden"),
        event("from_a_later_version"),
    ) == [
        "opened         synapse-claude-8101: review it all of it",
        "turn started   hook: UserPromptSubmit",
        "asks           Run it?",
        "message        user: go on",
        "needs a person no proof",
        "answer         fine<U+202E>",
        "input required it asks",
        "deleted",
    ]


def test_an_answer_that_grows_is_one_line() -> None:
    chunks = [event("artifact_added", artifact=text(words), append=True, last_chunk=False) for words in ("a", "ab")]

    assert told(*chunks, event("state_changed", status="working")) == ["says           ab", "working"]


def test_silence_of_a_minute_is_drawn_as_a_gap() -> None:
    timeline = Timeline(UNICODE)
    for seconds in (0, 59, 300):
        timeline.add(event("receipt_changed", seconds, step="typed"))

    shown = ["".join(cell.text for cell in line).strip() for line in timeline.lines]
    assert len(shown) == 4
    assert shown[2] == "·  4m without an event"


def test_events_come_from_the_host_from_the_first_on_until_the_task_ends(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        opened = host.open({"message": {"role": "user", "parts": []}})
        host.change(opened, receipt="typed")
        host.answer(opened, "done")

        read = list(TaskEvents(host.entry, opened["id"], CLOCK.monotonic).read())

        assert host.resumed_after == ["0"]
        assert [update["task"]["status"] for update in read] == ["submitted", "submitted", "completed"]


def test_a_reader_that_stops_ends_a_stream_that_is_silent(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        opened = host.open({"message": {"role": "user", "parts": []}})
        events = TaskEvents(host.entry, opened["id"], CLOCK.monotonic)
        reading = events.read()
        next(reading)
        rest: list[dict[str, Any]] = []
        reader = threading.Thread(target=lambda: rest.extend(reading))
        reader.start()

        events.stop()

        reader.join(timeout=10)
        assert not reader.is_alive()
        assert rest == []


def test_a_host_that_is_gone_or_refuses_is_an_error(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        with pytest.raises(TaskNotFound):
            list(TaskEvents(host.entry, "nothing", CLOCK.monotonic).read())
        opened = host.open({"message": {"role": "user", "parts": []}})
        host.break_streams_after, host.says_why_streams_break = 1, True
        with pytest.raises(AgentNotResponding):
            list(TaskEvents(host.entry, opened["id"], CLOCK.monotonic).read())
    with pytest.raises(AgentNotResponding):
        list(TaskEvents(host.entry, opened["id"], CLOCK.monotonic).read())
