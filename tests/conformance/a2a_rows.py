"""Each clause of A2A that a host must keep, as a row: id, versions, source, sentence, check.

The rows are spoken by every binding of the versions that they name, to the agent of docs/examples/conformance.toml.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from tests.conformance.a2a_speakers import JsonRpc10, Message, Refused, Rest10, Speaker, Task, encoded, plain_part

BOTH: Final = ("1.0", "0.3")
NEW: Final = ("1.0",)
SPEC: Final = "A2A 1.0.1"
READINGS: Final = "contracts/README.md"


@dataclass(frozen=True)
class Row:
    """One clause."""

    id: str
    versions: tuple[str, ...]
    source: str
    sentence: str
    check: Callable[[Any], None]


ROWS: Final[list[Row]] = []


def row(id: str, versions: tuple[str, ...], source: str, sentence: str) -> Callable[[Callable[[Any], None]], None]:  # noqa: A002 - its name in the table
    def add(check: Callable[[Any], None]) -> None:
        ROWS.append(Row(id, versions, source, sentence, check))

    return add


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4()}"


def refusal(act: Callable[[], object]) -> str:
    """The word of the error that `act` is answered with."""
    with pytest.raises(Refused) as refused:
        act()
    return str(refused.value)


def first_event(stream: Any) -> None:
    with stream as events:
        next(events)


@row("send-blocks", BOTH, f"{SPEC} §3.2.2", "a send waits until the task has ended")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-long-running"))

    assert task.state == "completed"
    assert task.parts == [{"text": "long running work finished"}]


@row("send-blocks-interrupted", BOTH, f"{SPEC} §3.2.2", "a send waits no longer when the agent waits for somebody")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-input-required"))

    assert (task.state, task.said) == ("input_required", "Input is required.")
    assert speaker.task(Message("tck-auth-required")).state == "auth_required"


@row("send-immediately", BOTH, f"{SPEC} §3.2.2", "a send that is told so returns at once with the task in progress")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-cancel"), immediately=True)

    assert task.state in ("submitted", "working")
    speaker.cancel(task.id)


@row("send-message", BOTH, f"{SPEC} §3.1.1", "an agent may answer with a message instead of a task")
def _(speaker: Speaker) -> None:
    assert speaker.send(Message("tck-message-response")) == "Direct message response"


@row("ids", BOTH, f"{SPEC} §3.4", "the server makes the ids of tasks, and of contexts that the client does not name")
def _(speaker: Speaker) -> None:
    one, other = speaker.task(Message()), speaker.task(Message(context_id="my-context"))

    assert one.id != other.id
    assert one.context_id
    assert one.context_id != other.context_id == "my-context"


@row("ends", BOTH, f"{SPEC} §4.1.3", "a task that is rejected or fails says why")
def _(speaker: Speaker) -> None:
    rejected, failed = speaker.task(Message("tck-reject-task")), speaker.task(Message("tck-task-failure"))

    assert (rejected.state, rejected.said) == ("rejected", "rejected")
    assert (failed.state, failed.said) == ("failed", "failed as asked")


@row("artifacts", BOTH, f"{SPEC} §4.1.6", "artifacts carry texts, files by their bytes or their address, and data")
def _(speaker: Speaker) -> None:
    label = {"filename": "output.txt", "mediaType": "text/plain"}

    assert speaker.task(Message("tck-artifact-text")).parts == [{"text": "Generated text content"}]
    assert speaker.task(Message("tck-artifact-file-x")).parts == [{"raw": encoded(b"tck"), **label}]
    assert speaker.task(Message("tck-artifact-file-url")).parts == [{"url": "https://example.com/output.txt", **label}]
    assert speaker.task(Message("tck-artifact-data")).parts == [{"data": {"key": "value", "count": 42}}]


@row("parts", BOTH, f"{SPEC} §4.1.6", "what a message carries is kept as it was sent")
def _(speaker: Speaker) -> None:
    parts: list[dict[str, Any]] = [
        {"text": "look \u65e5\u672c\u8a9e \N{GRINNING FACE}"},
        {"raw": encoded(b"\x00\xff"), "filename": "a.bin", "mediaType": "application/x"},
        {"url": "https://example.com/a"},
        {"data": {"deep": [{"snake_case": None, "n": 1.5}]}},
    ]
    message = speaker.get(speaker.task(Message(parts=parts)).id).raw["history"][0]

    assert [plain_part(part) for part in message.get("parts", message.get("content"))] == parts


@row("get", BOTH, f"{SPEC} §3.1.3", "a task is read by its id")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message())

    assert speaker.get(task.id) == task
    assert refusal(lambda: speaker.get("no-such-task")) == "TaskNotFound"
    assert refusal(lambda: speaker.get(task.id[:8])) == "TaskNotFound"


@row("history-length", BOTH, f"{SPEC} §3.2.4", "historyLength cuts the history to the most recent messages")
def _(speaker: Speaker) -> None:
    asked = speaker.task(Message("tck-multi-turn", "one"))
    done = speaker.task(Message(text="two", task_id=asked.id))

    assert speaker.get(done.id).history == ["one", "Go on.", "two"]
    assert speaker.get(done.id, history=2).history == ["Go on.", "two"]
    assert speaker.task(Message(), history=1).history == ["hello"]


@row("history-length-zero", NEW, f"{SPEC} §3.2.4", "a historyLength of 0 leaves the history out")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message(), history=0)

    assert "history" not in task.raw
    assert "history" not in speaker.get(task.id, history=0).raw


@row("follow-up", BOTH, f"{SPEC} §3.4.3", "a message that names a task goes on with it; its context is inferred")
def _(speaker: Speaker) -> None:
    asked = speaker.task(Message("tck-multi-turn"))
    done = speaker.task(Message(text="yes", task_id=asked.id))

    assert (done.id, done.context_id, done.state) == (asked.id, asked.context_id, "completed")
    assert done.parts == [{"text": "done: yes"}]


@row("follow-up-context", BOTH, f"{SPEC} §3.4.3", "a context that is not the task's is refused")
def _(speaker: Speaker) -> None:
    asked = speaker.task(Message("tck-multi-turn"))

    assert refusal(lambda: speaker.send(Message(task_id=asked.id, context_id="another"))) == "InvalidParams"
    assert speaker.get(asked.id).state == "input_required"
    same = Message(text="ok", task_id=asked.id, context_id=asked.context_id)
    assert speaker.task(same).state == "completed"


@row("follow-up-terminal", BOTH, f"{SPEC} §3.1.1", "a task that has ended takes no messages")
def _(speaker: Speaker) -> None:
    done = speaker.task(Message())

    assert refusal(lambda: speaker.send(Message(task_id=done.id))) == "UnsupportedOperation"
    assert refusal(lambda: first_event(speaker.stream(Message(task_id=done.id)))) == "UnsupportedOperation"


@row("follow-up-unknown", BOTH, f"{SPEC} §3.4.2", "clients make no task ids")
def _(speaker: Speaker) -> None:
    assert refusal(lambda: speaker.send(Message(task_id="my-own-id"))) == "TaskNotFound"
    assert refusal(lambda: speaker.get("my-own-id")) == "TaskNotFound"


@row(
    "again",
    BOTH,
    "design.md §4",
    "the same message again returns the task that it made; with other words it is refused",
)
def _(speaker: Speaker) -> None:
    cue = unique("again")
    first, second = (speaker.task(Message(cue, "same", exact=True)) for _ in range(2))

    assert first.id == second.id
    assert refusal(lambda: speaker.send(Message(cue, "other", exact=True))) == "InvalidParams"


@row("cancel", BOTH, f"{SPEC} §3.1.5", "a task that has not ended can be canceled, once")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-cancel"), immediately=True)

    assert speaker.cancel(task.id).state == "canceled"
    assert speaker.get(task.id).state == "canceled"
    assert refusal(lambda: speaker.cancel(task.id)) == "TaskNotCancelable"
    assert refusal(lambda: speaker.cancel("no-such-task")) == "TaskNotFound"


@row("cancel-waiting", BOTH, f"{SPEC} §3.1.5", "a task that waits for somebody can be canceled")
def _(speaker: Speaker) -> None:
    assert speaker.cancel(speaker.task(Message("tck-input-required")).id).state == "canceled"


@row("stream", BOTH, f"{SPEC} §3.1.2", "a stream begins with the task, tells every change in order, and ends with it")
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


@row("stream-interrupted", BOTH, f"{SPEC} §11.7", "a stream of a message ends when the agent waits for somebody")
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


@row("subscribe", BOTH, f"{SPEC} §3.1.6", "whoever subscribes gets the task as it is, then what happens to it")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-cancel"), immediately=True)
    with speaker.subscribe(task.id) as events:
        assert next(events).kind == "task"
        speaker.cancel(task.id)
        *_, last = events

    assert (last.kind, last.state) == ("status", "canceled")


@row("subscribe-many", BOTH, f"{SPEC} §3.5.2", "all streams of a task tell the same; one that is closed disturbs none")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("test-resubscribe-message-id"), immediately=True)
    with speaker.subscribe(task.id) as one, speaker.subscribe(task.id) as other:
        firsts = next(one).kind, next(other).kind
        first_event(speaker.subscribe(task.id))
        speaker.cancel(task.id)
        ends = [event.id for event in one][-1], [event.id for event in other][-1]

    assert firsts == ("task", "task")
    assert ends[0] == ends[1]


@row("subscribe-terminal", BOTH, f"{SPEC} §3.1.6", "a task that has ended cannot be subscribed to, nor one that is not")
def _(speaker: Speaker) -> None:
    done = speaker.task(Message())

    assert refusal(lambda: first_event(speaker.subscribe(done.id))) == "UnsupportedOperation"
    assert refusal(lambda: first_event(speaker.subscribe("no-such-task"))) == "TaskNotFound"


@row("subscribe-interrupted", BOTH, f"{SPEC} §3.1.6", "a subscription to a task that waits stays open for what comes")
def _(speaker: Speaker) -> None:
    asked = speaker.task(Message("tck-multi-turn"))
    with speaker.subscribe(asked.id) as events:
        assert next(events).state == "input_required"
        speaker.task(Message(text="yes", task_id=asked.id))
        states = [event.state for event in events if event.kind == "status"]

    assert states[-1] == "completed"


@row("subscribe-resumed", BOTH, READINGS, "Last-Event-ID resumes a stream without a gap or a repeat")
def _(speaker: Speaker) -> None:
    events = speaker.events(Message("tck-stream-artifact-chunked"))
    with speaker.subscribe(events[0].task_id, after=events[1].id) as rest:
        resumed = [(event.id, event.kind) for event in rest]

    assert resumed == [(event.id, event.kind) for event in events[2:]]


@row("push", BOTH, f"{SPEC} §3.3.4", "an agent without push notifications says so")
def _(speaker: Speaker) -> None:
    assert refusal(lambda: speaker.set_push("any-task")) == "PushNotSupported"


@row("extended-card", BOTH, f"{SPEC} §3.1.11", "an agent without an extended card says so")
def _(speaker: Speaker) -> None:
    expected = "UnsupportedOperation" if speaker.version == "1.0" else "ExtendedCardMissing"

    assert refusal(speaker.extended_card) == expected


@row("list", NEW, f"{SPEC} §3.1.4", "tasks are listed, newest first, with all fields of the answer")
def _(speaker: JsonRpc10 | Rest10) -> None:
    context = unique("list")
    made = [speaker.task(Message(context_id=context)) for _ in range(3)]
    page = speaker.list(contextId=context)

    assert [task["id"] for task in page["tasks"]] == [task.id for task in reversed(made)]
    assert (page["nextPageToken"], page["pageSize"], page["totalSize"]) == ("", 50, 3)
    times = [task["status"]["timestamp"] for task in page["tasks"]]
    assert times == sorted(times, reverse=True)


@row("list-empty", NEW, f"{SPEC} §3.1.4", "an empty page has its fields, too")
def _(speaker: JsonRpc10 | Rest10) -> None:
    assert speaker.list(contextId="nobody-has-this", pageSize=7) == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 7,
        "totalSize": 0,
    }


@row("list-pages", NEW, f"{SPEC} §3.1.4", "pages follow each other by their tokens, without a gap or a repeat")
def _(speaker: JsonRpc10 | Rest10) -> None:
    context = unique("pages")
    made = [speaker.task(Message(context_id=context)).id for _ in range(5)]
    seen: list[str] = []
    token = ""
    for _ in range(3):
        page = speaker.list(contextId=context, pageSize=2, pageToken=token)
        seen += [task["id"] for task in page["tasks"]]
        assert page["totalSize"] == 5
        token = page["nextPageToken"]

    assert seen == made[::-1]
    assert token == ""


@row("list-filters", NEW, f"{SPEC} §3.1.4", "tasks are filtered by state and by the time of their status")
def _(speaker: JsonRpc10 | Rest10) -> None:
    context = unique("filters")
    asked = speaker.task(Message("tck-input-required", context_id=context))
    done = speaker.task(Message(context_id=context))
    waiting = speaker.list(contextId=context, status="TASK_STATE_INPUT_REQUIRED")
    since = speaker.list(contextId=context, statusTimestampAfter=done.raw["status"]["timestamp"])

    assert [task["id"] for task in waiting["tasks"]] == [asked.id]
    assert [task["id"] for task in since["tasks"]] == [done.id]


@row("list-parts", NEW, f"{SPEC} §3.1.4", "artifacts are listed only when asked for, the history as far as asked for")
def _(speaker: JsonRpc10 | Rest10) -> None:
    context = unique("parts")
    speaker.task(Message(context_id=context))

    (bare,) = speaker.list(contextId=context, historyLength=0)["tasks"]
    (full,) = speaker.list(contextId=context, includeArtifacts=True)["tasks"]
    assert bare.keys().isdisjoint({"artifacts", "history"})
    assert full["artifacts"]
    assert full["history"]


@row("list-refused", NEW, f"{SPEC} §3.1.4", "filters that mean nothing are refused")
def _(speaker: JsonRpc10 | Rest10) -> None:
    mistakes: list[dict[str, Any]] = [{"pageSize": 0}, {"pageSize": 101}, {"status": "running"}, {"pageToken": "mine"}]
    for filters in mistakes:
        assert refusal(partial(speaker.list, **filters)) == "InvalidParams"


@row("one-task", BOTH, READINGS, "a task made in one dialect is the same task in all others")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-artifact-text"))
    ours = speaker.client.request("GET", f"/tasks/{task.id}").json

    assert (ours["id"], ours["context_id"], ours["status"]) == (task.id, task.context_id, "completed")
    assert ours["artifacts"][0]["parts"] == [{"type": "text", "text": "Generated text content"}]
    for other in (JsonRpc10(speaker.client), Rest10(speaker.client)):
        seen = other.get(task.id)
        assert (seen.id, seen.state, seen.parts) == (task.id, task.state, task.parts)


@row("ours", BOTH, READINGS, "a task made in the synapse dialect is read in A2A")
def _(speaker: Speaker) -> None:
    body = {"message": {"role": "user", "parts": [{"type": "text", "text": "from a shell"}]}}
    made = speaker.client.request("POST", "/tasks/send", body).json["task"]
    task: Task = speaker.get(made["id"])

    assert task.history == ["from a shell"]
