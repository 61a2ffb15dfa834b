"""The JSON of tasks, of their events and of errors that the API of a host and the dashboard of a gateway share.

An error is `{"error": {"code", "message", "hint"}}` with an HTTP status.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

from synapse.core import errors
from synapse.core.errors import SynapseError
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
)
from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, TextPart
from synapse.core.task import Receipt, Task, TaskState
from synapse.core.task_metadata import shown_metadata
from synapse.dialects.dialect import entry_for
from synapse.dialects.proto_json import instant

Wire = dict[str, Any]
EncodeFile = Callable[[FilePart], Wire]
"""Returns what a file part's `file` has beside its name and media type."""

STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "submitted",
    TaskState.WORKING: "working",
    TaskState.INPUT_REQUIRED: "input_required",
    TaskState.AUTH_REQUIRED: "input_required",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "canceled",
    TaskState.REJECTED: "failed",
}

HTTP_STATUS: Final[Mapping[type[SynapseError], int]] = {
    errors.SynapseError: 500,
    errors.InvalidRequest: 400,
    errors.BodyTooLarge: 413,
    errors.BodyTooSlow: 408,
    errors.UnsupportedMediaType: 415,
    errors.MethodNotAllowed: 405,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.QueueFull: 429,
    errors.RateLimited: 429,
    errors.AccessDenied: 403,
    errors.Unauthenticated: 401,
    errors.AgentFailed: 503,
    errors.AgentNotResponding: 502,
    errors.ExternalAgentFailed: 502,
    errors.WaitTimedOut: 504,
    errors.WaitingForPerson: 409,
    errors.StoreFailed: 503,
}


def http_status(kind: type[SynapseError]) -> int:
    """Returns the HTTP status of the error class, or of its nearest ancestor that has one."""
    return entry_for(kind, HTTP_STATUS)


def whole_file(part: FilePart) -> Wire:
    """Returns the bytes of a file in base64, or its address."""
    if part.content is None:
        return {"uri": part.url}
    return {"bytes": base64.b64encode(part.content).decode("ascii")}


def task_object(task: Task, encode_file: EncodeFile = whole_file) -> Wire:
    """Returns a task. One with more than its first message has all of them in `history`."""
    wire: Wire = {
        "id": task.id,
        "context_id": task.context_id or None,
        "status": STATE_NAMES[task.state],
        "message": message_object(task.message, encode_file),
        "artifacts": [artifact_object(artifact, encode_file) for artifact in task.artifacts],
        "metadata": _task_metadata(task),
        "created_at": instant(task.created_at),
        "updated_at": instant(task.updated_at),
    }
    if len(task.history) > 1:
        wire["history"] = [message_object(message, encode_file) for message in task.history]
    return wire


def message_object(message: Message, encode_file: EncodeFile = whole_file) -> Wire:
    wire: Wire = {"role": message.role.value, "parts": [_part(part, encode_file) for part in message.parts]}
    if message.metadata:
        wire["metadata"] = message.metadata
    return wire


def artifact_object(artifact: Artifact, encode_file: EncodeFile = whole_file) -> Wire:
    wire: Wire = {
        "artifact_id": artifact.artifact_id,
        "name": artifact.name,
        "parts": [_part(part, encode_file) for part in artifact.parts],
        "metadata": artifact.metadata,
    }
    if artifact.description:
        wire["description"] = artifact.description
    return wire


def receipt_object(receipt: Receipt) -> Wire:
    return {
        "step": receipt.step.value,
        "at": instant(receipt.at),
        "source": receipt.source,
        "evidence": receipt.evidence,
    }


def event_fields(event: TaskEvent, encode_file: EncodeFile = whole_file) -> tuple[str, Wire]:  # noqa: C901, PLR0911 - one case per event
    """Returns the event's name on the wire, and its fields."""
    match event:
        case TaskOpened():
            return "task_opened", {"message": message_object(event.message, encode_file)}
        case StateChanged():
            return "state_changed", {
                "status": STATE_NAMES[event.state],
                "reason": event.reason,
                "note": event.note,
            }
        case MessageAdded():
            return "message_added", {"message": message_object(event.message, encode_file)}
        case ArtifactAdded():
            return "artifact_added", {
                "artifact": artifact_object(event.artifact, encode_file),
                "append": event.append,
                "last_chunk": event.last_chunk,
            }
        case ReceiptChanged():
            return "receipt_changed", {
                "step": event.step.value,
                "source": event.source,
                "evidence": event.evidence,
            }
        case MetadataChanged():
            return "metadata_changed", {"metadata": event.metadata}
        case AttentionChanged():
            return "attention_changed", {"attention": event.attention}
        case TaskHidden():
            return "task_hidden", {}
        case _:
            assert_never(event)


def _task_metadata(task: Task) -> Wire:
    wire: Wire = {**shown_metadata(task.metadata), "priority": task.priority}
    if task.receipts:
        wire["receipt"] = task.receipts[-1].step.value
        wire["receipts"] = [receipt_object(receipt) for receipt in task.receipts]
    if task.reason:
        wire["reason"] = task.reason
    if task.note:
        wire["note"] = task.note
    if task.attention:
        wire["attention"] = task.attention
    return wire


def _part(part: Part, encode_file: EncodeFile) -> Wire:
    match part:
        case TextPart():
            wire: Wire = {"type": "text", "text": part.text, **_label(part)}
        case DataPart():
            wire = {"type": "data", "data": part.data, **_label(part)}
        case FilePart():
            wire = {"type": "file", "file": {**_label(part), **encode_file(part)}}
        case _:
            assert_never(part)
    if part.metadata:
        wire["metadata"] = part.metadata
    return wire


def _label(part: Part) -> Wire:
    label: Wire = {}
    if part.name:
        label["name"] = part.name
    if part.media_type:
        label["mimeType"] = part.media_type
    return label
