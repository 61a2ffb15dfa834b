"""Rules that all task services share: which tasks a caller sees, which requests a task allows, how many may wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from synapse.core.address import split_inbox, split_machine
from synapse.core.caller import APPROVE, GATEWAY_SCOPE, MACHINE_SCOPE, Caller
from synapse.core.errors import (
    InvalidRequest,
    MessageIdReused,
    NotFound,
    QueueFull,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from synapse.core.events import TaskEvent
from synapse.core.message import Message
from synapse.core.requests import GetMessage, ListTasks, Request, SendMessage
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.task_metadata import names_sender, sent_by
from synapse.core.types import Clock, Deadline, deadline_after, deadline_at
from synapse.tasks import outcomes

VOID: Final = "void"
"""Stands for the digest of a message that was taken back before it arrived: its content is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many messages may wait, and for how long."""

    queue: int = 1000
    ttl: timedelta | None = None
    pair_per_minute: int = 0
    """Messages per minute between two agents; further ones are held. 0 means no limit."""

    @property
    def ttl_seconds(self) -> float | None:
        return self.ttl.total_seconds() if self.ttl else None


def unsupported(who: str, request: Request[object]) -> UnsupportedOperation:
    """Returns the error for a request that a service does not support."""
    return UnsupportedOperation(f"{who} does not support {type(request).__name__}")


def visible_scope(caller: Caller) -> str:
    """Returns the scope that a query of the store is limited to; empty for a caller that sees all."""
    return "" if caller.sees_all else caller.scope


def may_see(caller: Caller, task: Task) -> bool:
    """Decides whether a task is visible to the caller; an invisible one looks missing."""
    if not caller.sees(task.scope):
        return False
    return not caller.only_from or not split_inbox(task.inbox)[1] or _was_sent_from(task, caller.only_from)


def _was_sent_from(task: Task, machine: str) -> bool:
    """Decides whether `machine` has sent the message that opened a task on another machine."""
    if not names_sender(task.metadata):
        return True  # its machine has not told of it yet: only the gateway that has sent the message knows it
    sender_machine = split_machine(task.sender.sender_id)[1]
    # While the outbox here keeps the message of a gateway's caller, its sender is none of another machine.
    is_kept = not sender_machine and GATEWAY_SCOPE in task.metadata
    return is_kept or sender_machine == machine or task.scope == MACHINE_SCOPE + machine


def query_of(request: ListTasks, caller: Caller, inbox: str = "") -> TaskQuery:
    """Returns the store query for ListTasks, limited to what the caller sees; an empty inbox means all agents."""
    return TaskQuery(
        inbox=inbox,
        scope=visible_scope(caller),
        states=request.states,
        context_id=request.context_id,
        parent_id=request.parent_id,
        updated_after=request.updated_after,
        metadata={**request.metadata, **(sent_by(request.user) if request.user else {})},
        expired=request.expired,
        text=request.text.strip(),
        limit=request.limit,
        cursor=request.cursor,
    )


def require_visible(task: Task, caller: Caller, wanted: str) -> Task:
    """Returns the task. Raises TaskNotFound(wanted) when it is deleted or not visible to the caller."""
    if task.hidden or not may_see(caller, task):
        raise TaskNotFound(wanted)
    return task


async def find_message(request: GetMessage, caller: Caller, store: TaskStore, inbox: str = "") -> TaskId:
    """Returns the id of the task that contains the message; an empty inbox means any. Raises NotFound."""
    known = await store.find_message(inbox, visible_scope(caller), request.message_id)
    if known is None:
        raise NotFound(f"no message '{request.message_id}'")
    return known.task_id


async def find_repeated(message: Message, digest: str, scope: str, inbox: str, store: TaskStore) -> TaskId | None:
    """Returns the task that an earlier copy of this message opened, or that took the message back; else None.

    Raises MessageIdReused when the id was used before with other content.
    """
    known = await store.find_message(inbox, scope, message.message_id)
    if known is None:
        return None
    if known.digest not in (digest, VOID):
        raise MessageIdReused(f"message id '{message.message_id}' was used before with other content")
    return known.task_id


def require_room_in_queue(waiting: int, limit: int, agent: str) -> None:
    """Raises QueueFull when the queue of `agent` has reached its limit."""
    if waiting >= limit:
        raise QueueFull(
            f"{agent} has {waiting} messages waiting",
            hint="`synapse queue` shows them; `queue_limit` in the settings raises the limit",
        )


def deadline_of(request: SendMessage, default_seconds: float | None, clock: Clock) -> Deadline | None:
    """Returns when the message expires: at its own deadline or ttl, else after the default. Raises InvalidRequest."""
    if request.deadline is not None:
        return deadline_at(request.deadline, clock)
    seconds = request.metadata.get("ttl")
    if seconds is None:
        return deadline_after(default_seconds, clock) if default_seconds else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 10**9:
        raise InvalidRequest(f"metadata.ttl must be a number of seconds above 0, not {seconds!r}")
    return deadline_after(seconds, clock)


def may_approve(caller: Caller, *, agents: bool, keys: bool) -> bool:
    """Decides whether the caller may make a decision of a person: a person may, and a key that says so explicitly.

    So may a person on another machine that is allowed to approve; its agents never may. `agents` and `keys` are what
    the settings say: whether agents here may decide too, and whether keys and other machines may at all.
    """
    if caller.machine and not caller.is_person_elsewhere:
        return False
    if not caller.machine and (caller.may_decide or agents):
        return True
    return keys and caller.is_granted(APPROVE)


def require_updates(task: Task, after: int | None) -> None:
    """Raises UnsupportedOperation for a task that has ended, unless its stream is resumed `after` a seq."""
    if task.state.is_terminal and after is None:
        raise UnsupportedOperation(f"task {task.short_id} is {task.state.value}; it has no more updates")


def cancellation(task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """Returns the events that cancel the task. Raises TaskNotCancelable when it has ended."""
    if task.state.is_terminal:
        raise TaskNotCancelable(f"task {task.short_id} is {task.state.value}")
    return outcomes.ended(task, now, TaskState.CANCELED, "canceled", "canceled by request")


def is_settled(state: TaskState) -> bool:
    """Decides whether a task in this state has ended or waits for input, so that it does not change by itself."""
    return state.is_terminal or state.is_interrupted
