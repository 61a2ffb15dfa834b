"""Encodes tasks, agent cards and errors for the hub dialect.

An error is `{"error": {"code", "message", "details"}}` with an HTTP status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from synapse.core import errors
from synapse.core.caller import AuthMethods
from synapse.core.errors import InvalidField, NotFound, SynapseError
from synapse.core.message import Artifact, DataPart, FilePart, Message, Role, TextPart
from synapse.core.requests import ListedAgent, Ticket
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskState
from synapse.dialects.dialect import WireAnswer, entry_for, error_headers
from synapse.dialects.hub.parts import file_content, part_object
from synapse.dialects.proto_json import instant, to_json

Wire = dict[str, Any]
AgentName = Callable[[Task], str]
"""Returns the name that the gateway has for a task's agent."""

ANSWER: Final = "answer"
"""The name of the artifact that is an agent's answer."""

STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "pending",
    TaskState.WORKING: "in_progress",
    TaskState.INPUT_REQUIRED: "in_progress",
    TaskState.AUTH_REQUIRED: "in_progress",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "failed",
    TaskState.REJECTED: "failed",
}

ASKED_STATES: Final[Mapping[str, TaskState]] = {
    "pending": TaskState.SUBMITTED,
    "in_progress": TaskState.WORKING,
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
}
"""The core state for each state that a caller may ask for."""

FAILURE_CODES: Final[Mapping[TaskState, str]] = {
    TaskState.FAILED: "AGENT_EXECUTION_ERROR",
    TaskState.REJECTED: "AGENT_EXECUTION_ERROR",
    TaskState.CANCELED: "TASK_CANCELLED",
}

REQUEST_METADATA: Final = "request"
"""The key of a task's metadata that holds the caller's own metadata: the agent's host reads some of the other keys."""
USER: Final = "user"
"""The key of a task's metadata that names the caller who created it."""


class ErrorShape(NamedTuple):
    """An error on the wire: its code, and the HTTP status."""

    code: str
    http: int


# Seven codes are the document's "common" ones; it has none for the errors that are NOT_FOUND and RATE_LIMITED here.
ERROR_SHAPES: Final[Mapping[type[SynapseError], ErrorShape]] = {
    errors.SynapseError: ErrorShape("INTERNAL_SERVER_ERROR", 500),
    errors.InvalidRequest: ErrorShape("INVALID_REQUEST", 400),
    errors.BodyTooLarge: ErrorShape("INVALID_REQUEST", 413),
    errors.BodyTooSlow: ErrorShape("INVALID_REQUEST", 408),
    errors.UnsupportedMediaType: ErrorShape("INVALID_REQUEST", 415),
    errors.MethodNotAllowed: ErrorShape("INVALID_REQUEST", 405),
    errors.NotFound: ErrorShape("NOT_FOUND", 404),
    errors.AgentNotFound: ErrorShape("AGENT_NOT_FOUND", 404),
    errors.ExternalAgentNotFound: ErrorShape("AGENT_NOT_FOUND", 404),
    errors.TaskNotFound: ErrorShape("TASK_NOT_FOUND", 404),
    errors.Conflict: ErrorShape("INVALID_REQUEST", 409),
    errors.QueueFull: ErrorShape("RATE_LIMITED", 429),
    errors.RateLimited: ErrorShape("RATE_LIMITED", 429),
    errors.AccessDenied: ErrorShape("AUTHORIZATION_ERROR", 403),
    errors.Unauthenticated: ErrorShape("AUTHENTICATION_ERROR", 401),
    errors.AgentFailed: ErrorShape("AGENT_EXECUTION_ERROR", 502),
    errors.WaitTimedOut: ErrorShape("AGENT_EXECUTION_ERROR", 504),
    errors.WaitingForPerson: ErrorShape("AGENT_EXECUTION_ERROR", 409),
    errors.StoreFailed: ErrorShape("INTERNAL_SERVER_ERROR", 503),
}


def encode_sent(task: Task, *, message_id: str) -> bytes:
    """Returns the ids of the task and of the message, whose sender may have given it none."""
    sent = [message.message_id for message in task.history if message.role is Role.USER]
    return to_json({"taskId": task.id, "messageId": message_id or sent[-1]})


def encode_message(task: Task, *, message_id: str, agent_name: AgentName) -> bytes:
    """Returns one message of the task.

    Raises NotFound.
    """
    for message in task.history:
        if message.message_id == message_id:
            return to_json(message_object(message, task, agent_name))
    raise NotFound(f"no message '{message_id}'")


def encode_task(task: Task, *, agent_name: AgentName) -> bytes:
    return to_json(task_object(task, agent_name))


def encode_page(page: TaskPage, *, agent_name: AgentName) -> bytes:
    tasks = [task_object(task, agent_name) for task in page.tasks]
    return to_json({"tasks": tasks, "nextCursor": page.next_cursor or None})


def encode_ticket(ticket: Ticket) -> bytes:
    return to_json({"ticket": ticket.text, "expiresAt": instant(ticket.expires_at)})


def encode_nothing(_nothing: object) -> bytes:
    return b""


def message_object(message: Message, task: Task, agent_name: AgentName) -> Wire:
    return {
        "messageId": message.message_id,
        "taskId": task.id,
        "agentId": agent_name(task),
        "role": message.role.value,
        "message": [part_object(part) for part in message.parts],
    }


def task_object(task: Task, agent_name: AgentName) -> Wire:
    wire: Wire = {
        "id": task.id,
        "agentId": agent_name(task),
        "state": STATE_NAMES[task.state],
        "createdAt": instant(task.created_at),
        "updatedAt": instant(task.updated_at),
    }
    if task.parent_id:
        wire["parentId"] = task.parent_id
    # The sender of a local task writes its metadata, so the value may be of any type.
    if isinstance(user := task.metadata.get(USER), str) and user:
        wire["userId"] = user
    if error := failure_object(task):
        wire["error"] = error
    wire["artifacts"] = list(_artifacts(task))
    if isinstance(metadata := task.metadata.get(REQUEST_METADATA), dict) and metadata:
        wire["metadata"] = metadata
    return wire


def failure_object(task: Task) -> Wire | None:
    """Returns why a task failed, or None when it did not."""
    code = FAILURE_CODES.get(task.state)
    if code is None:
        return None
    wire: Wire = {"code": code, "message": task.note or f"the task was {task.state.value}"}
    if task.reason:
        wire["details"] = {"reason": task.reason}
    return wire


def encode_agent(agent: ListedAgent, *, methods: AuthMethods) -> bytes:
    return to_json(agent_card(agent, methods))


def encode_agents(agents: Iterable[ListedAgent], *, methods: AuthMethods) -> bytes:
    return to_json({"agents": [agent_card(agent, methods) for agent in agents]})


def agent_card(agent: ListedAgent, methods: AuthMethods) -> Wire:
    card: Wire = {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "capabilities": list(agent.capabilities),
    }
    if auth := _auth(methods):
        card["auth"] = auth
    card["metadata"] = {"agentType": agent.agent_type, "state": agent.state}
    if agent.away_since is not None:
        card["metadata"] |= {"away": True, "since": instant(agent.away_since)}
    return card


def error_shape(kind: type[SynapseError]) -> ErrorShape:
    """Returns the shape of the error class, or of its nearest ancestor that has one."""
    return entry_for(kind, ERROR_SHAPES)


def encode_error(error: SynapseError) -> WireAnswer:
    """Returns the answer for `error`."""
    return WireAnswer(error_shape(type(error)).http, to_json({"error": error_object(error)}), error_headers(error))


def error_object(error: SynapseError) -> Wire:
    details: dict[str, str] = {}
    if isinstance(error, InvalidField) and error.field:
        details["field"] = error.field
    if error.hint:
        details["hint"] = error.hint
    wire: Wire = {"code": error_shape(type(error)).code, "message": str(error)}
    return {**wire, "details": details} if details else wire


def _artifacts(task: Task) -> Iterator[Wire]:
    """Yields the agent's messages, then its artifacts, one of which is its answer."""
    for message in task.history:
        if message.role is Role.AGENT:
            yield {"type": "message", "content": [part_object(part) for part in message.parts]}
    for artifact in task.artifacts:
        kind, content = _typed_content(artifact)
        wire: Wire = {"type": kind, "content": content}
        if metadata := _metadata(artifact):
            wire["metadata"] = metadata
        yield wire


def _typed_content(artifact: Artifact) -> tuple[str, Any]:
    parts = artifact.parts
    if len(parts) > 1 and all(isinstance(part, TextPart) for part in parts):
        parts = (TextPart(text=artifact.text),)  # a text that arrived in chunks
    match parts:
        case (FilePart() as file,):
            return "file", file_content(file)
        case (DataPart() as data,):
            return "result", data.data
        case _:
            return "message", [part_object(part) for part in parts]


def _metadata(artifact: Artifact) -> Wire:
    """Returns the artifact's name and description, and marks a text that was inferred or is partial."""
    wire: Wire = {}
    if artifact.name not in ("", ANSWER):
        wire["name"] = artifact.name
    if artifact.description:
        wire["description"] = artifact.description
    if artifact.metadata.get("inferred"):
        wire["source"] = artifact.metadata.get("source")
        wire["inferred"] = True
    if artifact.metadata.get("partial"):
        wire["partial"] = True
    return wire


def _auth(methods: AuthMethods) -> Wire:
    """Returns the card's `auth`. It has one type, so the description names all methods; empty when there is none."""
    ways: list[str] = []
    if methods.api_keys:
        ways.append("an API key of this gateway")
    if methods.jwt_issuer:
        ways.append(f"an OAuth 2.0 access token issued by {methods.jwt_issuer}")
    if ways:
        custom = f"; or: {methods.custom}" if methods.custom else ""
        return {"type": "bearer", "description": f"Authorization: Bearer with {' or '.join(ways)}{custom}"}
    return {"type": "custom", "description": methods.custom} if methods.custom else {}
