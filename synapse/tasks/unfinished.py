"""Settles tasks that do not finish by themselves: messages in doubt or past their deadline, and missed replies.

A message in doubt was typed without proof that the agent took it; a person decides about it, or its deadline passes.
A missed reply arrived while the asking agent had no host; it is read from the task of the agent that was asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from synapse.core.caller import Caller
from synapse.core.driver import Answered, SendOutcome, message_key
from synapse.core.errors import Conflict, InvalidRequest, PersonRequired, SynapseError
from synapse.core.events import AttentionChanged, ReceiptChanged, StateChanged, TaskEvent
from synapse.core.message import Message, MessageId, Role, Sender
from synapse.core.requests import ResolveTask, SendMessage
from synapse.core.store import TaskStore
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.core.task_metadata import waiter_noted
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.admission import envelope_line
from synapse.tasks.intake import Intake
from synapse.tasks.journal import Journal
from synapse.tasks.recovery import is_in_doubt, is_waiting_in_queue, last_prompt
from synapse.tasks.replies import Replies, reply_parts
from synapse.tasks.rules import may_approve
from synapse.tasks.waits import request_of
from synapse.tasks.worker import AgentWorker

log = logging.getLogger(__name__)

_CLEAR_SECONDS: Final = 4.0
"""How long a decision waits for the text of the message to be cleared from the agent's input."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_HAS_IT: Final = "its CLI has it in a conversation of the earlier program"


class InDoubt:
    """Settles messages in doubt by a person's decision, and ends messages whose deadline has passed."""

    def __init__(
        self,
        journal: Journal,
        worker: AgentWorker,
        replies: Replies,
        clock: Clock,
        *,
        agents_may_decide: bool,
        keys_may_decide: bool = True,
    ) -> None:
        self._journal = journal
        self._worker = worker
        self._replies = replies
        self._clock = clock
        self._agents_may_decide = agents_may_decide
        self._keys_may_decide = keys_may_decide
        self._deciding = asyncio.Lock()

    async def resolve(self, request: ResolveTask, task: Task, caller: Caller) -> Task:
        """Applies a person's decision about a task in doubt.

        Raises:
            PersonRequired: the caller may not decide for a person.
            Conflict: the task is not in doubt.
        """
        if not may_approve(caller, agents=self._agents_may_decide, keys=self._keys_may_decide):
            raise PersonRequired(
                "only a person may decide about a message in doubt",
                hint=f"{caller.objection}; run `synapse resolve {task.short_id}` in a shell of your own",
            )
        async with self._deciding:
            # Another decision, or proof, may have arrived first.
            task = await self._journal.load(task.id)
            if not _needs_decision(task):
                raise Conflict(f"task {task.short_id} is not in doubt; it is {task.state.value}")
            if _was_tried_since(task, request.asked_at):
                raise Conflict(
                    f"task {task.short_id} was typed again meanwhile, and is in doubt again",
                    hint="look at the agent's terminal, then decide about this try",
                )
            return await self._decide(request.verdict, task)

    @property
    def has_any(self) -> bool:
        """Whether a message is in doubt."""
        return any(map(_needs_decision, self._journal.open_tasks()))

    async def reconcile(self, ask: Callable[[str, str], Awaitable[SendOutcome]]) -> None:
        """Settles the doubts that an earlier host left, by what the CLI says.

        `ask` takes the key of a message, and the line that was typed for it, if no other message of its task has that.
        """
        for task in filter(_needs_decision, self._journal.open_tasks()):
            # Nobody decides meanwhile: the CLI would withdraw the message that a person lets us send again.
            async with self._deciding:
                if self._worker.current == task.id or not _needs_decision(await self._journal.load(task.id)):
                    continue
                outcome = await ask(message_key(task.id, last_prompt(task)), _own_line(task))
                # It may have been canceled.
                latest = await self._journal.load(task.id)
                if _needs_decision(latest):
                    await self._settle(latest, outcome)

    async def _settle(self, task: Task, outcome: SendOutcome) -> None:
        match outcome:
            case SendOutcome.WITHDRAWN:
                await self._queue_again(task, "signal", "its server had not begun it, and gave it back")
            case SendOutcome.TAKEN:
                now = self._clock.now()
                receipt = ReceiptChanged(
                    task_id=task.id, at=now, step=ReceiptStep.SUBMITTED, source="signal", evidence=_HAS_IT
                )
                note = "it took the message, and the host that followed its work is gone"
                task = await self._journal.record(receipt, *outcomes.agent_exited(task, now, note))
                self._replies.turn_ended(task)
            case SendOutcome.UNKNOWN:
                return

    async def expire(self) -> None:
        """Fails every message whose deadline passed without proof that the agent took it."""
        async with self._deciding:
            for task in self._journal.open_tasks():
                if self._is_overdue(task):
                    with suppress(Conflict):  # it has just ended, or there is proof now
                        await self._end(task, outcomes.expired(task, self._clock.now()))

    def _is_overdue(self, task: Task) -> bool:
        if not task.is_overdue(self._clock):
            return False
        # A message that is being typed is not stopped half way: soon there is proof, or doubt.
        return (is_waiting_in_queue(task) and task.id != self._worker.current) or _needs_decision(task)

    async def _decide(self, verdict: str, task: Task) -> Task:
        match verdict:
            case "delivered":
                return await self._confirm(task)
            case "retry":
                return await self._retry(task)
            case "fail":
                note = "a person decided that it was not delivered"
                now = self._clock.now()
                return await self._end(task, outcomes.ended(task, now, TaskState.FAILED, "resolved_failed", note))
            case other:
                raise InvalidRequest(f"verdict must be delivered, retry or fail, not {other!r}")

    async def _confirm(self, task: Task) -> Task:
        now = self._clock.now()
        receipt = ReceiptChanged(
            task_id=task.id, at=now, step=ReceiptStep.SUBMITTED, source="person", evidence="a person saw it delivered"
        )
        cleared = AttentionChanged(task_id=task.id, at=now, attention="")
        if self._worker.current == task.id:
            working = StateChanged(task_id=task.id, at=now, state=TaskState.WORKING)
            task = await self._journal.record(receipt, cleared, *(() if task.question else (working,)))
            self._worker.confirm(task.id)
            return task
        # Its turn is over, so no answer will be seen.
        done = outcomes.answered(task, now, Answered(parts=(), source="person"))
        task = await self._journal.record(receipt, *done)
        self._replies.turn_ended(task)
        return task

    async def _retry(self, task: Task) -> Task:
        await self._clear_input(task)
        await self._abandon_turn(task)
        return await self._queue_again(task, "person", "a person asked for a retry")

    async def _queue_again(self, task: Task, source: str, why: str) -> Task:
        now = self._clock.now()
        events: tuple[TaskEvent, ...] = (
            *outcomes.close_question(task, now, TaskState.SUBMITTED),
            ReceiptChanged(task_id=task.id, at=now, step=ReceiptStep.QUEUED, source=source, evidence=why),
            AttentionChanged(task_id=task.id, at=now, attention=""),
        )
        task = await self._journal.record(*events)
        message = last_prompt(task)
        await self._worker.enqueue(task, message, first=message is task.message)
        return task

    async def _clear_input(self, task: Task) -> None:
        """Clears the message from the agent's input if Enter was not pressed yet, so that it can be typed again.

        The driver clears only text that is certainly ours; other text in the input keeps the gate shut, and the retry
        waits.
        """
        if self._worker.current == task.id and self._worker.drop():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._worker.settled(task.id), _CLEAR_SECONDS)

    async def _end(self, task: Task, events: tuple[TaskEvent, ...]) -> Task:
        self._worker.withdraw(task.id)
        # If its text is still in the input, the driver clears it and the turn ends by itself.
        if not (self._worker.current == task.id and self._worker.drop()):
            await self._abandon_turn(task)
        task = await self._journal.record(*events)
        self._replies.turn_ended(task)
        return task

    async def _abandon_turn(self, task: Task) -> None:
        if not await self._worker.abandon(task.id):
            raise Conflict(f"task {task.short_id} is no longer in doubt: there is proof that the agent took it")


class ReplyRecovery:
    """Settles tasks that waited for another agent's reply when an earlier host of this inbox ended."""

    def __init__(self, journal: Journal, store: TaskStore, intake: Intake, clock: Clock) -> None:
        self._journal = journal
        self._store = store
        self._intake = intake
        self._clock = clock

    async def note_waiters_left(self, waiting: Iterable[Task]) -> None:
        """Records that the waiters of these tasks have left: most likely they ended with the program.

        Call it before this host can be reached, so that a waiter that comes back is recorded after it.
        """
        for task in waiting:
            await self._journal.record(waiter_noted(task, self._clock.now(), left=True))

    async def take(self, waiting: Iterable[Task]) -> None:
        """Completes the tasks whose reply is in the store, and fails those that the agent asked never received.

        Call it once this host is registered: later replies are then delivered to it.
        """
        for task in waiting:
            try:
                await self._settle(task)
            except SynapseError as error:
                # It was answered just now, or its reply stays in the store; the other tasks are settled.
                log.warning("reply_not_taken", extra={"task": task.id, "error": error.code})

    async def _settle(self, waiting: Task) -> None:
        if waiting.asks_person:
            return  # the person's answer comes to this host
        if waiting.waits_for and waiting.waits_for.machine:
            return  # the link brings the answer, or the reason why there is none
        asked = await request_of(waiting, self._store)
        if asked is None:
            note = "the program that waited for it is gone"
            await self._journal.record(*outcomes.agent_exited(waiting, self._clock.now(), note))
        elif asked.state.is_terminal:
            await self._intake.take_missed_reply(_reply(asked, waiting), Caller(agent_id=asked.agent_id))


def _needs_decision(task: Task) -> bool:
    return is_in_doubt(task) and bool(task.attention)


def _was_tried_since(task: Task, asked_at: datetime | None) -> bool:
    """Decides whether the message was typed after a person was asked; times on the wire have no microseconds."""
    return asked_at is not None and task.receipt is not None and task.receipt.at - asked_at >= _MILLISECOND


def _own_line(task: Task) -> str:
    """Returns the line that was typed for the last message of a task; empty if an earlier one had the same."""
    last = last_prompt(task)
    line = envelope_line(task, last)
    others = (message for message in task.history if message.message_id != last.message_id)
    return "" if any(envelope_line(task, message) == line for message in others) else line


def _reply(answered: Task, waiting: Task) -> SendMessage:
    marks = {"failed": answered.state is not TaskState.COMPLETED, "inferred": not answered.replied}
    return SendMessage(
        message=Message(message_id=MessageId(""), role=Role.AGENT, parts=reply_parts(answered)),
        dialect=waiting.dialect,
        sender=Sender(sender_id=answered.agent_id),
        in_reply_to=waiting.id,
        metadata={mark: True for mark, holds in marks.items() if holds},
    )
