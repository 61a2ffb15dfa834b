"""Changes that a caller makes to a task: cancel it, delete it, give it other metadata or an end of the caller's own.

What runs is stopped after the journal has decided who won: an answer that came first stays the answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from synapse.core.errors import IllegalTransition, InvalidField, TaskFinished, TaskNotCancelable
from synapse.core.events import MetadataChanged, StateChanged, TaskEvent, TaskHidden
from synapse.core.message import Json
from synapse.core.question import ANSWERED, QUESTION
from synapse.core.requests import ChangeTask
from synapse.core.task import Task, TaskState
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.admission import SENDER_INBOX, USER
from synapse.tasks.journal import Journal
from synapse.tasks.questions import Questions
from synapse.tasks.recovery import is_in_doubt
from synapse.tasks.replies import REPLIED, Replies
from synapse.tasks.rules import cancellation
from synapse.tasks.waits import WAITER_LEFT, WAITS_FOR, WAITS_FOR_INBOX
from synapse.tasks.worker import AgentWorker

OUR_KEYS: Final = frozenset(
    {
        QUESTION,
        ANSWERED,
        USER,
        REPLIED,
        WAITS_FOR,
        WAITS_FOR_INBOX,
        WAITER_LEFT,
        "sender",
        "sender_verified",
        "sender_task_id",
        SENDER_INBOX,
        "response_expected",
        "in_reply_to",
        "ttl",
        "reason",
    }
)
"""Keys of a task's metadata that Synapse goes by, or shows to people: no caller rewords them."""


class TaskChanges:
    """Changes the tasks of one agent."""

    def __init__(
        self, journal: Journal, worker: AgentWorker, questions: Questions, replies: Replies, clock: Clock
    ) -> None:
        self._journal = journal
        self._worker = worker
        self._questions = questions
        self._replies = replies
        self._clock = clock

    async def cancel(self, task: Task) -> Task:
        """Cancel what waits or runs. Raises TaskNotCancelable."""
        facts = cancellation(task, self._clock.now())
        try:
            canceled = await self._journal.record(*facts)
        except (IllegalTransition, TaskFinished) as lost:
            raise TaskNotCancelable(f"task {task.short_id} has ended meanwhile") from lost
        await self._stop(task, canceled)
        return canceled

    async def change(self, request: ChangeTask, task: Task) -> Task:
        """Do what `request` says of the task. Raises InvalidField, IllegalTransition or TaskFinished."""
        facts = changes(request, task, self._clock.now())
        if not facts:
            return task
        changed = await self._journal.record(*facts)
        if changed.state.is_terminal and not task.state.is_terminal:
            await self._stop(task, changed)
        return changed

    async def delete(self, task: Task) -> Task:
        """Cancel the task if it has not ended, and take it out of all views; the log keeps it."""
        try:
            deleted = await self._journal.record(*deletion(task, self._clock.now()))
        except (IllegalTransition, TaskFinished):
            # It has ended meanwhile, so there is nothing to cancel.
            deleted = await self._journal.record(TaskHidden(task_id=task.id, at=self._clock.now()))
        if not task.state.is_terminal:
            await self._stop(task, deleted)
        return deleted

    async def _stop(self, task: Task, ended: Task) -> None:
        """Tell who waits for it; take it out of the queue, or out of the agent's hands."""
        self._replies.turn_ended(ended)
        if not self._worker.withdraw(task.id) and self._worker.current == task.id:
            await self._stop_turn(task)

    async def _stop_turn(self, task: Task) -> None:
        # A turn in doubt may never end by itself, so nobody waits for that; what still is in the input is taken out.
        if task.attention and is_in_doubt(task) and (self._worker.drop() or await self._worker.abandon(task.id)):
            return
        # Nothing is interrupted while a dialog is open; one that cannot be denied stays visible for a person.
        if not await self._questions.turn_down():
            return
        if not self._worker.drop():
            await self._worker.interrupt()


def deletion(task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """What is recorded when a task is deleted."""
    canceled: tuple[TaskEvent, ...] = ()
    if not task.state.is_terminal:
        canceled = outcomes.ended(task, now, TaskState.CANCELED, "canceled", "deleted by request")
    return (*canceled, TaskHidden(task_id=task.id, at=now))


def changes(request: ChangeTask, task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """What is recorded when a caller changes a task; nothing when it is so already.

    Raises:
        InvalidField: the metadata has keys that are not the caller's.
        IllegalTransition: a caller cannot move the task there.
    """
    noted: tuple[TaskEvent, ...] = ()
    if request.metadata:
        _check_keys(request.metadata)
        noted = (MetadataChanged(task_id=task.id, at=now, metadata=request.metadata),)
    return (*noted, *_moved(request.state, task, now))


def _check_keys(metadata: Json) -> None:
    if ours := sorted(OUR_KEYS & metadata.keys()):
        raise InvalidField(f"metadata.{ours[0]}", "is kept by Synapse itself", hint="choose another key")


def _moved(wanted: TaskState | None, task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    if wanted is None or task.state in _SAME.get(wanted, {wanted}):
        return ()
    if task.state.is_terminal or wanted not in (TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED):
        raise IllegalTransition(
            f"task {task.short_id} is {task.state.value}; it cannot be made {wanted.value}",
            hint="a task that has not ended can be completed, failed or canceled by request",
        )
    if wanted is TaskState.WORKING:
        return (StateChanged(task_id=task.id, at=now, state=wanted, note="taken up by request"),)
    return outcomes.ended(task, now, wanted, "by_request", f"{wanted.value} by request")


_SAME: Final = {
    TaskState.WORKING: {TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED},
    TaskState.FAILED: {TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED},
}
"""States for which a dialect may have one word: whoever puts back what it was shown changes nothing."""
