"""From core facts to the words of A2A 1.0: plain functions, field by field, in ProtoJSON.

As protobuf does, a field that has its default is left out, except where the specification wants it printed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, assert_never

from synapse.core.events import ArtifactAdded, StateChanged, TaskOpened, Update
from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, Role, TextPart
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskState
from synapse.dialects.a2a_v1.metadata import encode_message_metadata, encode_metadata
from synapse.dialects.proto_json import instant, to_json

Wire = dict[str, Any]

STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "TASK_STATE_SUBMITTED",
    TaskState.WORKING: "TASK_STATE_WORKING",
    TaskState.INPUT_REQUIRED: "TASK_STATE_INPUT_REQUIRED",
    TaskState.AUTH_REQUIRED: "TASK_STATE_AUTH_REQUIRED",
    TaskState.COMPLETED: "TASK_STATE_COMPLETED",
    TaskState.FAILED: "TASK_STATE_FAILED",
    TaskState.CANCELED: "TASK_STATE_CANCELED",
    TaskState.REJECTED: "TASK_STATE_REJECTED",
}
ROLE_NAMES: Final[Mapping[Role, str]] = {Role.USER: "ROLE_USER", Role.AGENT: "ROLE_AGENT"}

DIRECT_MESSAGE: Final = "direct_message"
"""Why a task is completed whose agent answered with a plain message and meant no task."""


def encode_task(task: Task, history_length: int | None = None) -> bytes:
    return to_json(task_object(task, history_length))


def encode_sent(task: Task, history_length: int | None = None) -> bytes:
    """A SendMessageResponse."""
    return to_json(payload_object(task, history_length))


def encode_page(page: TaskPage, *, page_size: int, history_length: int | None, artifacts: bool) -> bytes:
    """A ListTasksResponse; all its fields are there even when they are empty (1.0 §3.1.4)."""
    tasks = [task_object(task, history_length, artifacts=artifacts) for task in page.tasks]
    return to_json({"tasks": tasks, "nextPageToken": page.next_cursor, "pageSize": page_size, "totalSize": page.total})


def encode_update(update: Update, history_length: int | None = None) -> bytes | None:
    """A StreamResponse, or None for what A2A has no words for: receipts, attention, metadata."""
    told = stream_object(update, history_length)
    return None if told is None else to_json(told)


def stream_object(update: Update, history_length: int | None = None) -> Wire | None:
    task, event = update.task, update.event
    match event:
        case None | TaskOpened():
            return payload_object(task, history_length)
        case StateChanged():
            return {
                "statusUpdate": {"taskId": task.id, "contextId": task.context_id, "status": status_object(task)},
            }
        case ArtifactAdded():
            return {"artifactUpdate": _artifact_update(task, event)}
        case _:
            return None


def payload_object(task: Task, history_length: int | None = None) -> Wire:
    """The task, or the message that its agent answered with instead of one."""
    if task.reason == DIRECT_MESSAGE and task.artifacts:
        # Without the task's id: the agent meant no task.
        return {"message": _said_by_agent(task, task.artifacts[-1].parts)}
    return {"task": task_object(task, history_length)}


def task_object(task: Task, history_length: int | None = None, *, artifacts: bool = True) -> Wire:
    """`history_length` None gives all messages, 0 none; the one that the status shows is not among them."""
    wire: Wire = {"id": task.id, "contextId": task.context_id, "status": status_object(task)}
    if artifacts and task.artifacts:
        wire["artifacts"] = [artifact_object(artifact) for artifact in task.artifacts]
    history = task.history[:-1] if _asks(task) else task.history
    if history_length is not None:
        history = history[-history_length:] if history_length else ()
    if history:
        wire["history"] = [message_object(message, task) for message in history]
    if task.metadata:
        wire["metadata"] = encode_metadata(task.metadata)
    return wire


def status_object(task: Task) -> Wire:
    """The state; with it what the agent asks, or a word on how it goes or why it ended."""
    wire: Wire = {"state": STATE_NAMES[task.state], "timestamp": instant(task.updated_at)}
    if _asks(task):
        wire["message"] = message_object(task.history[-1], task)
    elif task.note:
        wire["message"] = {**_said_by_agent(task, (TextPart(text=task.note),)), "taskId": task.id}
    return wire


def message_object(message: Message, task: Task) -> Wire:
    wire: Wire = {
        "messageId": message.message_id,
        "contextId": task.context_id,
        "taskId": task.id,
        "role": ROLE_NAMES[message.role],
        "parts": [part_object(part) for part in message.parts],
    }
    if message.metadata:
        wire["metadata"] = encode_message_metadata(message.metadata)
    if message.extensions:
        wire["extensions"] = message.extensions
    if message.reference_task_ids:
        wire["referenceTaskIds"] = message.reference_task_ids
    return wire


def artifact_object(artifact: Artifact) -> Wire:
    wire: Wire = {"artifactId": artifact.artifact_id}
    if artifact.name:
        wire["name"] = artifact.name
    if artifact.description:
        wire["description"] = artifact.description
    wire["parts"] = [part_object(part) for part in artifact.parts]
    if artifact.metadata:
        wire["metadata"] = artifact.metadata
    if artifact.extensions:
        wire["extensions"] = artifact.extensions
    return wire


def part_object(part: Part) -> Wire:
    match part:
        case TextPart():
            wire: Wire = {"text": part.text}
        case DataPart():
            wire = {"data": part.data}
        case FilePart(content=None):
            wire = {"url": part.url}
        case FilePart(content=content):
            wire = {"raw": base64.b64encode(content or b"").decode("ascii")}
        case _:
            assert_never(part)
    if part.metadata:
        wire["metadata"] = part.metadata
    if part.name:
        wire["filename"] = part.name
    if part.media_type:
        wire["mediaType"] = part.media_type
    return wire


def _artifact_update(task: Task, event: ArtifactAdded) -> Wire:
    wire: Wire = {"taskId": task.id, "contextId": task.context_id, "artifact": artifact_object(event.artifact)}
    if event.append:
        wire["append"] = True
    if event.last_chunk:
        wire["lastChunk"] = True
    return wire


def _asks(task: Task) -> bool:
    """The last message is what the agent waits for an answer to."""
    return task.state.is_interrupted and task.history[-1].role is Role.AGENT


def _said_by_agent(task: Task, parts: tuple[Part, ...]) -> Wire:
    """A message that the task itself does not keep: its id is that of the event that it tells of."""
    return {
        "messageId": f"{task.id}.{task.version}",
        "contextId": task.context_id,
        "role": ROLE_NAMES[Role.AGENT],
        "parts": [part_object(part) for part in parts],
    }
