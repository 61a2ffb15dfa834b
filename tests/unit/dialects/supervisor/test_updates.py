"""Updates as events of a supervisor stream, and as notifications."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
    Update,
)
from synapse.core.message import Artifact, TextPart
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.dialects.dialect import StreamCall, WireEvent
from synapse.dialects.supervisor.encode import encode_notification, task_object
from synapse.server.sse import event_bytes
from tests.unit.dialects.supervisor.samples import AGENT, CREATED, MESSAGE, a_message, a_task, an_answered_task, ask

TASK = a_task()
OPENED = TaskOpened(
    task_id=TASK.id,
    at=CREATED,
    agent_id=TASK.agent_id,
    inbox=TASK.inbox,
    context_id="c",
    scope="s",
    dialect="supervisor",
    message=TASK.message,
)
SHOWN: list[TaskEvent | None] = [
    None,
    OPENED,
    StateChanged(task_id=TASK.id, at=CREATED, state=TaskState.WORKING),
    MessageAdded(task_id=TASK.id, at=CREATED, message=a_message()),
    ArtifactAdded(task_id=TASK.id, at=CREATED, artifact=Artifact(artifact_id="a", parts=(TextPart(text="t"),))),
]
NOT_SHOWN: list[TaskEvent] = [
    ReceiptChanged(task_id=TASK.id, at=CREATED, step=ReceiptStep.TYPED, source="journal"),
    MetadataChanged(task_id=TASK.id, at=CREATED, metadata={}),
    AttentionChanged(task_id=TASK.id, at=CREATED, attention="look"),
    TaskHidden(task_id=TASK.id, at=CREATED),
]


def streamed(update: Update, **configuration: Any) -> WireEvent | None:
    call = ask("POST", "/message:stream", {"message": MESSAGE, "configuration": configuration})
    assert isinstance(call, StreamCall)
    return call.encode(update)


def subscribed(update: Update) -> WireEvent | None:
    call = ask("POST", "/tasks/{id}:subscribe", id=TASK.id)
    assert isinstance(call, StreamCall)
    return call.encode(update)


@pytest.mark.parametrize("event", SHOWN, ids=lambda event: type(event).__name__)
def test_what_changes_the_task_is_told_with_the_whole_task(event: TaskEvent | None) -> None:
    told = streamed(Update(7, event, TASK))

    assert told is not None
    assert (told.id, told.name, told.then) == ("event-7", "taskUpdate", None)
    assert json.loads(told.data) == {**task_object(TASK, agent=AGENT), "final": False}


@pytest.mark.parametrize("event", NOT_SHOWN, ids=lambda event: type(event).__name__)
def test_what_changes_nothing_that_is_shown_is_not_told(event: TaskEvent) -> None:
    assert streamed(Update(7, event, TASK)) is None
    assert encode_notification(Update(7, event, TASK), AGENT) is None


def ended(task: Task) -> Update:
    return Update(9, StateChanged(task_id=task.id, at=CREATED, state=task.state), task)


@pytest.mark.parametrize("state", [state for state in TaskState if state.is_terminal])
def test_the_end_is_final_and_done_follows(state: TaskState) -> None:
    for encode in (streamed, subscribed):
        told = encode(ended(an_answered_task(state=state)))

        assert told is not None
        assert json.loads(told.data)["final"] is True
        assert told.then == WireEvent("event-10", "done", b"{}")


def test_a_stream_ends_also_when_the_agent_asks_and_a_subscription_does_not() -> None:
    update = ended(a_task(state=TaskState.INPUT_REQUIRED))
    stream, subscription = streamed(update), subscribed(update)

    assert stream is not None
    assert stream.then is not None
    assert json.loads(stream.data)["final"] is True
    assert subscription is not None
    assert subscription.then is None
    assert json.loads(subscription.data)["final"] is False


def test_both_events_go_out_as_one_piece() -> None:
    told = streamed(ended(an_answered_task()))

    assert told is not None
    assert event_bytes(told).endswith(b"\n\nid: event-10\nevent: done\ndata: {}\n\n")


def test_a_stream_has_the_history_that_was_asked_for() -> None:
    told = streamed(Update(7, None, TASK), historyLength=0)

    assert told is not None
    assert json.loads(told.data)["history"] == []


def test_a_webhook_is_told_the_same_as_a_stream() -> None:
    told = streamed(ended(an_answered_task()))

    assert told is not None
    assert encode_notification(ended(an_answered_task()), AGENT) == told.data
