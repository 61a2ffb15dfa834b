"""Encodes tasks and agent cards for A2A 1.0, in ProtoJSON.

A field that has its default is left out, as protobuf does, except where the specification requires it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never, cast

from synapse.core.caller import API_KEY_HEADER, AuthMethods
from synapse.core.events import ArtifactAdded, StateChanged, TaskOpened, Update
from synapse.core.extension import Extensions
from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, Role, TextPart
from synapse.core.requests import CAPABILITIES
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskState
from synapse.core.task_metadata import shown_metadata
from synapse.dialects.proto_json import instant, to_json

Wire = dict[str, Any]

VERSION: Final = "1.0"

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
"""The reason of a completed task whose agent answered with a plain message instead of a task."""

_TASK_KEYS: Final[Mapping[str, str]] = {
    "sender_verified": "senderVerified",
    "sender_task_id": "senderTaskId",
    "sender_inbox": "senderInbox",
    "response_expected": "responseExpected",
    "in_reply_to": "inReplyTo",
    "waits_for": "waitsFor",
    "waits_for_inbox": "waitsForInbox",
    "asks_person": "asksPerson",
    "asked_in": "askedIn",
    "waiter_left": "waiterLeft",
    "waiter_released": "waiterReleased",
    "delivered_as": "deliveredAs",
}
"""The keys of a task's metadata that Synapse writes, in camelCase. All other keys stay unchanged."""
_INNER_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "sender": {"sender_id": "senderId", "sender_type": "senderType", "sender_endpoint": "senderEndpoint"},
    "question": {"takes_text": "takesText", "asked_at": "askedAt"},
}
"""The keys inside of those values that are objects."""
_MESSAGE_KEYS: Final[Mapping[str, str]] = {"answers_question": "answersQuestion", "typed_from": "typedFrom"}
"""The keys of a message's metadata that Synapse writes: which question it answered, and who added it."""


def encode_task(task: Task, history_length: int | None = None) -> bytes:
    return to_json(task_object(task, history_length))


def encode_sent(task: Task, history_length: int | None = None) -> bytes:
    """Returns a SendMessageResponse."""
    return to_json(payload_object(task, history_length))


def encode_page(page: TaskPage, *, page_size: int, history_length: int | None, artifacts: bool) -> bytes:
    """Returns a ListTasksResponse. It has all fields even when they are empty (1.0 §3.1.4)."""
    tasks = [task_object(task, history_length, artifacts=artifacts) for task in page.tasks]
    return to_json({"tasks": tasks, "nextPageToken": page.next_cursor, "pageSize": page_size, "totalSize": page.total})


def encode_update(update: Update, history_length: int | None = None) -> bytes | None:
    """Returns a StreamResponse, or None for updates that A2A cannot express: receipts, attention, metadata."""
    wire = stream_object(update, history_length)
    return None if wire is None else to_json(wire)


def stream_object(update: Update, history_length: int | None = None) -> Wire | None:
    task, event = update.task, update.event
    match event:
        case None | TaskOpened():
            return payload_object(task, history_length)
        case StateChanged():
            return {"statusUpdate": {"taskId": task.id, "contextId": task.context_id, "status": status_object(task)}}
        case ArtifactAdded():
            added: Wire = {"taskId": task.id, "contextId": task.context_id, "artifact": artifact_object(event.artifact)}
            if event.append:
                added["append"] = True
            if event.last_chunk:
                added["lastChunk"] = True
            return {"artifactUpdate": added}
        case _:
            return None


def payload_object(task: Task, history_length: int | None = None) -> Wire:
    """Returns the task, or the message that the agent answered with instead of a task."""
    if task.reason == DIRECT_MESSAGE and task.artifacts:
        # Without the task's id: the agent meant no task.
        return {"message": _agent_message(task, task.artifacts[-1].parts)}
    return {"task": task_object(task, history_length)}


def task_object(task: Task, history_length: int | None = None, *, artifacts: bool = True) -> Wire:
    """Returns a Task. `history_length` None means all messages, 0 none; a question in the status is not repeated."""
    wire: Wire = {"id": task.id, "contextId": task.context_id, "status": status_object(task)}
    if artifacts and task.artifacts:
        wire["artifacts"] = [artifact_object(artifact) for artifact in task.artifacts]
    history = task.history[:-1] if _is_asking(task) else task.history
    if history_length is not None:
        history = history[-history_length:] if history_length else ()
    if history:
        wire["history"] = [message_object(message, task) for message in history]
    if metadata := shown_metadata(task.metadata):
        wire["metadata"] = encode_metadata(metadata)
    return wire


def status_object(task: Task) -> Wire:
    """Returns a TaskStatus, with the agent's question or else the note on the task's progress or end."""
    wire: Wire = {"state": STATE_NAMES[task.state], "timestamp": instant(task.updated_at)}
    if _is_asking(task):
        wire["message"] = message_object(task.history[-1], task)
    elif task.note:
        wire["message"] = {**_agent_message(task, (TextPart(text=task.note),)), "taskId": task.id}
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


def _is_asking(task: Task) -> bool:
    """Decides whether the task's last message is a question that the agent waits on."""
    return task.state.is_interrupted and task.history[-1].role is Role.AGENT


def _agent_message(task: Task, parts: tuple[Part, ...]) -> Wire:
    """Returns a message that the task does not store. Its id comes from the event that it reports."""
    return {
        "messageId": f"{task.id}.{task.version}",
        "contextId": task.context_id,
        "role": ROLE_NAMES[Role.AGENT],
        "parts": [part_object(part) for part in parts],
    }


def encode_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {_TASK_KEYS.get(key, key): _inner(key, value) for key, value in metadata.items()}


def encode_message_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if _MESSAGE_KEYS.keys().isdisjoint(metadata):
        return metadata
    return {_MESSAGE_KEYS.get(key, key): value for key, value in metadata.items()}


def _inner(key: str, value: Any) -> Any:
    names = _INNER_KEYS.get(key)
    if names is None or not isinstance(value, dict):
        return value
    return {names.get(inner, inner): kept for inner, kept in cast("dict[str, Any]", value).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """The values on a card. `url` is the agent's address; `legacy_versions` are those it serves besides 1.0."""

    name: str
    description: str
    url: str
    version: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    legacy_versions: tuple[str, ...] = ()
    extensions: Extensions = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    """The optional features of A2A that the agent supports."""


def agent_card(facts: CardFacts) -> Wire:
    """Returns the AgentCard. Required fields are present even when they are false."""
    capabilities: Wire = {**{one: one in facts.capabilities for one in CAPABILITIES}, "extendedAgentCard": False}
    if facts.extensions:
        capabilities["extensions"] = [extension.as_dict() for extension in facts.extensions]
    return {
        "name": facts.name,
        "description": facts.description,
        "supportedInterfaces": [
            {"url": facts.url, "protocolBinding": binding, "protocolVersion": version}
            for version in (VERSION, *facts.legacy_versions)
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
        "version": facts.version,
        "capabilities": capabilities,
        "defaultInputModes": list(facts.input_modes),
        "defaultOutputModes": list(facts.output_modes),
        "skills": [
            {
                "id": "chat",
                "name": "Chat",
                "description": "Takes a message, works on it, and answers",
                "tags": ["chat"],
            }
        ],
    }


def security_fields(methods: AuthMethods) -> Wire:
    """Returns the card's `securitySchemes` and `securityRequirements` (1.0 §4.5).

    Both are absent when the gateway asks for no credentials.
    """
    schemes: Wire = {}
    if methods.api_keys:
        schemes["apiKey"] = {
            "apiKeySecurityScheme": {
                "description": "An API key of this gateway",
                "location": "header",
                "name": API_KEY_HEADER,
            }
        }
        schemes["apiKeyBearer"] = {
            "httpAuthSecurityScheme": {"description": "The same API key as a bearer token", "scheme": "Bearer"}
        }
    if methods.jwt_issuer:
        schemes["jwt"] = {
            "httpAuthSecurityScheme": {
                "description": f"An access token issued by {methods.jwt_issuer}",
                "scheme": "Bearer",
                "bearerFormat": "JWT",
            }
        }
    if methods.custom:
        # The standard has no scheme for a method of the owner's own; this one only carries the description.
        schemes["custom"] = {"httpAuthSecurityScheme": {"description": methods.custom, "scheme": "Custom"}}
    scopes = {"jwt": list(methods.jwt_scopes)}
    # The entries of the list are alternatives.
    requirements = [{"schemes": {name: {"list": scopes.get(name, [])}}} for name in schemes if name != "custom"]
    fields: Wire = {"securitySchemes": schemes, "securityRequirements": requirements}
    return {name: value for name, value in fields.items() if value}
