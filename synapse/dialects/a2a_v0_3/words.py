"""What both forms of A2A 0.3 have in common: what is told of a task, before it is put into words."""

from __future__ import annotations

from typing import Any, Final, cast

from synapse.core.message import DataPart, Json, Message, MessageId, Part, Role, TextPart
from synapse.core.task import Task

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
