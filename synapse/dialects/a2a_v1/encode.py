"""From core facts to the words of A2A 1.0: plain functions, field by field, in ProtoJSON.

As protobuf does, a field that has its default is left out, except where the specification wants it printed.

A task's metadata as A2A names things, in camelCase. What others put there stays as they wrote it.

The agent card of A2A 1.0: what an agent tells strangers about itself, and where it listens.

How a card of A2A 1.0 says what a caller must bring (1.0 §4.5).
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


NAMES: Final[Mapping[str, str]] = {
    "sender_verified": "senderVerified",
    "sender_task_id": "senderTaskId",
    "sender_inbox": "senderInbox",
    "response_expected": "responseExpected",
    "in_reply_to": "inReplyTo",
    "waits_for": "waitsFor",
    "waits_for_inbox": "waitsForInbox",
    "waiter_left": "waiterLeft",
}
"""The keys that are ours."""
INNER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "sender": {"sender_id": "senderId", "sender_type": "senderType", "sender_endpoint": "senderEndpoint"},
    "question": {"takes_text": "takesText", "asked_at": "askedAt"},
}
"""The keys inside of those that are objects."""


_OF_MESSAGES: Final[Mapping[str, str]] = {"answers_question": "answersQuestion", "typed_from": "typedFrom"}
"""What we say of a message: which question it answered, and who added it. The rest of its metadata is the sender's."""


def encode_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {NAMES.get(key, key): _inner(key, value) for key, value in metadata.items()}


def encode_message_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if _OF_MESSAGES.keys().isdisjoint(metadata):
        return metadata
    return {_OF_MESSAGES.get(key, key): value for key, value in metadata.items()}


def _inner(key: str, value: Any) -> Any:
    names = INNER_NAMES.get(key)
    if names is None or not isinstance(value, dict):
        return value
    return {names.get(inner, inner): kept for inner, kept in cast("dict[str, Any]", value).items()}


VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the card is made of. `url` is the agent's address; `legacy_versions` are those it speaks besides 1.0."""

    name: str
    description: str
    url: str
    version: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    legacy_versions: tuple[str, ...] = ()
    extensions: Extensions = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    """What it can do beyond answering."""


def agent_card(facts: CardFacts) -> Wire:
    """The card; required fields are there even when they say no."""
    return {
        "name": facts.name,
        "description": facts.description,
        "supportedInterfaces": [
            {"url": facts.url, "protocolBinding": binding, "protocolVersion": version}
            for version in (VERSION, *facts.legacy_versions)
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
        "version": facts.version,
        "capabilities": _capabilities(facts),
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


def _capabilities(facts: CardFacts) -> Wire:
    capabilities: Wire = {**{one: one in facts.capabilities for one in CAPABILITIES}, "extendedAgentCard": False}
    if facts.extensions:
        capabilities["extensions"] = [extension.as_dict() for extension in facts.extensions]
    return capabilities


def security_fields(methods: AuthMethods) -> Wire:
    """`securitySchemes` and `securityRequirements`: one of them is enough. Nothing when nothing is asked for."""
    schemes = _schemes(methods)
    scopes = {"jwt": list(methods.jwt_scopes)}
    # Each element of the list is an alternative.
    requirements = [{"schemes": {name: {"list": scopes.get(name, [])}}} for name in schemes if name != "custom"]
    fields: Wire = {"securitySchemes": schemes, "securityRequirements": requirements}
    return {name: value for name, value in fields.items() if value}


def _schemes(methods: AuthMethods) -> Wire:
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
        # The standard has no scheme for what an owner made up; this one only carries the description.
        schemes["custom"] = {"httpAuthSecurityScheme": {"description": methods.custom, "scheme": "Custom"}}
    return schemes
