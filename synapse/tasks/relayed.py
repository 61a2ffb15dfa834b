"""Decides what messages between machines do to the tasks here: those that the link takes back, and those that answer.

    SendMessage(opens=…)         opens the task of that id, or finds the one that the message opened before
    VoidMessage                  ends that task, or claims the message's id with a canceled one
    SendMessage(in_reply_to=…)   ends a task here that waits for an agent of the caller's machine

The link may send each of them again: the second time nothing changes, and the answer is the same.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from synapse.core.caller import GATEWAY_SCOPE, Caller
from synapse.core.errors import InvalidField, SenderMismatch, TaskNotFound
from synapse.core.events import TaskEvent
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import SendMessage, VoidMessage
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import ReceiptStep, Task, TaskId, TaskState
from synapse.core.task_metadata import answered_with, ended_by_message, relayed_answer_noted
from synapse.tasks import outcomes

_REASON: Final = re.compile(r"[a-z_]{1,40}")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_new_task_id(task_id: str, caller: Caller) -> None:
    """Raises InvalidField unless the caller may choose the id of the task that its message opens, and it is a UUID."""
    # An id of another form could begin like those of other tasks, which people name by their beginnings.
    if not caller.machine or not _UUID.fullmatch(task_id):
        raise InvalidField("opens", "only the link of another machine chooses the id of a task, and it is a UUID")


def withdrawal(task: Task, request: VoidMessage, now: datetime) -> tuple[TaskEvent, ...]:
    """Returns the events that end a task because its sender on another machine took its message back."""
    is_untouched = task.receipt is None or task.receipt.step is ReceiptStep.QUEUED
    if request.expired and is_untouched:
        return outcomes.expired(task, now)
    note = "it expired before its sender heard of it" if request.expired else "canceled by its sender"
    return outcomes.ended(task, now, TaskState.CANCELED, "canceled", note)


def withdrawn_send(request: VoidMessage) -> SendMessage:
    """Returns what opens a task that only claims the id of a message that will not arrive any more."""
    why = "expired" if request.expired else "taken back"
    parts = (TextPart(text=f"({why} before it arrived)"),)
    return SendMessage(
        message=Message(message_id=MessageId(request.message_id), role=Role.USER, parts=parts),
        dialect="synapse",
        sender=request.sender,
        context_id=request.context_id,
        metadata={GATEWAY_SCOPE: request.gateway_scope} if request.gateway_scope else {},
        opens=request.opens,
    )


async def find_relayed(message_id: str, caller: Caller, inbox: str, store: TaskStore) -> TaskId | None:
    """Returns the task that a message of the caller's machine opened, or took back, or ended as a reply; else None."""
    known = await store.find_message(inbox, caller.scope, message_id)
    if known is not None:
        return known.task_id
    page = await store.list(TaskQuery(inbox=inbox, metadata=ended_by_message(message_id)))
    return next((task.id for task in page.tasks if _waits_for_machine(task, caller)), None)


def is_taken_reply(waiting: Task, request: SendMessage, caller: Caller) -> bool:
    """Decides whether the request is a copy of the reply from another machine that has ended the task."""
    message_id = request.message.message_id
    return bool(message_id) and _waits_for_machine(waiting, caller) and answered_with(waiting) == message_id


def require_awaited(waiting: Task, request: SendMessage, caller: Caller) -> None:
    """Raises unless the task waits for an agent of the caller's machine.

    Raises:
        SenderMismatch: it waits for an agent elsewhere, or for none.
        TaskNotFound: it has ended.
    """
    if not _waits_for_machine(waiting, caller):
        whom = waiting.waits_for.agent_id if waiting.waits_for else "no agent"
        raise SenderMismatch(f"{whom} was asked, so no agent of {caller.machine} can answer", hint="send a new message")
    if waiting.state.is_terminal:
        raise TaskNotFound(request.in_reply_to)


def end_of_wait(waiting: Task, request: SendMessage, now: datetime) -> tuple[TaskEvent, ...]:
    """Returns the events that end a waiting task with a reply from another machine, and record the reply's id."""
    noted = relayed_answer_noted(waiting, now, request.message.message_id)
    marks, reason = reply_marks(request), request.metadata.get("end_reason")
    if all(marks.values()) and isinstance(reason, str) and _REASON.fullmatch(reason):
        return (noted, *outcomes.ended(waiting, now, TaskState.FAILED, reason, request.message.text))
    return (noted, *outcomes.replied(waiting, now, request.message, **marks))


def reply_marks(request: SendMessage) -> dict[str, bool]:
    """Returns what the metadata of a reply says: whether the agent `failed`, and whether its words are `inferred`."""
    return {mark: request.metadata.get(mark) is True for mark in ("failed", "inferred")}


def _waits_for_machine(waiting: Task, caller: Caller) -> bool:
    asked = waiting.waits_for
    return not waiting.queued and asked is not None and asked.machine == caller.machine
