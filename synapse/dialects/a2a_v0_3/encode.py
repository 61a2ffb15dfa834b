"""From core facts to the words of A2A 0.3 in JSON-RPC: `kind` says what an object is.

From core facts to the words of A2A 0.3 in REST: ProtoJSON of its protobuf. Its clients refuse any other field.

What both forms of A2A 0.3 have in common: what is told of a task, before it is put into words.

The agent card of A2A 0.3.

How a card of A2A 0.3 says what a caller must bring: the schemes of OpenAPI 3.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never, cast

from synapse.core.caller import API_KEY_HEADER, AuthMethods
from synapse.core.events import ArtifactAdded, StateChanged, TaskOpened, Update
from synapse.core.extension import Extensions
from synapse.core.message import Artifact, DataPart, FilePart, Json, Message, MessageId, Part, Role, TextPart
from synapse.core.requests import CAPABILITIES
from synapse.core.task import Task, TaskState
from synapse.dialects.proto_json import instant, to_json

STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "submitted",
    TaskState.WORKING: "working",
    TaskState.INPUT_REQUIRED: "input-required",
    TaskState.AUTH_REQUIRED: "auth-required",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "canceled",
    TaskState.REJECTED: "rejected",
}


def encode_task(task: Task, history_length: int | None = None) -> bytes:
    return to_json(task_object(task, history_length))


def encode_sent(task: Task, history_length: int | None = None) -> bytes:
    """The task, or the message that its agent answered with instead of one."""
    return to_json(payload_object(task, history_length))


def encode_update(update: Update, *, ends_when_asked: bool = False) -> bytes | None:
    """One result of a stream, or None for what A2A has no words for. `final` is said of the last one."""
    task, event = update.task, update.event
    match event:
        case None | TaskOpened():
            return to_json(payload_object(task))
        case StateChanged():
            final = task.state.is_terminal or (ends_when_asked and task.state.is_interrupted)
            return to_json(
                {
                    "kind": "status-update",
                    "taskId": task.id,
                    "contextId": task.context_id,
                    "status": status_object(task),
                    "final": final,
                }
            )
        case ArtifactAdded():
            return to_json(
                {
                    "kind": "artifact-update",
                    "taskId": task.id,
                    "contextId": task.context_id,
                    "artifact": artifact_object(event.artifact),
                    "append": event.append,
                    "lastChunk": event.last_chunk,
                }
            )
        case _:
            return None


def payload_object(task: Task, history_length: int | None = None) -> Wire:
    answer = direct_answer(task)
    if answer is None:
        return task_object(task, history_length)
    return {**_message(answer), "contextId": task.context_id}


def task_object(task: Task, history_length: int | None = None) -> Wire:
    wire: Wire = {"kind": "task", "id": task.id, "contextId": task.context_id, "status": status_object(task)}
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
            wire: Wire = {"kind": "text", "text": part.text}
        case DataPart():
            data, metadata = data_of(part)
            wire = {"kind": "data", "data": data}
        case FilePart():
            wire = {"kind": "file", "file": _file(part)}
        case _:
            assert_never(part)
    if metadata:
        wire["metadata"] = metadata
    return wire


def _message(message: Message) -> Wire:
    wire: Wire = {
        "kind": "message",
        "messageId": message.message_id,
        "role": message.role.value,
        "parts": [part_object(part) for part in message.parts],
    }
    if message.metadata:
        wire["metadata"] = message.metadata
    if message.extensions:
        wire["extensions"] = message.extensions
    if message.reference_task_ids:
        wire["referenceTaskIds"] = message.reference_task_ids
    return wire


def _file(part: FilePart) -> Wire:
    wire: Wire = (
        {"uri": part.url} if part.content is None else {"bytes": base64.b64encode(part.content).decode("ascii")}
    )
    if part.name:
        wire["name"] = part.name
    if part.media_type:
        wire["mimeType"] = part.media_type
    return wire


PROTO_STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "TASK_STATE_SUBMITTED",
    TaskState.WORKING: "TASK_STATE_WORKING",
    TaskState.INPUT_REQUIRED: "TASK_STATE_INPUT_REQUIRED",
    TaskState.AUTH_REQUIRED: "TASK_STATE_AUTH_REQUIRED",
    TaskState.COMPLETED: "TASK_STATE_COMPLETED",
    TaskState.FAILED: "TASK_STATE_FAILED",
    TaskState.CANCELED: "TASK_STATE_CANCELLED",
    TaskState.REJECTED: "TASK_STATE_REJECTED",
}
PROTO_ROLE_NAMES: Final[Mapping[Role, str]] = {Role.USER: "ROLE_USER", Role.AGENT: "ROLE_AGENT"}


def encode_proto_task(task: Task, history_length: int | None = None) -> bytes:
    return to_json(proto_task_object(task, history_length))


def encode_proto_sent(task: Task, history_length: int | None = None) -> bytes:
    """A SendMessageResponse."""
    return to_json(proto_payload_object(task, history_length))


def encode_proto_update(update: Update, *, ends_when_asked: bool = False) -> bytes | None:
    """A StreamResponse, or None for what A2A has no words for. `final` is said of the last one."""
    task, event = update.task, update.event
    match event:
        case None | TaskOpened():
            return to_json(proto_payload_object(task))
        case StateChanged():
            changed: Wire = {"taskId": task.id, "contextId": task.context_id, "status": proto_status_object(task)}
            if task.state.is_terminal or (ends_when_asked and task.state.is_interrupted):
                changed["final"] = True
            return to_json({"statusUpdate": changed})
        case ArtifactAdded():
            return to_json({"artifactUpdate": _proto_artifact_update(task, event)})
        case _:
            return None


def proto_payload_object(task: Task, history_length: int | None = None) -> Wire:
    answer = direct_answer(task)
    if answer is None:
        return {"task": proto_task_object(task, history_length)}
    return {"message": {**_proto_message(answer), "contextId": task.context_id}}


def proto_task_object(task: Task, history_length: int | None = None) -> Wire:
    wire: Wire = {"id": task.id, "contextId": task.context_id, "status": proto_status_object(task)}
    if task.artifacts:
        wire["artifacts"] = [proto_artifact_object(artifact) for artifact in task.artifacts]
    history = shown_history(task, history_length)
    if history:
        wire["history"] = [proto_message_object(message, task) for message in history]
    if task.metadata:
        wire["metadata"] = task.metadata
    return wire


def proto_status_object(task: Task) -> Wire:
    wire: Wire = {"state": PROTO_STATE_NAMES[task.state], "timestamp": instant(task.updated_at)}
    message = status_message(task)
    if message is not None:
        wire["message"] = proto_message_object(message, task)
    return wire


def proto_message_object(message: Message, task: Task) -> Wire:
    return {**_proto_message(message), "contextId": task.context_id, "taskId": task.id}


def proto_artifact_object(artifact: Artifact) -> Wire:
    wire: Wire = {"artifactId": artifact.artifact_id, "parts": [proto_part_object(part) for part in artifact.parts]}
    if artifact.name:
        wire["name"] = artifact.name
    if artifact.description:
        wire["description"] = artifact.description
    if artifact.metadata:
        wire["metadata"] = artifact.metadata
    if artifact.extensions:
        wire["extensions"] = artifact.extensions
    return wire


def proto_part_object(part: Part) -> Wire:
    metadata = part.metadata
    match part:
        case TextPart():
            wire: Wire = {"text": part.text}
        case DataPart():
            data, metadata = data_of(part)
            wire = {"data": {"data": data}}
        case FilePart():
            wire = {"file": _proto_file(part)}
        case _:
            assert_never(part)
    if metadata:
        wire["metadata"] = metadata
    return wire


def _proto_message(message: Message) -> Wire:
    wire: Wire = {
        "messageId": message.message_id,
        "role": PROTO_ROLE_NAMES[message.role],
        "content": [proto_part_object(part) for part in message.parts],
    }
    if message.metadata:
        wire["metadata"] = message.metadata
    if message.extensions:
        wire["extensions"] = message.extensions
    return wire


def _proto_artifact_update(task: Task, event: ArtifactAdded) -> Wire:
    wire: Wire = {"taskId": task.id, "contextId": task.context_id, "artifact": proto_artifact_object(event.artifact)}
    if event.append:
        wire["append"] = True
    if event.last_chunk:
        wire["lastChunk"] = True
    return wire


def _proto_file(part: FilePart) -> Wire:
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


Wire = dict[str, Any]

DIRECT_MESSAGE: Final = "direct_message"
"""Why a task is completed whose agent answered with a plain message and meant no task."""
NOT_AN_OBJECT: Final = "data_part_compat"
"""0.3 has only objects as data. Any other value travels as {"value": …} with this word in the part's metadata, as the
SDKs do it."""


def asks(task: Task) -> bool:
    """The last message is what the agent waits for an answer to."""
    return task.state.is_interrupted and task.history[-1].role is Role.AGENT


def status_message(task: Task) -> Message | None:
    """What the agent asks, or a word on how it goes or why it ended."""
    if asks(task):
        return task.history[-1]
    return said_by_agent(task, (TextPart(text=task.note),)) if task.note else None


def direct_answer(task: Task) -> Message | None:
    """The message that the agent answered with instead of a task."""
    if task.reason == DIRECT_MESSAGE and task.artifacts:
        return said_by_agent(task, task.artifacts[-1].parts)
    return None


def shown_history(task: Task, length: int | None) -> tuple[Message, ...]:
    """The messages but the one that the status shows; 0 means all, as in the SDKs of 0.3."""
    history = task.history[:-1] if asks(task) else task.history
    return history[-length:] if length else history


def said_by_agent(task: Task, parts: tuple[Part, ...]) -> Message:
    """A message that the task itself does not keep: its id is that of the event that it tells of."""
    return Message(message_id=MessageId(f"{task.id}.{task.version}"), role=Role.AGENT, parts=parts)


def data_of(part: DataPart) -> tuple[Json, Json]:
    """The data as an object, and the part's metadata."""
    data: object = part.data
    if isinstance(data, dict):
        return cast("Json", data), part.metadata
    return {"value": data}, {**part.metadata, NOT_AN_OBJECT: True}


def data_part(data: Json, metadata: Json) -> DataPart:
    """The reverse."""
    if metadata.get(NOT_AN_OBJECT) is True and set(data) == {"value"}:
        rest = {key: value for key, value in metadata.items() if key != NOT_AN_OBJECT}
        return DataPart(data=data["value"], metadata=rest)
    return DataPart(data=data, metadata=metadata)


VERSION: Final = "0.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the card is made of. `url` is the agent's address: JSON-RPC there, REST below its `/v1`."""

    name: str
    description: str
    url: str
    version: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    extensions: Extensions = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    """What it can do beyond answering."""


def agent_card(facts: CardFacts) -> Wire:
    return {
        "protocolVersion": "0.3.0",
        "name": facts.name,
        "description": facts.description,
        "url": facts.url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": facts.url, "transport": "JSONRPC"},
            {"url": facts.url, "transport": "HTTP+JSON"},
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
        "supportsAuthenticatedExtendedCard": False,
    }


def _capabilities(facts: CardFacts) -> Wire:
    capabilities: Wire = {**{one: one in facts.capabilities for one in CAPABILITIES}, "stateTransitionHistory": False}
    if facts.extensions:
        capabilities["extensions"] = [extension.as_dict() for extension in facts.extensions]
    return capabilities


def security_fields(methods: AuthMethods) -> Wire:
    """`securitySchemes` and `security`: one of them is enough. Nothing when nothing is asked for."""
    schemes = _schemes(methods)
    scopes = {"jwt": list(methods.jwt_scopes)}
    requirements = [{name: scopes.get(name, [])} for name in schemes if name != "custom"]
    fields: Wire = {"securitySchemes": schemes, "security": requirements}
    return {name: value for name, value in fields.items() if value}


def _schemes(methods: AuthMethods) -> Wire:
    schemes: Wire = {}
    if methods.api_keys:
        schemes["apiKey"] = {
            "type": "apiKey",
            "in": "header",
            "name": API_KEY_HEADER,
            "description": "An API key of this gateway",
        }
        schemes["apiKeyBearer"] = {
            "type": "http",
            "scheme": "bearer",
            "description": "The same API key as a bearer token",
        }
    if methods.jwt_issuer:
        schemes["jwt"] = {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": f"An access token issued by {methods.jwt_issuer}",
        }
    if methods.custom:
        schemes["custom"] = {"type": "http", "scheme": "custom", "description": methods.custom}
    return schemes
