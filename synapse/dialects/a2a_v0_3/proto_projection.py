"""From core facts to the words of A2A 0.3 in REST: ProtoJSON of its protobuf. Its clients refuse any other field."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final, assert_never

from synapse.core.events import ArtifactAdded, StateChanged, TaskOpened, Update
from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, Role, TextPart
from synapse.core.task import Task, TaskState
from synapse.dialects.a2a_v0_3.words import Wire, data_of, direct_answer, shown_history, status_message
from synapse.dialects.proto_json import instant, to_json

STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "TASK_STATE_SUBMITTED",
    TaskState.WORKING: "TASK_STATE_WORKING",
    TaskState.INPUT_REQUIRED: "TASK_STATE_INPUT_REQUIRED",
    TaskState.AUTH_REQUIRED: "TASK_STATE_AUTH_REQUIRED",
    TaskState.COMPLETED: "TASK_STATE_COMPLETED",
    TaskState.FAILED: "TASK_STATE_FAILED",
    TaskState.CANCELED: "TASK_STATE_CANCELLED",
    TaskState.REJECTED: "TASK_STATE_REJECTED",
}
ROLE_NAMES: Final[Mapping[Role, str]] = {Role.USER: "ROLE_USER", Role.AGENT: "ROLE_AGENT"}


def encode_task(task: Task, history_length: int | None = None) -> bytes:
    return to_json(task_object(task, history_length))


def encode_sent(task: Task, history_length: int | None = None) -> bytes:
    """A SendMessageResponse."""
    return to_json(payload_object(task, history_length))


def encode_update(update: Update, *, ends_when_asked: bool = False) -> bytes | None:
    """A StreamResponse, or None for what A2A has no words for. `final` is said of the last one."""
    task, event = update.task, update.event
    match event:
        case None | TaskOpened():
            return to_json(payload_object(task))
        case StateChanged():
            changed: Wire = {"taskId": task.id, "contextId": task.context_id, "status": status_object(task)}
            if task.state.is_terminal or (ends_when_asked and task.state.is_interrupted):
                changed["final"] = True
            return to_json({"statusUpdate": changed})
        case ArtifactAdded():
            return to_json({"artifactUpdate": _artifact_update(task, event)})
        case _:
            return None


def payload_object(task: Task, history_length: int | None = None) -> Wire:
    answer = direct_answer(task)
    if answer is None:
        return {"task": task_object(task, history_length)}
    return {"message": {**_message(answer), "contextId": task.context_id}}


def task_object(task: Task, history_length: int | None = None) -> Wire:
    wire: Wire = {"id": task.id, "contextId": task.context_id, "status": status_object(task)}
    if task.artifacts:
        wire["artifacts"] = [artifact_object(artifact) for artifact in task.artifacts]
    history = shown_history(task, history_length)
    if history:
        wire["history"] = [message_object(message, task) for message in history]
    if task.metadata:
        wire["metadata"] = task.metadata
    return wire


def status_object(task: Task) -> Wire:
    wire: Wire = {"state": STATE_NAMES[task.state], "timestamp": instant(task.updated_at)}
    message = status_message(task)
    if message is not None:
        wire["message"] = message_object(message, task)
    return wire


def message_object(message: Message, task: Task) -> Wire:
    return {**_message(message), "contextId": task.context_id, "taskId": task.id}


def artifact_object(artifact: Artifact) -> Wire:
    wire: Wire = {"artifactId": artifact.artifact_id, "parts": [part_object(part) for part in artifact.parts]}
    if artifact.name:
        wire["name"] = artifact.name
    if artifact.description:
        wire["description"] = artifact.description
    if artifact.metadata:
        wire["metadata"] = artifact.metadata
    if artifact.extensions:
        wire["extensions"] = artifact.extensions
    return wire


def part_object(part: Part) -> Wire:
    metadata = part.metadata
    match part:
        case TextPart():
            wire: Wire = {"text": part.text}
        case DataPart():
            data, metadata = data_of(part)
            wire = {"data": {"data": data}}
        case FilePart():
            wire = {"file": _file(part)}
        case _:
            assert_never(part)
    if metadata:
        wire["metadata"] = metadata
    return wire


def _message(message: Message) -> Wire:
    wire: Wire = {
        "messageId": message.message_id,
        "role": ROLE_NAMES[message.role],
        "content": [part_object(part) for part in message.parts],
    }
    if message.metadata:
        wire["metadata"] = message.metadata
    if message.extensions:
        wire["extensions"] = message.extensions
    return wire


def _artifact_update(task: Task, event: ArtifactAdded) -> Wire:
    wire: Wire = {"taskId": task.id, "contextId": task.context_id, "artifact": artifact_object(event.artifact)}
    if event.append:
        wire["append"] = True
    if event.last_chunk:
        wire["lastChunk"] = True
    return wire


def _file(part: FilePart) -> Wire:
    wire: Wire = (
        {"fileWithUri": part.url}
        if part.content is None
        else {"fileWithBytes": base64.b64encode(part.content).decode("ascii")}
    )
    if part.name:
        wire["name"] = part.name
    if part.media_type:
        wire["mimeType"] = part.media_type
    return wire
