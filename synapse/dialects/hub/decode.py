"""From the words of the hub dialect to core requests. Each function raises InvalidRequest and nothing else.

Task ids: the hub shows them plain, and also takes those that name their agent, `agentId:taskId`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from synapse.core.errors import InvalidField
from synapse.core.message import Message, MessageId, Role
from synapse.core.requests import ChangeTask, ForAgent, ListTasks, Request, SendMessage
from synapse.core.task import Task, TaskState
from synapse.dialects.hub.encode import ASKED_STATES, REQUEST_METADATA, STATE_NAMES
from synapse.dialects.hub.parts import ChangeShape, ListShape, MessageShape, decode_part
from synapse.dialects.paths import HUB


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
    """A PUT: the metadata that is given takes the place of what was there."""
    if shape.state is None and shape.metadata is None:
        raise InvalidField("", "there is nothing to change", hint='{"metadata": {…}} or {"state": "completed"}')
    metadata: dict[str, Any] = {} if shape.metadata is None else {REQUEST_METADATA: shape.metadata}
    state = None if shape.state is None else ASKED_STATES[shape.state]
    return about_task(task_id, partial(_change, metadata, state))


def _change(metadata: dict[str, Any], state: TaskState | None, task_id: str) -> ChangeTask:
    return ChangeTask(task_id=task_id, metadata=metadata, state=state)


def _states(words: str) -> frozenset[TaskState]:
    """The states that these words, with commas between, mean."""
    wanted = {word.strip() for word in words.split(",")} - {""}
    unknown = wanted - set(ASKED_STATES)
    if unknown:
        raise InvalidField("state", f"'{min(unknown)}' is not a state", hint="use one of " + ", ".join(ASKED_STATES))
    return frozenset(state for state, word in STATE_NAMES.items() if word in wanted)


R = TypeVar("R")


def plain_id(given: str) -> str:
    return given.rpartition(":")[2]


def about_task(given: str, request: Callable[[str], Request[R]]) -> Request[R]:
    """The request about that task; one whose agent is named is for that agent only."""
    agent, _, task_id = given.rpartition(":")
    return ForAgent(agent, request(task_id)) if agent else request(task_id)
