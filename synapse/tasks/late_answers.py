"""Decides who gets the answer of a task that waits: its waiter, or the agent as a message because its waiter has left.

    W ends ─┬─ its waiter reads ──────────────────► nothing is typed
            ├─ its waiter has left ───────────────► message M delivers the answer
            └─ its waiter left, and no answer came ► message M is a notice of Synapse's that says so

The decision is recorded together with the end of W, or behind it, so it is always exactly one of them. W names M before
M is opened: a host that ends between the two records leaves M to its successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol

from synapse.core.address import split_machine
from synapse.core.caller import Caller
from synapse.core.errors import TaskNotFound
from synapse.core.events import TaskEvent
from synapse.core.message import Message, MessageId, Role, Sender, TextPart, text_of
from synapse.core.requests import SendMessage
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.task_metadata import answer_delivered, answer_of, waiter_noted, waiter_released
from synapse.core.text import neutralise, safe_line
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.deferral import DeferredReplies
from synapse.tasks.feed import Feed
from synapse.tasks.journal import Journal
from synapse.tasks.person_questions import late_answer
from synapse.tasks.replies import reply_parts
from synapse.tasks.turn_recorder import StoreRetry


class LateMessages(Protocol):
    """Opens and queues the messages that deliver late answers: the part of `Intake` that is needed here."""

    def accepts(self, message: Message) -> bool:
        """Decides whether the message can be typed."""
        ...

    def expects(self, waiting: Task) -> bool:
        """Decides whether the agent may have asked for the answer of `waiting`; any process can open such a task."""
        ...

    async def open_late_answer(self, reply: SendMessage, author: Caller, waiting: Task) -> None:
        """Queues the reply to `waiting` as its task `delivered_as`; no limit refuses it."""
        ...

    async def open_notice(self, text: str, waiting: Task) -> None:
        """Queues a message of Synapse's about `waiting` as its task `delivered_as`."""
        ...


class LateAnswers:
    """The answers of one agent's waiting tasks."""

    def __init__(
        self,
        messages: LateMessages,
        *,
        journal: Journal,
        feed: Feed,
        deferred: DeferredReplies,
        clock: Clock,
        new_task_id: Callable[[], str],
    ) -> None:
        self._journal = journal
        self._feed = feed
        self._deferred = deferred
        self._clock = clock
        self._new_task_id = new_task_id
        self._messages = messages
        self._store_retry = StoreRetry(clock)
        self._deliveries: set[asyncio.Future[None]] = set()

    async def record_reply(self, events: Sequence[TaskEvent], reply: SendMessage, author: Caller) -> Task:
        """Records the reply that ends a waiting task; when its waiter has left, queues the reply too.

        A failure that the agent which was asked did not report itself is a notice of Synapse's. Raises what
        `Journal.record` raises.
        """
        # A reply with parts that the agent does not accept can still be read: it is the task's answer.
        decide = self._who_gets_it(can_be_typed=self._messages.accepts(reply.message))
        task = await self._journal.record(*events, then=decide)
        if task.delivered_as:
            is_own_words = not all(reply.metadata.get(key) is True for key in ("failed", "inferred"))
            await self._finish(
                self._deliver(task, reply, author) if is_own_words else self._deliver_notice(task),
            )
        return task

    async def record_persons_answer(self, events: Sequence[TaskEvent], person: Caller, *, digest: str = "") -> Task:
        """Records the answer that ends a question to a person; when its waiter has left, queues the answer too.

        Raises what `Journal.record` raises.
        """
        task = await self._journal.record(*events, digest=digest, then=self._who_gets_it(can_be_typed=True))
        if task.delivered_as:
            reply, _ = _recorded_reply(task)
            await self._finish(self._deliver(task, reply, person))
        return task

    async def note_waiter(self, waiting: Task, has_left: Callable[[], bool]) -> Task:
        """Records whether the waiter has left, as `has_left` decides behind all earlier records."""

        def decide(now: Task) -> tuple[TaskEvent, ...]:
            left = has_left()
            is_known = now.state.is_terminal or now.waiter_released or now.waiter_left is left
            return () if is_known else (waiter_noted(now, self._clock.now(), left=left),)

        return await self._journal.record_if(waiting.id, decide)

    async def waiter_left(self, waiting: Task, *, has_read: bool) -> None:
        """Records that the last reader of a waiting task has left; an answer that it has not read becomes a message."""
        await self._finish(self._note_left(waiting, has_read=has_read))

    async def notify_unanswered(self, waiting: Task) -> None:
        """Queues a notice: a wait that the agent had left ended without an answer."""

        def decide(ended: Task) -> tuple[TaskEvent, ...]:
            is_over = ended.delivered_as or not self._messages.expects(ended)
            return () if is_over else (answer_delivered(ended, self._clock.now(), message_task),)

        message_task = self._new_task_id()
        task = await self._store_retry.retry_until_stored(lambda: self._journal.record_if(waiting.id, decide))
        if task.delivered_as == message_task:
            await self._deliver_notice(task)

    async def release(self, waiting: Task) -> None:
        """Ends the wait for a task as `LeaveTask` does, unless the task has ended."""

        def decide(now: Task) -> tuple[TaskEvent, ...]:
            is_over = now.state.is_terminal or now.waiter_released
            return () if is_over else (waiter_released(now, self._clock.now()),)

        await self._store_retry.retry_until_stored(lambda: self._journal.record_if(waiting.id, decide))

    async def resume(self, ended: Task) -> None:
        """Opens the message of a task that has ended, if the earlier host ended before it did so."""
        if not ended.delivered_as:
            return
        try:
            await self._journal.load(TaskId(ended.delivered_as))
        except TaskNotFound:
            await self._deliver_recorded(ended)

    def _who_gets_it(self, *, can_be_typed: bool) -> Callable[[Task], tuple[TaskEvent, ...]]:
        """Returns the decision about the answer of a waiting task, taken together with its record."""
        message_task = self._new_task_id()

        def decide(ended: Task) -> tuple[TaskEvent, ...]:
            if self._feed.is_followed(ended.id) and not ended.waiter_released:
                return (waiter_noted(ended, self._clock.now(), left=False),) if ended.waiter_left else ()
            is_typed = can_be_typed and self._messages.expects(ended)
            return (answer_delivered(ended, self._clock.now(), message_task),) if is_typed else ()

        return decide

    async def _note_left(self, waiting: Task, *, has_read: bool) -> None:
        now = await self.note_waiter(waiting, lambda: not self._feed.is_followed(waiting.id))
        if now.state.is_terminal and not has_read:
            await self._deliver_unread(now)
        if not self._feed.is_followed(waiting.id):
            self._deferred.nobody_waits(waiting.id)

    async def _deliver_unread(self, waiting: Task) -> None:
        def decide(ended: Task) -> tuple[TaskEvent, ...]:
            is_read = ended.waiter_left or ended.waiter_released or self._feed.is_followed(ended.id)
            is_typed = _is_reply(ended) and not is_read and self._messages.expects(ended)
            return (answer_delivered(ended, self._clock.now(), message_task),) if is_typed else ()

        message_task = self._new_task_id()
        task = await self._journal.record_if(waiting.id, decide)
        if task.delivered_as == message_task:
            await self._deliver_recorded(task)

    async def _deliver_recorded(self, waiting: Task) -> None:
        """Queues what an ended task has recorded: its reply or, if that is none or cannot be typed, a notice."""
        reply, author = _recorded_reply(waiting)
        if _is_reply(waiting) and self._messages.accepts(reply.message):
            await self._deliver(waiting, reply, author)
        else:
            await self._deliver_notice(waiting)

    async def _deliver(self, waiting: Task, reply: SendMessage, author: Caller) -> None:
        # A new message: its id may have been used before in a message to this agent.
        request = replace(reply, in_reply_to="", message=replace(reply.message, message_id=MessageId("")))
        await self._store_retry.retry_until_stored(lambda: self._messages.open_late_answer(request, author, waiting))

    async def _deliver_notice(self, waiting: Task) -> None:
        text = _notice(waiting)
        await self._store_retry.retry_until_stored(lambda: self._messages.open_notice(text, waiting))

    async def _finish(self, delivery: Coroutine[Any, Any, None]) -> None:
        """Runs `delivery` to its end, also when the caller is cancelled: its first record promises the next one."""
        running = asyncio.ensure_future(delivery)
        self._deliveries.add(running)
        running.add_done_callback(self._deliveries.discard)
        await asyncio.shield(running)


def _is_reply(ended: Task) -> bool:
    """Decides whether a task that waited has ended with a reply, not without one."""
    return ended.state is TaskState.COMPLETED or ended.reason == outcomes.REPLIED_FAILED


def _recorded_reply(waiting: Task) -> tuple[SendMessage, Caller]:
    """Returns the reply that an ended task has, and its author: the agent or person that was asked, if it is known."""
    if waiting.asks_person:
        question, by = answer_of(waiting)
        text = late_answer(question, waiting, text_of(reply_parts(waiting)))
        message = Message(message_id=MessageId(""), role=Role.USER, parts=(TextPart(text=text),))
        return SendMessage(message=message, dialect=waiting.dialect), Caller(
            via_socket=by == "person", name="" if by == "person" else by
        )
    asked = waiting.waits_for.agent_id if waiting.waits_for else ""
    message = Message(message_id=MessageId(""), role=Role.AGENT, parts=reply_parts(waiting))
    sender = Sender(sender_id=asked) if asked else None
    machine = waiting.waits_for.machine if waiting.waits_for else ""
    there = Caller(machine=machine, remote_sender=split_machine(asked)[0])
    author = there if machine else Caller(agent_id=asked)
    return SendMessage(message=message, dialect=waiting.dialect, sender=sender), author


def _notice(waiting: Task) -> str:
    """Returns what Synapse tells an agent about a wait that ended without an answer which can be typed."""
    asked = waiting.waits_for.agent_id if waiting.waits_for else ""
    whom = "question to a person" if waiting.asks_person else f"request to {asked}" if asked else "request"
    # The reason may be another agent's words: on one line, and marked as a quotation, it cannot pass for ours.
    unread = "the answer has parts that cannot be typed; its task has them"
    reason = unread if waiting.state is TaskState.COMPLETED else waiting.note or waiting.state.value
    why = neutralise(safe_line(reason)).replace('"', "'")
    return f'Your {whom} (task {waiting.short_id}) was not answered: "{why}"'
