"""Streams of the hub send the text as it grows and can be resumed; its WebSocket sends tasks."""

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
from synapse.core.message import Artifact, MessageId, Role, TextPart
from synapse.core.requests import ForAgent, SendMessage, SubscribeTask
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.dialects.dialect import StreamCall, WireEvent
from synapse.dialects.hub.encode import task_object
from synapse.dialects.hub.stream import GrowingText, Incoming, decode_incoming, encode_error, encode_pong, encode_update
from tests.unit.dialects.hub.samples import (
    AGENT,
    CREATED,
    QUESTION,
    TASK_ID,
    a_message,
    a_task,
    agent_name,
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
    """Returns the names and data of an event and of those that follow it."""
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


def test_only_new_text_is_sent() -> None:
    stream = a_stream()

    assert tell(stream, 1, None, a_task(state=TaskState.SUBMITTED)) == []
    assert tell(stream, 2, ADDED, said("The ")) == [partial("The ")]
    assert tell(stream, 3, ADDED, said("The ", "weather")) == [partial("weather")]
    assert tell(stream, 4, ADDED, said("The weather")) == []
    assert tell(stream, 5, ended(a_task()), said("The weather", state=TaskState.COMPLETED)) == [COMPLETE]


def test_an_immediate_answer_is_sent_with_the_end() -> None:
    done = said("sun", state=TaskState.COMPLETED)

    assert tell(a_stream(), 9, None, done) == [partial("sun"), COMPLETE]


def test_a_text_that_was_rewritten_takes_the_place_of_the_old_one() -> None:
    stream = a_stream()
    tell(stream, 1, ADDED, said("Thinking…"))

    assert tell(stream, 2, ADDED, said("The weather")) == [("update", {"type": "replace", "content": "The weather"})]
    assert tell(stream, 3, ADDED, said("The weather", " is")) == [partial(" is")]
    assert tell(stream, 4, ADDED, said("T")) == [("update", {"type": "replace", "content": "T"})]


def test_the_agents_question_is_sent_and_ends_the_stream() -> None:
    stream = a_stream()
    question = a_message(TextPart(text="where?"), role=Role.AGENT)
    asked = a_task(history=(a_message(), question))
    added = MessageAdded(task_id=asked.id, at=CREATED, message=question)
    waiting = a_task(history=asked.history, state=TaskState.INPUT_REQUIRED)

    assert tell(stream, 2, added, asked) == [partial("where?")]
    assert tell(stream, 3, ended(waiting), waiting) == [COMPLETE]
    assert tell(a_subscription(), 3, ended(waiting), waiting) == []


def test_messages_of_people_are_not_sent() -> None:
    added = MessageAdded(task_id=a_task().id, at=CREATED, message=a_message())

    assert tell(a_stream(), 2, added, a_task()) == []


def test_a_snapshot_has_only_the_agents_messages_since_the_users_last_one() -> None:
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


def test_other_updates_are_not_sent() -> None:
    changed = MetadataChanged(task_id=a_task().id, at=CREATED, metadata={"k": 1})

    assert tell(a_stream(), 5, changed, a_task()) == []
    assert tell(a_stream(), 5, changed, a_task(state=TaskState.COMPLETED)) == []


def test_a_reader_resumes_with_the_text_that_it_lacks() -> None:
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


def test_a_reader_of_half_an_update_gets_the_other_half() -> None:
    done = said("sun", state=TaskState.COMPLETED)
    both = a_stream().encode(Update(9, None, done))
    assert both is not None
    assert both.then is not None
    assert (both.id.split(".")[1], both.then.id.split(".")[1]) == ("8", "9")

    assert tell(a_subscription(both.id), 9, ended(done), done) == [COMPLETE]


def test_several_texts_are_sent_as_lines() -> None:
    stream = a_stream()
    one, other = an_artifact(TextPart(text="one")), an_artifact(TextPart(text="two"), artifact_id="a-2")
    empty = an_artifact(artifact_id="a-3")

    assert tell(stream, 1, ADDED, a_task(artifacts=(one, empty))) == [partial("one")]
    assert tell(stream, 2, ADDED, a_task(artifacts=(one, empty, other))) == [partial("\ntwo")]


def test_text_that_is_not_utf_8_does_not_break_the_stream() -> None:
    assert tell(a_stream(), 1, ADDED, said("\udcff")) == [partial("?")]


def test_a_text_that_was_read_off_the_screen_says_so() -> None:
    shown = an_artifact(TextPart(text="fine"), metadata={"source": "screen", "inferred": True, "partial": True})
    event = GrowingText()(Update(2, None, a_task(artifacts=(shown,))))

    assert event is not None
    assert json.loads(event.data) == {"type": "partial", "content": "fine", "source": "screen"}


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


def test_a_task_is_followed_from_now_or_after_a_seq() -> None:
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
def test_an_invalid_frame_is_refused(frame: str | bytes) -> None:
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
def test_a_change_of_state_and_a_snapshot_have_the_task(state: TaskState, kind: str) -> None:
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
def test_visible_changes_of_a_task_are_sent(event: TaskEvent, is_told: bool) -> None:
    told = outgoing(event)

    assert (told is not None) is is_told
    if told is not None:
        assert told["type"] == "task.updated"


def test_an_error_names_its_task_or_message() -> None:
    told = json.loads(encode_error(TaskNotFound("t"), seq=4, about={"taskId": "t"}))
    wrong = json.loads(encode_error(InvalidField("type", "is missing", hint="send one"), seq=0, about={}))

    assert told == {
        "type": "error",
        "error": {"code": "TASK_NOT_FOUND", "message": "no task 't'"},
        "taskId": "t",
        "seq": 4,
    }
    assert wrong["error"]["details"] == {"field": "type", "hint": "send one"}
