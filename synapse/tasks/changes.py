"""Changes that a caller makes to a task: cancels or deletes it, sets metadata, or sets its state.

The turn is stopped only after the journal has recorded the change: an answer that was recorded first stays.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from synapse.core.errors import IllegalTransition, InvalidField, TaskFinished, TaskNotCancelable
from synapse.core.events import MetadataChanged, StateChanged, TaskEvent, TaskHidden
from synapse.core.requests import ChangeTask, VoidMessage
from synapse.core.task import Task, TaskState
from synapse.core.task_metadata import RESERVED_KEYS
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.journal import Journal
from synapse.tasks.recovery import is_in_doubt
from synapse.tasks.relayed import withdrawal
from synapse.tasks.rules import cancellation

if TYPE_CHECKING:
    # Only for hosts: a link and `StoppedTasks` use the functions below, and run no worker.
    from synapse.tasks.questions import Questions
    from synapse.tasks.replies import Replies
    from synapse.tasks.worker import AgentWorker

_EQUIVALENT_STATES: Final = {
    TaskState.WORKING: {TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED},
    TaskState.FAILED: {TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED},
}
"""States for which a dialect may have one word; a caller that writes back the word it read changes nothing."""


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
        """Cancels a task that has not ended. Raises TaskNotCancelable."""
        return await self._end(task, cancellation(task, self._clock.now()))

    async def void(self, task: Task, request: VoidMessage) -> Task:
        """Ends a task whose sender took its message back; returns one that has ended as it is."""
        while not task.state.is_terminal:
            try:
                return await self._end(task, withdrawal(task, request, self._clock.now()))
            except TaskNotCancelable:
                task = await self._journal.load(task.id)
        return task

    async def _end(self, task: Task, events: tuple[TaskEvent, ...]) -> Task:
        try:
            ended = await self._journal.record(*events)
        except (IllegalTransition, TaskFinished) as lost:
            raise TaskNotCancelable(f"task {task.short_id} has ended meanwhile") from lost
        await self._stop(task, ended)
        return ended

    async def change(self, request: ChangeTask, task: Task) -> Task:
        """Sets the task's metadata and state. Raises InvalidField, IllegalTransition or TaskFinished."""
        events = changes(request, task, self._clock.now())
        if not events:
            return task
        changed = await self._journal.record(*events)
        if changed.state.is_terminal and not task.state.is_terminal:
            await self._stop(task, changed)
        return changed

    async def delete(self, task: Task) -> Task:
        """Cancels the task if it has not ended, and hides it from all lists; the log keeps it."""
        try:
            deleted = await self._journal.record(*deletion(task, self._clock.now()))
        except (IllegalTransition, TaskFinished):
            # It has ended meanwhile, so there is nothing to cancel.
            deleted = await self._journal.record(TaskHidden(task_id=task.id, at=self._clock.now()))
        if not task.state.is_terminal:
            await self._stop(task, deleted)
        return deleted

    async def _stop(self, task: Task, ended: Task) -> None:
        """Notifies the sender that waits for it; removes it from the queue, or stops its turn."""
        self._replies.turn_ended(ended)
        if not self._worker.withdraw(task.id) and self._worker.current == task.id:
            await self._stop_turn(task)

    async def _stop_turn(self, task: Task) -> None:
        # A turn in doubt may never end by itself, so it is abandoned; text that is still in the input is cleared.
        if task.attention and is_in_doubt(task) and (self._worker.drop() or await self._worker.abandon(task.id)):
            return
        # The driver does not interrupt while a dialog is open; one that cannot be denied stays open for a person.
        if not await self._questions.deny():
            return
        if not self._worker.drop():
            await self._worker.interrupt()


def deletion(task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """Returns the events that delete the task."""
    canceled: tuple[TaskEvent, ...] = ()
    if not task.state.is_terminal:
        canceled = outcomes.ended(task, now, TaskState.CANCELED, "canceled", "deleted by request")
    return (*canceled, TaskHidden(task_id=task.id, at=now))


def changes(request: ChangeTask, task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """Returns the events that change the task as requested; none for a state that it has already.

    Raises:
        InvalidField: the metadata contains keys that Synapse reserves.
        IllegalTransition: a caller cannot set this state.
    """
    noted: tuple[TaskEvent, ...] = ()
    if request.metadata:
        if reserved := sorted(RESERVED_KEYS & request.metadata.keys()):
            raise InvalidField(f"metadata.{reserved[0]}", "is reserved for Synapse", hint="choose another key")
        noted = (MetadataChanged(task_id=task.id, at=now, metadata=request.metadata),)
    return (*noted, *_state_events(request.state, task, now))


def _state_events(wanted: TaskState | None, task: Task, now: datetime) -> tuple[TaskEvent, ...]:
    if wanted is None or task.state in _EQUIVALENT_STATES.get(wanted, {wanted}):
        return ()
    if task.state.is_terminal or wanted not in (TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED):
        raise IllegalTransition(
            f"task {task.short_id} is {task.state.value}; it cannot be made {wanted.value}",
            hint="a task that has not ended can be completed, failed or canceled by request",
        )
    if task.asks_person and wanted is TaskState.COMPLETED:
        # Whoever asked would take the end for a person's answer.
        raise IllegalTransition(
            f"task {task.short_id} asks a person; only the answer completes it",
            hint=f'answer it (`synapse answer {task.short_id} "…"`), or cancel it',
        )
    if wanted is TaskState.WORKING:
        return (StateChanged(task_id=task.id, at=now, state=wanted, note="working by request"),)
    return outcomes.ended(task, now, wanted, "by_request", f"{wanted.value} by request")
