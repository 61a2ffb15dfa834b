"""From core facts to the words of the hub dialect: plain functions, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, Protocol

from synapse.core.errors import NotFound
from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, Role, TextPart
from synapse.core.store import TaskPage
from synapse.core.task import Task
from synapse.dialects.hub.parts import file_content, part_object
from synapse.dialects.hub.words import FAILURE_CODES, REQUEST_METADATA, STATE_NAMES, USER
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


class Admission(Protocol):
    """What admits somebody to one WebSocket."""

    @property
    def text(self) -> str: ...

    @property
    def expires_at(self) -> datetime: ...


def encode_ticket(ticket: Admission) -> bytes:
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
