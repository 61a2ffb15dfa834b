"""Decodes requests of the hub dialect into core requests. Every function raises InvalidRequest and no other error.

The hub shows plain task ids. It also accepts ids that name their agent, `agentId:taskId`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from synapse.core.errors import InvalidField
from synapse.core.message import Message, MessageId, Role
from synapse.core.requests import ChangeTask, ForAgent, ListTasks, Request, SendMessage
from synapse.core.task import Task, TaskState
from synapse.dialects.hub.encode import ASKED_STATES, REQUEST_METADATA, STATE_NAMES
from synapse.dialects.hub.parts import ChangeShape, ListShape, MessageShape, decode_part
from synapse.dialects.paths import HUB

R = TypeVar("R")


def send_request(shape: MessageShape) -> SendMessage:
    return SendMessage(
        message=Message(
            message_id=MessageId(shape.message_id),
            role=Role.USER,
            parts=tuple([decode_part(part, index) for index, part in enumerate(shape.message)]),
        ),
        dialect=HUB,
        context_id=shape.context_id,
        task_id=plain_id(shape.task_id),
        exact=True,
        parent_id=plain_id(shape.parent_id),
        metadata={REQUEST_METADATA: shape.metadata} if shape.metadata else {},
    )


def list_request(shape: ListShape) -> ListTasks:
    return ListTasks(
        agent=shape.agent_id,
        states=_states(shape.state),
        parent_id=plain_id(shape.parent_id),
        user=shape.user_id,
        limit=shape.limit,
        cursor=shape.cursor,
    )


def change_request(shape: ChangeShape, task_id: str) -> Request[Task]:
    """Decodes a PUT, whose metadata replaces the task's earlier metadata."""
    if shape.state is None and shape.metadata is None:
        raise InvalidField("", "there is nothing to change", hint='{"metadata": {…}} or {"state": "completed"}')
    metadata: dict[str, Any] = {} if shape.metadata is None else {REQUEST_METADATA: shape.metadata}
    state = None if shape.state is None else ASKED_STATES[shape.state]
    return about_task(task_id, lambda plain: ChangeTask(task_id=plain, metadata=metadata, state=state))


def plain_id(given: str) -> str:
    """Returns the task id without its agent."""
    return given.rpartition(":")[2]


def about_task(given: str, request: Callable[[str], Request[R]]) -> Request[R]:
    """Returns the request for the task, addressed to its agent if the id names one."""
    agent, _, task_id = given.rpartition(":")
    return ForAgent(agent, request(task_id)) if agent else request(task_id)


def _states(words: str) -> frozenset[TaskState]:
    """Returns the core states for a list of hub states with commas between."""
    wanted = {word.strip() for word in words.split(",")} - {""}
    unknown = wanted - set(ASKED_STATES)
    if unknown:
        raise InvalidField("state", f"'{min(unknown)}' is not a state", hint="use one of " + ", ".join(ASKED_STATES))
    return frozenset(state for state, word in STATE_NAMES.items() if word in wanted)
