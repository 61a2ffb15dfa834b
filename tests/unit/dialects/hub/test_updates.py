"""A stream of the hub tells the text as it grows, and its end; it goes on where it broke."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synapse.core.events import ArtifactAdded, MessageAdded, MetadataChanged, StateChanged, TaskEvent, Update
from synapse.core.message import Role, TextPart
from synapse.core.task import Task, TaskState
from synapse.dialects.dialect import StreamCall, WireEvent
from synapse.dialects.hub.stream import GrowingText
from tests.unit.dialects.hub.samples import (
    AGENT,
    CREATED,
    QUESTION,
    TASK_ID,
    a_message,
    a_task,
    an_artifact,
    ask,
    said,
)

ADDED = ArtifactAdded(task_id=a_task().id, at=CREATED, artifact=an_artifact(TextPart(text="x")), append=True)


def a_stream() -> StreamCall:
    call = ask("POST", "/agents/{agentId}/messages", {"message": [QUESTION], "stream": True}, agentId=AGENT)
    assert isinstance(call, StreamCall)
    return call


def a_subscription(after: str = "") -> StreamCall:
    headers = [(b"accept", b"text/event-stream"), *([(b"last-event-id", after.encode())] if after else [])]
    call = ask("GET", "/tasks/{taskId}", headers=headers, taskId=TASK_ID)
    assert isinstance(call, StreamCall)
    return call


def events(event: WireEvent | None) -> list[tuple[str, Any]]:
    """The names and data of an event and of those behind it."""
    told: list[tuple[str, Any]] = []
    while event is not None:
        told.append((event.name, json.loads(event.data)))
        event = event.then
    return told


def tell(call: StreamCall, seq: int, event: TaskEvent | None, task: Task) -> list[tuple[str, Any]]:
    return events(call.encode(Update(seq, event, task)))


def ended(task: Task) -> StateChanged:
    return StateChanged(task_id=task.id, at=CREATED, state=task.state)


def partial(text: str) -> tuple[str, Any]:
    return "update", {"type": "partial", "content": text}


COMPLETE = ("complete", {"taskId": TASK_ID})


def test_only_what_is_new_is_told() -> None:
    stream = a_stream()

    assert tell(stream, 1, None, a_task(state=TaskState.SUBMITTED)) == []
    assert tell(stream, 2, ADDED, said("The ")) == [partial("The ")]
    assert tell(stream, 3, ADDED, said("The ", "weather")) == [partial("weather")]
    assert tell(stream, 4, ADDED, said("The weather")) == []
    assert tell(stream, 5, ended(a_task()), said("The weather", state=TaskState.COMPLETED)) == [COMPLETE]


def test_an_answer_at_once_is_told_with_the_end() -> None:
    done = said("sun", state=TaskState.COMPLETED)

    assert tell(a_stream(), 9, None, done) == [partial("sun"), COMPLETE]


def test_a_text_that_was_rewritten_takes_the_place_of_the_old_one() -> None:
    stream = a_stream()
    tell(stream, 1, ADDED, said("Thinking…"))

    assert tell(stream, 2, ADDED, said("The weather")) == [("update", {"type": "replace", "content": "The weather"})]
    assert tell(stream, 3, ADDED, said("The weather", " is")) == [partial(" is")]
    assert tell(stream, 4, ADDED, said("T")) == [("update", {"type": "replace", "content": "T"})]


def test_what_the_agent_asks_is_told_and_ends_the_stream() -> None:
    stream = a_stream()
    question = a_message(TextPart(text="where?"), role=Role.AGENT)
    asked = a_task(history=(a_message(), question))
    added = MessageAdded(task_id=asked.id, at=CREATED, message=question)
    waiting = a_task(history=asked.history, state=TaskState.INPUT_REQUIRED)

    assert tell(stream, 2, added, asked) == [partial("where?")]
    assert tell(stream, 3, ended(waiting), waiting) == [COMPLETE]
    assert tell(a_subscription(), 3, ended(waiting), waiting) == []


def test_what_people_say_is_not_told() -> None:
    added = MessageAdded(task_id=a_task().id, at=CREATED, message=a_message())

    assert tell(a_stream(), 2, added, a_task()) == []


def test_a_snapshot_has_only_what_was_said_since_somebody_spoke() -> None:
    old = a_message(TextPart(text="where?"), role=Role.AGENT)
    new = a_message(TextPart(text="when?"), role=Role.AGENT)
    task = a_task(history=(a_message(), old, a_message(), new))

    assert tell(a_stream(), 5, None, task) == [partial("when?")]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (TaskState.FAILED, "AGENT_EXECUTION_ERROR"),
        (TaskState.REJECTED, "AGENT_EXECUTION_ERROR"),
        (TaskState.CANCELED, "TASK_CANCELLED"),
    ],
)
def test_an_end_without_an_answer_is_an_error_inside_the_stream(state: TaskState, code: str) -> None:
    task = a_task(state=state, reason="why", note="it has exited")

    assert tell(a_stream(), 5, ended(task), task) == [
        (
            "error",
            {"error": {"code": code, "message": "it has exited", "details": {"reason": "why", "taskId": TASK_ID}}},
        )
    ]


def test_an_end_without_a_reason_still_names_its_task() -> None:
    task = a_task(state=TaskState.FAILED)

    (told,) = tell(a_stream(), 5, ended(task), task)
    assert told[1]["error"]["details"] == {"taskId": TASK_ID}


def test_other_facts_are_not_told() -> None:
    changed = MetadataChanged(task_id=a_task().id, at=CREATED, metadata={"k": 1})

    assert tell(a_stream(), 5, changed, a_task()) == []
    assert tell(a_stream(), 5, changed, a_task(state=TaskState.COMPLETED)) == []


def test_a_reader_goes_on_with_what_it_has_not_seen() -> None:
    first = a_stream().encode(Update(7, ADDED, said("The ")))
    assert first is not None
    assert first.id.startswith(f"{TASK_ID}.7.4.")

    resumed = a_subscription(first.id)

    assert tell(resumed, 8, ADDED, said("The ", "sun")) == [partial("sun")]


def test_a_reader_whose_text_was_rewritten_meanwhile_gets_it_anew() -> None:
    first = a_stream().encode(Update(7, ADDED, said("Thinking")))
    assert first is not None

    assert tell(a_subscription(first.id), 8, ADDED, said("The sun shines")) == [
        ("update", {"type": "replace", "content": "The sun shines"})
    ]


def test_whoever_saw_half_of_an_update_gets_the_other_half() -> None:
    done = said("sun", state=TaskState.COMPLETED)
    both = a_stream().encode(Update(9, None, done))
    assert both is not None
    assert both.then is not None
    assert (both.id.split(".")[1], both.then.id.split(".")[1]) == ("8", "9")

    assert tell(a_subscription(both.id), 9, ended(done), done) == [COMPLETE]


def test_several_texts_are_told_as_lines() -> None:
    stream = a_stream()
    one, other = an_artifact(TextPart(text="one")), an_artifact(TextPart(text="two"), artifact_id="a-2")
    empty = an_artifact(artifact_id="a-3")

    assert tell(stream, 1, ADDED, a_task(artifacts=(one, empty))) == [partial("one")]
    assert tell(stream, 2, ADDED, a_task(artifacts=(one, empty, other))) == [partial("\ntwo")]


def test_text_that_is_no_utf_8_does_not_break_the_stream() -> None:
    assert tell(a_stream(), 1, ADDED, said("\udcff")) == [partial("?")]


def test_a_text_that_was_read_off_the_screen_says_so() -> None:
    shown = an_artifact(TextPart(text="fine"), metadata={"source": "screen", "inferred": True, "partial": True})
    event = GrowingText()(Update(2, None, a_task(artifacts=(shown,))))

    assert event is not None
    assert json.loads(event.data) == {"type": "partial", "content": "fine", "source": "screen"}
