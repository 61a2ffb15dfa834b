"""The messages of the hub's WebSocket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synapse.core.errors import InvalidField, InvalidRequest, TaskNotFound
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
from synapse.core.message import Artifact, MessageId
from synapse.core.requests import ForAgent, SendMessage, SubscribeTask
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.dialects.hub.encode import task_object
from synapse.dialects.hub.stream import Incoming, decode_incoming, encode_error, encode_pong, encode_update
from tests.unit.dialects.hub.samples import AGENT, CREATED, QUESTION, TASK_ID, a_message, a_task, agent_name

TASK = a_task()


def incoming(**fields: Any) -> Incoming:
    return decode_incoming(json.dumps(fields))


def outgoing(event: TaskEvent | None, task: Task = TASK) -> Any:
    told = encode_update(Update(7, event, task), agent_name)
    return None if told is None else json.loads(told)


def test_a_message_is_for_an_agent() -> None:
    said = incoming(type="message", agentId=AGENT, message=[QUESTION], messageId="m", parentId="p")

    assert isinstance(said.request, ForAgent)
    assert said.request.agent == AGENT
    assert isinstance(said.request.request, SendMessage)
    assert said.request.request.message.message_id == said.message_id == "m"
    assert said.request.request.parent_id == "p"


def test_a_task_is_followed_from_now_or_from_where_one_was() -> None:
    assert incoming(type="subscribe", taskId="t").request == SubscribeTask(task_id="t")
    assert incoming(type="subscribe", taskId="t", after=0).request == SubscribeTask(task_id="t", after=0)
    named = incoming(type="subscribe", taskId=f"{AGENT}:t", after=17).request
    assert named == ForAgent(AGENT, SubscribeTask(task_id="t", after=17))


def test_a_ping_asks_for_nothing() -> None:
    assert incoming(type="ping") == Incoming()
    assert json.loads(encode_pong(seq=3)) == {"type": "pong", "seq": 3}


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "hello",
        "{}",
        "[]",
        '{"type": "shout"}',
        '{"type": "message"}',
        '{"type": "message", "agentId": "", "message": []}',
        '{"type": "message", "agentId": "a", "message": []}',
        '{"type": "subscribe"}',
        '{"type": "subscribe", "taskId": "t", "after": -1}',
        '{"type": "subscribe", "taskId": "t", "after": "x"}',
        "[" * 100_000,
        "\udcff",
        b'{"type": "ping"}',
    ],
    ids=lambda frame: repr(frame[:20]),
)
def test_a_frame_that_cannot_be_meant_is_refused(frame: str | bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_incoming(frame)


def test_a_message_nested_too_deep_is_refused() -> None:
    deep = (
        '{"type": "message", "agentId": "a", "message": [{"type": "custom", "content": ' + "[" * 80 + "]" * 80 + "}]}"
    )

    with pytest.raises(InvalidRequest, match="nested"):
        decode_incoming(deep)


def test_a_task_that_begins_names_its_message() -> None:
    opened = TaskOpened(
        task_id=TASK.id,
        at=CREATED,
        agent_id=TASK.agent_id,
        inbox=TASK.inbox,
        context_id="c",
        scope="s",
        dialect="hub",
        message=a_message(message_id=MessageId("m-7")),
    )

    assert outgoing(opened) == {"type": "task.created", "taskId": TASK_ID, "messageId": "m-7", "seq": 7}


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (TaskState.SUBMITTED, "task.updated"),
        (TaskState.WORKING, "task.updated"),
        (TaskState.INPUT_REQUIRED, "task.updated"),
        (TaskState.AUTH_REQUIRED, "task.updated"),
        (TaskState.COMPLETED, "task.completed"),
        (TaskState.FAILED, "task.failed"),
        (TaskState.CANCELED, "task.failed"),
        (TaskState.REJECTED, "task.failed"),
    ],
)
def test_a_change_of_state_and_a_snapshot_say_how_it_stands(state: TaskState, kind: str) -> None:
    task = a_task(state=state)
    told = {"type": kind, "task": task_object(task, agent_name), "seq": 7}

    assert outgoing(StateChanged(task_id=TASK.id, at=CREATED, state=state), task) == told
    assert outgoing(None, task) == told


@pytest.mark.parametrize(
    ("event", "is_told"),
    [
        (ArtifactAdded(task_id=TASK.id, at=CREATED, artifact=Artifact(artifact_id="a", parts=())), True),
        (MessageAdded(task_id=TASK.id, at=CREATED, message=a_message()), True),
        (MetadataChanged(task_id=TASK.id, at=CREATED, metadata={"request": {"k": 1}}), True),
        (MetadataChanged(task_id=TASK.id, at=CREATED, metadata={"question": None}), False),
        (ReceiptChanged(task_id=TASK.id, at=CREATED, step=ReceiptStep.TYPED, source="journal"), False),
        (AttentionChanged(task_id=TASK.id, at=CREATED, attention="look"), False),
        (TaskHidden(task_id=TASK.id, at=CREATED), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_shown_of_a_task_is_told_when_it_changes(event: TaskEvent, is_told: bool) -> None:
    told = outgoing(event)

    assert (told is not None) is is_told
    if told is not None:
        assert told["type"] == "task.updated"


def test_an_error_says_what_it_is_about() -> None:
    told = json.loads(encode_error(TaskNotFound("t"), seq=4, about={"taskId": "t"}))
    wrong = json.loads(encode_error(InvalidField("type", "is missing", hint="send one"), seq=0, about={}))

    assert told == {
        "type": "error",
        "error": {"code": "TASK_NOT_FOUND", "message": "no task 't'"},
        "taskId": "t",
        "seq": 4,
    }
    assert wrong["error"]["details"] == {"field": "type", "hint": "send one"}
