"""Encodes tasks and agent cards for A2A 0.3, which spells a task in two ways.

JSON-RPC follows the JSON schema of 0.3: every object names its `kind`, and false flags are printed.
REST follows the ProtoJSON of its protobuf: a type is the name of the field that holds the object, and a field with its
default is left out. REST clients refuse fields that the protobuf does not have.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

from synapse.core.caller import API_KEY_HEADER, AuthMethods
from synapse.core.events import ArtifactAdded, StateChanged, TaskOpened, Update
from synapse.core.extension import Extensions
from synapse.core.message import Artifact, DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.core.requests import CAPABILITIES
from synapse.core.task import Task, TaskState
from synapse.core.task_metadata import shown_metadata
from synapse.dialects.proto_json import instant, to_json

Wire = dict[str, Any]

VERSION: Final = "0.3"
DIRECT_MESSAGE: Final = "direct_message"
"""The reason of a completed task whose agent answered with a plain message instead of a task."""
NOT_AN_OBJECT: Final = "data_part_compat"
"""Marks, in a part's metadata, data that is not an object. 0.3 allows only objects, so any other value is sent as
{"value": …} with this key, as the SDKs do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEncoder:
    """Encodes tasks and their updates. The fields hold what the two forms of 0.3 spell differently."""

    states: Mapping[TaskState, str]
    roles: Mapping[Role, str]
    parts: str
    file_bytes: str
    file_uri: str
    protobuf: bool
    """ProtoJSON instead of the JSON schema: no `kind`, and no field that has its default."""

    def encode_task(self, task: Task, history_length: int | None = None) -> bytes:
        """Returns the task as JSON, with its last `history_length` messages."""
        return to_json(self.task_object(task, history_length))

    def encode_sent(self, task: Task, history_length: int | None = None) -> bytes:
        """Returns the answer to a sent message: the task, or the message that the agent answered with instead."""
        return to_json(self._payload_object(task, history_length))

    def encode_update(self, update: Update, *, ends_when_asked: bool = False) -> bytes | None:
        """Returns one result of a stream, or None for an update that A2A cannot express.

        `final` marks the last result; with `ends_when_asked` a question to the user ends the stream too.
        """
        task, event = update.task, update.event
        match event:
            case None | TaskOpened():
                return to_json(self._payload_object(task))
            case StateChanged():
                final = task.state.is_terminal or (ends_when_asked and task.state.is_interrupted)
                changed = {"status": self.status_object(task), **self._flags(final=final)}
                return to_json(self._update_object("status-update", "statusUpdate", task, changed))
            case ArtifactAdded():
                flags = self._flags(append=event.append, lastChunk=event.last_chunk)
                added = {"artifact": self._artifact_object(event.artifact), **flags}
                return to_json(self._update_object("artifact-update", "artifactUpdate", task, added))
            case _:
                return None

    def task_object(self, task: Task, history_length: int | None = None) -> Wire:
        """Returns a Task."""
        wire = self._typed("task", {"id": task.id, "contextId": task.context_id, "status": self.status_object(task)})
        if task.artifacts:
            wire["artifacts"] = [self._artifact_object(artifact) for artifact in task.artifacts]
        # The status shows the question, so the history leaves it out. 0 means all, as in the SDKs of 0.3.
        history = task.history[:-1] if _is_asking(task) else task.history
        history = history[-history_length:] if history_length else history
        if history:
            wire["history"] = [self.message_object(message, task) for message in history]
        if metadata := shown_metadata(task.metadata):
            wire["metadata"] = metadata
        return wire

    def status_object(self, task: Task) -> Wire:
        """Returns a TaskStatus, with the agent's question or else the note on the task's progress or end."""
        wire: Wire = {"state": self.states[task.state], "timestamp": instant(task.updated_at)}
        if _is_asking(task):
            wire["message"] = self.message_object(task.history[-1], task)
        elif task.note:
            wire["message"] = self.message_object(_agent_message(task, (TextPart(text=task.note),)), task)
        return wire

    def message_object(self, message: Message, task: Task) -> Wire:
        """Returns a Message of the task."""
        return {**self._bare_message(message), "contextId": task.context_id, "taskId": task.id}

    def part_object(self, part: Part) -> Wire:
        """Returns a Part."""
        metadata = part.metadata
        match part:
            case TextPart():
                wire = self._typed("text", {"text": part.text})
            case DataPart():
                data = part.data
                if not isinstance(data, dict):
                    data, metadata = {"value": data}, {**metadata, NOT_AN_OBJECT: True}
                wire = self._typed("data", {"data": {"data": data} if self.protobuf else data})
            case FilePart():
                wire = self._typed("file", {"file": self._file_object(part)})
            case _:
                assert_never(part)
        if metadata:
            wire["metadata"] = metadata
        return wire

    def _payload_object(self, task: Task, history_length: int | None = None) -> Wire:
        if task.reason == DIRECT_MESSAGE and task.artifacts:
            # Without the task's id: the agent meant no task.
            message = self._bare_message(_agent_message(task, task.artifacts[-1].parts))
            message["contextId"] = task.context_id
            return {"message": message} if self.protobuf else message
        wire = self.task_object(task, history_length)
        return {"task": wire} if self.protobuf else wire

    def _update_object(self, kind: str, field: str, task: Task, change: Wire) -> Wire:
        wire = self._typed(kind, {"taskId": task.id, "contextId": task.context_id, **change})
        return {field: wire} if self.protobuf else wire

    def _artifact_object(self, artifact: Artifact) -> Wire:
        wire: Wire = {"artifactId": artifact.artifact_id, "parts": [self.part_object(part) for part in artifact.parts]}
        if artifact.name:
            wire["name"] = artifact.name
        if artifact.description:
            wire["description"] = artifact.description
        if artifact.metadata:
            wire["metadata"] = artifact.metadata
        if artifact.extensions:
            wire["extensions"] = artifact.extensions
        return wire

    def _bare_message(self, message: Message) -> Wire:
        parts = [self.part_object(part) for part in message.parts]
        fields = {"messageId": message.message_id, "role": self.roles[message.role], self.parts: parts}
        wire = self._typed("message", fields)
        if message.metadata:
            wire["metadata"] = message.metadata
        if message.extensions:
            wire["extensions"] = message.extensions
        # The protobuf has no field for them.
        if message.reference_task_ids and not self.protobuf:
            wire["referenceTaskIds"] = message.reference_task_ids
        return wire

    def _file_object(self, part: FilePart) -> Wire:
        wire: Wire = (
            {self.file_uri: part.url}
            if part.content is None
            else {self.file_bytes: base64.b64encode(part.content).decode("ascii")}
        )
        if part.name:
            wire["name"] = part.name
        if part.media_type:
            wire["mimeType"] = part.media_type
        return wire

    def _typed(self, kind: str, fields: Wire) -> Wire:
        return fields if self.protobuf else {"kind": kind, **fields}

    def _flags(self, **flags: bool) -> Wire:
        return {name: value for name, value in flags.items() if value or not self.protobuf}


JSON_RPC: Final = TaskEncoder(
    states={
        TaskState.SUBMITTED: "submitted",
        TaskState.WORKING: "working",
        TaskState.INPUT_REQUIRED: "input-required",
        TaskState.AUTH_REQUIRED: "auth-required",
        TaskState.COMPLETED: "completed",
        TaskState.FAILED: "failed",
        TaskState.CANCELED: "canceled",
        TaskState.REJECTED: "rejected",
    },
    roles={Role.USER: "user", Role.AGENT: "agent"},
    parts="parts",
    file_bytes="bytes",
    file_uri="uri",
    protobuf=False,
)
PROTO_JSON: Final = TaskEncoder(
    states={
        TaskState.SUBMITTED: "TASK_STATE_SUBMITTED",
        TaskState.WORKING: "TASK_STATE_WORKING",
        TaskState.INPUT_REQUIRED: "TASK_STATE_INPUT_REQUIRED",
        TaskState.AUTH_REQUIRED: "TASK_STATE_AUTH_REQUIRED",
        TaskState.COMPLETED: "TASK_STATE_COMPLETED",
        TaskState.FAILED: "TASK_STATE_FAILED",
        TaskState.CANCELED: "TASK_STATE_CANCELLED",
        TaskState.REJECTED: "TASK_STATE_REJECTED",
    },
    roles={Role.USER: "ROLE_USER", Role.AGENT: "ROLE_AGENT"},
    parts="content",
    file_bytes="fileWithBytes",
    file_uri="fileWithUri",
    protobuf=True,
)


def _is_asking(task: Task) -> bool:
    """Decides whether the task's last message is a question that the agent waits on."""
    return task.state.is_interrupted and task.history[-1].role is Role.AGENT


def _agent_message(task: Task, parts: tuple[Part, ...]) -> Message:
    """Returns a message that the task does not store. Its id comes from the event that it reports."""
    return Message(message_id=MessageId(f"{task.id}.{task.version}"), role=Role.AGENT, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """The values on a card. `url` is the agent's address: JSON-RPC is served there, REST below its `/v1`."""

    name: str
    description: str
    url: str
    version: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    extensions: Extensions = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    """The optional features of A2A that the agent supports."""


def agent_card(facts: CardFacts) -> Wire:
    """Returns the AgentCard."""
    capabilities: Wire = {**{one: one in facts.capabilities for one in CAPABILITIES}, "stateTransitionHistory": False}
    if facts.extensions:
        capabilities["extensions"] = [extension.as_dict() for extension in facts.extensions]
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
        "supportsAuthenticatedExtendedCard": False,
    }


def security_fields(methods: AuthMethods) -> Wire:
    """Returns the card's `securitySchemes`, as OpenAPI 3 has them, and `security`, whose entries are alternatives.

    Both are absent when the gateway asks for no credentials.
    """
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
    scopes = {"jwt": list(methods.jwt_scopes)}
    requirements = [{name: scopes.get(name, [])} for name in schemes if name != "custom"]
    fields: Wire = {"securitySchemes": schemes, "security": requirements}
    return {name: value for name, value in fields.items() if value}
