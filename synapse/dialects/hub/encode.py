"""From core facts to the words of the hub dialect: plain functions, field by field.

The words of the hub dialect for states, as tables.

The hub's card of an agent: what it is called, what it can do, and what a caller must bring.

How the hub dialect says that something is wrong: `{"error": {"code", "message", "details"}}` and an HTTP status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from synapse.core import errors
from synapse.core.caller import AuthMethods
from synapse.core.errors import InvalidField, NotFound, SynapseError
from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, Role, TextPart
from synapse.core.requests import ListedAgent, Ticket
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskState
from synapse.dialects.dialect import WireAnswer, error_headers
from synapse.dialects.hub.parts import file_content, part_object
from synapse.dialects.proto_json import instant, to_json

Wire = dict[str, Any]
AgentName = Callable[[Task], str]
"""The name of a task's agent at the gateway."""

ANSWER: Final = "answer"
"""What an agent's answer is called in the core."""


def encode_sent(task: Task, *, message_id: str) -> bytes:
    """What was accepted: the task, and the message that its sender may have left without an id."""
    sent = [message.message_id for message in task.history if message.role is Role.USER]
    return to_json({"taskId": task.id, "messageId": message_id or sent[-1]})


def encode_message(task: Task, *, message_id: str, agent_name: AgentName) -> bytes:
    """Raises NotFound."""
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
    # Of tasks that were made locally the metadata is the sender's own, and may have anything in it.
    if isinstance(user := task.metadata.get(USER), str) and user:
        wire["userId"] = user
    if error := failure_object(task):
        wire["error"] = error
    wire["artifacts"] = list(_artifacts(task))
    if isinstance(metadata := task.metadata.get(REQUEST_METADATA), dict) and metadata:
        wire["metadata"] = metadata
    return wire


def failure_object(task: Task) -> Wire | None:
    """Why a task failed; None when it did not."""
    code = FAILURE_CODES.get(task.state)
    if code is None:
        return None
    wire: Wire = {"code": code, "message": task.note or f"the task was {task.state.value}"}
    if task.reason:
        wire["details"] = {"reason": task.reason}
    return wire


def _artifacts(task: Task) -> Iterator[Wire]:
    """What came of the task: what the agent said on the way, then what it handed over and its answer."""
    for message in task.history:
        if message.role is Role.AGENT:
            yield {"type": "message", "content": [part_object(part) for part in message.parts]}
    for artifact in task.artifacts:
        yield _artifact(artifact)


def _artifact(artifact: Artifact) -> Wire:
    kind, content = _typed(_joined(artifact))
    wire: Wire = {"type": kind, "content": content}
    if metadata := _metadata(artifact):
        wire["metadata"] = metadata
    return wire


def _joined(artifact: Artifact) -> tuple[Part, ...]:
    """The parts; a text that came in chunks is one again."""
    if len(artifact.parts) > 1 and all(isinstance(part, TextPart) for part in artifact.parts):
        return (TextPart(text=artifact.text),)
    return artifact.parts


def _typed(parts: tuple[Part, ...]) -> tuple[str, Any]:
    match parts:
        case (FilePart() as file,):
            return "file", file_content(file)
        case (DataPart() as data,):
            return "result", data.data
        case _:
            return "message", [part_object(part) for part in parts]


def _metadata(artifact: Artifact) -> Wire:
    """What a reader should know beside the content: what it is called, and when the text was not the agent's own."""
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
"""The state that a caller means who wants to change one."""

FAILURE_CODES: Final[Mapping[TaskState, str]] = {
    TaskState.FAILED: "AGENT_EXECUTION_ERROR",
    TaskState.REJECTED: "AGENT_EXECUTION_ERROR",
    TaskState.CANCELED: "TASK_CANCELLED",
}

REQUEST_METADATA: Final = "request"
"""Some keys of a task's metadata mean something to the agent's host. A stranger's stay apart from them, below this."""
USER: Final = "user"
"""Where a task's metadata has the name of the caller that made it."""


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
    return card


def _auth(methods: AuthMethods) -> Wire:
    """The document has room for one type; the description names all that will do. Empty when nothing is asked for."""
    ways: list[str] = []
    if methods.api_keys:
        ways.append("an API key of this gateway")
    if methods.jwt_issuer:
        ways.append(f"an OAuth 2.0 access token issued by {methods.jwt_issuer}")
    if ways:
        custom = f"; or: {methods.custom}" if methods.custom else ""
        return {"type": "bearer", "description": f"Authorization: Bearer with {' or '.join(ways)}{custom}"}
    return {"type": "custom", "description": methods.custom} if methods.custom else {}


class ErrorShape(NamedTuple):
    """One row: the code, and the HTTP status."""

    code: str
    http: int


# Seven codes are the document's "common" ones; NOT_FOUND and RATE_LIMITED are for what it has no word for.
FAULTS: Final[Mapping[type[SynapseError], ErrorShape]] = {
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


def fault_of(kind: type[SynapseError]) -> ErrorShape:
    """The row of the nearest class that has one."""
    return next(FAULTS[ancestor] for ancestor in kind.__mro__ if ancestor in FAULTS)


def encode_error(error: SynapseError) -> WireAnswer:
    """The answer that tells `error`."""
    return WireAnswer(fault_of(type(error)).http, to_json({"error": error_object(error)}), error_headers(error))


def error_object(error: SynapseError) -> dict[str, Any]:
    details: dict[str, str] = {}
    if isinstance(error, InvalidField) and error.field:
        details["field"] = error.field
    if error.hint:
        details["hint"] = error.hint
    told: dict[str, Any] = {"code": fault_of(type(error)).code, "message": str(error)}
    return {**told, "details": details} if details else told
