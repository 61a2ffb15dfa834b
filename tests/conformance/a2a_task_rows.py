"""Clauses of A2A about messages and tasks."""

from __future__ import annotations

from typing import Any

from tests.conformance.a2a_row import BOTH, HOST, NEW, READINGS, SPEC, first_event, refusal, row, unique
from tests.conformance.a2a_speakers import JsonRpc10, Rest10, Speaker
from tests.conformance.a2a_words import Message, Task, encoded, plain_part


@row("send-blocks", BOTH, f"{SPEC} §3.2.2", "a send waits until the task has ended")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-long-running"))

    assert task.state == "completed"
    assert task.parts == [{"text": "long running work finished"}]


@row("send-blocks-interrupted", BOTH, f"{SPEC} §3.2.2", "a send returns when the agent waits for input")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-input-required"))

    assert (task.state, task.said) == ("input_required", "Input is required.")
    assert speaker.task(Message("tck-auth-required")).state == "auth_required"


@row(
    "send-immediately",
    BOTH,
    f"{SPEC} §3.2.2",
    "a send with returnImmediately, or without blocking, returns at once with the task in progress",
)
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


@row("parts", BOTH, f"{SPEC} §4.1.6", "the fields of a message are stored as they were sent")
def _(speaker: Speaker) -> None:
    parts: list[dict[str, Any]] = [
        {"text": "look \u65e5\u672c\u8a9e \N{GRINNING FACE}"},
        {"raw": encoded(b"\x00\xff"), "filename": "a.bin", "mediaType": "application/octet-stream"},
        {"url": "https://example.com/a"},
        {"data": {"deep": [{"snake_case": None, "n": 1.5}]}},
    ]
    message = speaker.get(speaker.task(Message(parts=parts)).id).raw["history"][0]

    assert [plain_part(part) for part in message.get("parts", message.get("content"))] == parts


@row("part-types", BOTH, f"{SPEC} §3.1.1", "a part of a type that the agent does not accept is refused")
def _(speaker: Speaker) -> None:
    parts = [{"text": "look"}, {"raw": encoded(b"tck"), "mediaType": "application/x-unsupported-tck-type"}]

    assert refusal(lambda: speaker.send(Message(parts=parts))) == "ContentTypeNotSupported"


@row("part-types-card", BOTH, f"{SPEC} §4.4.1", "the card names the types of parts that the agent accepts")
def _(speaker: Speaker) -> None:
    shown = speaker.client.request("GET", f"{speaker.mount}/.well-known/agent-card.json").json["defaultInputModes"]
    parts = [{"raw": encoded(b"tck"), "mediaType": media_type} for media_type in shown]

    assert shown == ["text/plain", "application/json", "application/octet-stream"]
    assert speaker.task(Message(parts=parts)).state == "completed"


@row("part-types-ours", BOTH, READINGS, "the synapse dialect refuses such parts with an error of its own", only=HOST)
def _(speaker: Speaker) -> None:
    image = {"type": "file", "file": {"name": "a.png", "mimeType": "image/png", "bytes": encoded(b"tck")}}
    body = {"message": {"role": "user", "parts": [image]}}
    reply = speaker.client.request("POST", "/tasks/send", body)

    assert (reply.status, reply.json["error"]["code"]) == (415, "unsupported_media_type")


@row("metadata-names", NEW, f"{SPEC} §5.5", "keys that Synapse writes into the metadata of a task are in camelCase")
def _(speaker: Speaker) -> None:
    metadata = speaker.task(Message()).raw["metadata"]

    assert metadata["sender"].keys() == {"senderId", "senderType", "senderEndpoint"}
    assert not [name for name in metadata if "_" in name]


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


@row("cues", BOTH, "docs/examples/conformance.toml", "an id that a kit uses as a cue makes a new message each time")
def _(speaker: Speaker) -> None:
    ask, answer = unique("tck-input-required"), unique("tck-complete-task")
    first, second = (speaker.task(Message(ask, "same", exact=True)) for _ in range(2))
    ends = [speaker.task(Message(answer, task.id, exact=True, task_id=task.id)) for task in (first, second)]

    assert first.id != second.id
    assert [end.state for end in ends] == ["completed", "completed"]


@row("cancel", BOTH, f"{SPEC} §3.1.5", "a task that has not ended can be canceled, once")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-cancel"), immediately=True)

    assert speaker.cancel(task.id).state == "canceled"
    assert speaker.get(task.id).state == "canceled"
    assert refusal(lambda: speaker.cancel(task.id)) == "TaskNotCancelable"
    assert refusal(lambda: speaker.cancel("no-such-task")) == "TaskNotFound"


@row("cancel-waiting", BOTH, f"{SPEC} §3.1.5", "a task that waits for input can be canceled")
def _(speaker: Speaker) -> None:
    assert speaker.cancel(speaker.task(Message("tck-input-required")).id).state == "canceled"


@row("extended-card", BOTH, f"{SPEC} §3.1.11", "an agent without an extended card says so", only=HOST)
def _(speaker: Speaker) -> None:
    expected = "UnsupportedOperation" if speaker.version == "1.0" else "ExtendedCardMissing"

    assert refusal(speaker.extended_card) == expected


@row("one-task", BOTH, READINGS, "a task made in one dialect is the same task in all others", only=HOST)
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-artifact-text"))
    ours = speaker.client.request("GET", f"/tasks/{task.id}").json

    assert (ours["id"], ours["context_id"], ours["status"]) == (task.id, task.context_id, "completed")
    assert ours["artifacts"][0]["parts"] == [{"type": "text", "text": "Generated text content"}]
    for other in (JsonRpc10(speaker.client), Rest10(speaker.client)):
        seen = other.get(task.id)
        assert (seen.id, seen.state, seen.parts) == (task.id, task.state, task.parts)


@row("ours", BOTH, READINGS, "a task made in the synapse dialect is read in A2A", only=HOST)
def _(speaker: Speaker) -> None:
    body = {"message": {"role": "user", "parts": [{"type": "text", "text": "from a shell"}]}}
    made = speaker.client.request("POST", "/tasks/send", body).json["task"]
    task: Task = speaker.get(made["id"])

    assert task.history == ["from a shell"]
