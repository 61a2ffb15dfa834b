"""Clauses of A2A about streams and subscriptions."""

from __future__ import annotations

from tests.conformance.a2a_row import BOTH, HTTP, READINGS, SPEC, first_event, refusal, row
from tests.conformance.a2a_speakers import Speaker
from tests.conformance.a2a_words import Message


@row(
    "stream",
    BOTH,
    f"{SPEC} §3.1.2",
    "a stream begins with the task, sends every change in order, and ends with the task",
)
def _(speaker: Speaker) -> None:
    events = speaker.events(Message("tck-stream-artifact-chunked"))

    assert events[0].kind == "task"
    assert events[0].state == "submitted"
    assert {event.kind for event in events[1:]} == {"status", "artifact"}
    assert [event.state for event in events if event.kind == "status"] == ["working", "working", "completed"]
    assert events[-1].state == "completed"
    assert len({event.task_id for event in events}) == 1
    chunks = [event.raw for event in events if event.kind == "artifact"]
    assert [(chunk.get("append", False), chunk.get("lastChunk", False)) for chunk in chunks] == [
        (False, False),
        (True, True),
    ]
    assert [chunk["artifact"]["parts"][0]["text"] for chunk in chunks] == ["chunk-1 ", "chunk-2"]


@row("stream-message", BOTH, f"{SPEC} §3.1.2", "a stream of an agent that answers with a message is that message alone")
def _(speaker: Speaker) -> None:
    (only,) = speaker.events(Message("tck-message-response"))

    assert only.kind == "message"


@row("stream-interrupted", BOTH, f"{SPEC} §11.7", "a stream of a message ends when the agent waits for input")
def _(speaker: Speaker) -> None:
    events = speaker.events(Message("tck-input-required"))

    assert events[-1].state == "input_required"
    if speaker.version == "0.3":
        assert events[-1].raw["final"] is True


@row("stream-follow-up", BOTH, f"{SPEC} §3.1.2", "a stream of a follow-up begins with the task, too")
def _(speaker: Speaker) -> None:
    asked = speaker.task(Message("tck-multi-turn"))
    events = speaker.events(Message(text="yes", task_id=asked.id))

    assert (events[0].kind, events[0].task_id) == ("task", asked.id)
    assert events[-1].state == "completed"


@row("stream-final", ("0.3",), "A2A 0.3", "the last status of a stream is final, and no other")
def _(speaker: Speaker) -> None:
    events = [event for event in speaker.events(Message("tck-stream-001")) if event.kind == "status"]

    assert [event.raw.get("final", False) for event in events] == [False] * (len(events) - 1) + [True]


@row("subscribe", BOTH, f"{SPEC} §3.1.6", "a subscription sends the task as it is, then each change")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-cancel"), immediately=True)
    with speaker.subscribe(task.id) as events:
        assert next(events).kind == "task"
        speaker.cancel(task.id)
        *_, last = events

    assert (last.kind, last.state) == ("status", "canceled")


@row(
    "subscribe-many",
    BOTH,
    f"{SPEC} §3.5.2",
    "all streams of a task send equal events; closing one does not affect the others",
)
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("test-resubscribe-message-id"), immediately=True)
    with speaker.subscribe(task.id) as one, speaker.subscribe(task.id) as other:
        firsts = next(one).kind, next(other).kind
        first_event(speaker.subscribe(task.id))
        speaker.cancel(task.id)
        ends = [event.id for event in one][-1], [event.id for event in other][-1]

    assert firsts == ("task", "task")
    assert ends[0] == ends[1]


@row("subscribe-terminal", BOTH, f"{SPEC} §3.1.6", "an ended task cannot be subscribed to, nor an unknown one")
def _(speaker: Speaker) -> None:
    done = speaker.task(Message())

    assert refusal(lambda: first_event(speaker.subscribe(done.id))) == "UnsupportedOperation"
    assert refusal(lambda: first_event(speaker.subscribe("no-such-task"))) == "TaskNotFound"


@row(
    "subscribe-interrupted",
    BOTH,
    f"{SPEC} §3.1.6",
    "a subscription to a task that waits for input stays open for later changes",
)
def _(speaker: Speaker) -> None:
    asked = speaker.task(Message("tck-multi-turn"))
    with speaker.subscribe(asked.id) as events:
        assert next(events).state == "input_required"
        speaker.task(Message(text="yes", task_id=asked.id))
        states = [event.state for event in events if event.kind == "status"]

    assert states[-1] == "completed"


@row("subscribe-resumed", BOTH, READINGS, "Last-Event-ID resumes a stream without a gap or a repeat", bindings=HTTP)
def _(speaker: Speaker) -> None:
    events = speaker.events(Message("tck-stream-artifact-chunked"))
    with speaker.subscribe(events[0].task_id, after=events[1].id) as rest:
        resumed = [(event.id, event.kind) for event in rest]

    assert resumed == [(event.id, event.kind) for event in events[2:]]
