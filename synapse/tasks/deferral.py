"""Keeps a request open whose turn ended while the agent still waits for an answer that will arrive as a message.

The agent asked another agent, or a person, in the turn of request R, and the waiter of its waiting task W left before
the answer came. The end of R's turn then says no more than "still waiting", so it is not R's answer:

    R's turn ends ─► deferred: R stays `working` ─► W ends ─► message M delivers it ─► M's turn ends ─► so does R
                         ▲                                                                  │
                         └────────────── M's turn left another wait, or more messages come ─┘

An explicit reply in the turn of R or of M answers R, as ever. A wait that ends without an answer (its agent is lost, it
was canceled) is delivered too, as a message of Synapse's, so a deferred request always goes on. If the agent that was
asked lives and does not answer, R stays open, as a task of a slow agent does. A waiter that comes back and reads the
answer leaves no message to wait for: R then ends as its own turn did.

All of this is memory: when the host ends, so does the program that waits, and its requests fail as those in a turn do.
Only the end of a request whose last message M had ended is made up for: see `unrecorded_ends`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from synapse.core.driver import Answered
from synapse.core.errors import TaskNotFound
from synapse.core.events import StateChanged, TaskEvent, Update
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.task_metadata import asking
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.journal import Journal

WAITING_FOR_REPLY: Final = "waiting_for_reply"
"""The reason of a request in `working` whose turn is over."""
_MOST_WAITS: Final = 500


class DeferredReplies:
    """The deferred requests of one agent, the waits that they depend on, and the messages that deliver the answers."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._record_end: Callable[..., None] = _not_started
        self._waits: dict[TaskId, str] = {}
        """The waiting tasks, with the request in whose turn each was opened, or an empty string."""
        self._messages: dict[TaskId, TaskId] = {}
        """The tasks that deliver an answer and have not ended, with the request that depends on it."""
        self._causes: dict[TaskId, set[TaskId]] = {}
        """Of each request in whose turn the agent asked: its waits and messages."""
        self._deferred: dict[TaskId, Answered] = {}
        """The requests whose turn is over, with the end of that turn."""
        self._withdrawn: set[TaskId] = set()
        """The waits that the agent itself canceled."""
        self._reported: set[TaskId] = set()
        """The waits whose end without an answer is being delivered."""
        # Without a limit: at most one entry for each waiting task.
        self._unanswered: asyncio.Queue[Task] = asyncio.Queue()
        self._interrupted: asyncio.Queue[Task] = asyncio.Queue()
        """The waits whose turn was interrupted."""
        journal.listen(self._on_update, self._is_watched)

    def start(self, record_end: Callable[..., None]) -> None:
        """Sets how the end of a request is recorded: without waiting, but surely (see TurnRecorder.add)."""
        self._record_end = record_end

    def request_of(self, current: TaskId | None) -> TaskId | None:
        """Returns the request that the turn of the task `current` works for: a deferred one, or `current` itself."""
        return None if current is None else self._messages.get(current, current)

    def wait_opened(self, waiting: Task) -> None:
        """Notes a task that waits for an answer."""
        self._waits[waiting.id] = waiting.asked_in
        if waiting.asked_in:
            self._causes.setdefault(TaskId(waiting.asked_in), set()).add(waiting.id)

    def wait_withdrawn(self, waiting: Task) -> None:
        """Notes that the agent itself cancels a wait: it need not be told, unless a request goes on only by that."""
        if waiting.id in self._waits:
            self._withdrawn.add(waiting.id)

    def nobody_waits(self, wait: TaskId) -> None:
        """Notes that the last reader of a waiting task has left; if that has ended, no message delivers its end."""
        task = self._journal.known(wait)
        has_ended = task is None or task.state.is_terminal
        if wait in self._waits and has_ended and wait not in self._reported:
            self._end_alone(self._drop_wait(wait))

    def defer(self, request: Task, end: Answered) -> tuple[TaskEvent, ...]:
        """Returns the events that keep a request open whose turn has ended; none if it depends on no answer."""
        note = self._awaited(request.id)
        if not note:
            return ()
        self._deferred[request.id] = end
        return self._waits_on(request, note)

    def deferred(self) -> Sequence[Task]:
        """Returns the requests that stay open although their turn is over."""
        known = [self._journal.known(task_id) for task_id in self._deferred]
        return [task for task in known if task is not None and not task.state.is_terminal]

    async def run(self, notify: Callable[[Task], Awaitable[None]], release: Callable[[Task], Awaitable[None]]) -> None:
        """Calls `notify` with each wait that ended without an answer after its waiter had left, until cancelled.

        Calls `release` with each wait whose turn was interrupted.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(_for_each(self._unanswered, notify))
            group.create_task(_for_each(self._interrupted, release))

    def _is_watched(self, task_id: TaskId) -> bool:
        return task_id in self._waits or task_id in self._messages or task_id in self._causes

    def _on_update(self, update: Update) -> None:
        task_id = update.task.id
        # The whole append: an update has only the events up to its own.
        task = self._journal.known(task_id) or update.task
        if not task.state.is_terminal:
            return
        if task_id in self._causes:
            self._forget(task)
        if task_id in self._waits:
            self._on_wait_ended(task)
        if task_id in self._messages:
            self._on_message_ended(task)

    def _on_wait_ended(self, waiting: Task) -> None:
        request = TaskId(self._waits[waiting.id])
        goes_on = request not in self._deferred or bool(self._causes[request] & self._messages.keys())
        is_expected = waiting.id in self._withdrawn and goes_on
        if waiting.delivered_as:
            self._drop_wait(waiting.id)
            if request in self._causes:
                self._causes[request].add(TaskId(waiting.delivered_as))
                self._messages[TaskId(waiting.delivered_as)] = request
        elif not waiting.waiter_left or is_expected:
            # The waiter has the answer; if it proves not to have read it, that is delivered.
            if not request or is_expected or waiting.waiter_released:
                self._end_alone(self._drop_wait(waiting.id))
        elif waiting.id not in self._reported:
            self._reported.add(waiting.id)
            self._unanswered.put_nowait(waiting)

    def _on_message_ended(self, message: Task) -> None:
        request_id = self._messages.pop(message.id)
        self._causes.get(request_id, set()).discard(message.id)
        request = self._journal.known(request_id)
        if request_id not in self._deferred or request is None or request.state.is_terminal:
            return
        if note := self._awaited(request_id):
            self._record_end(*self._waits_on(request, note))
        else:
            del self._deferred[request_id]
            self._record_end(*_ends_with(message, request, self._clock.now()))

    def _end_alone(self, request_id: TaskId) -> None:
        """Ends a deferred request as its own turn has ended, if no message will do it any more."""
        request = self._journal.known(request_id)
        if request_id not in self._deferred or request is None or self._awaited(request_id):
            return
        self._record_end(*outcomes.answered(request, self._clock.now(), self._deferred.pop(request_id)))

    def _awaited(self, request: TaskId) -> str:
        """Returns what a request waits for, as a sentence for people; empty if it waits for nothing."""
        causes = self._causes.get(request, set())
        if causes & self._messages.keys():
            return "waits for its own agent, which gets the answer as a message"
        waits = [task for one in causes if (task := self._left_wait(one)) is not None]
        if not waits:
            return ""
        asked = ", ".join(sorted(f"{_asked(task)} (task {task.short_id})" for task in waits))
        return f"waits for the answer of {asked}, however long that takes; it arrives as a message"

    def _left_wait(self, wait: TaskId) -> Task | None:
        """Returns the waiting task if its answer, or the notice of its failure, is still to be delivered."""
        task = self._journal.known(wait) if wait in self._waits else None
        return task if task is not None and task.waiter_left else None

    def _waits_on(self, request: Task, note: str) -> tuple[TaskEvent, ...]:
        now = self._clock.now()
        waits = StateChanged(task_id=request.id, at=now, state=TaskState.WORKING, reason=WAITING_FOR_REPLY, note=note)
        return (*outcomes.close_question(request, now, TaskState.WORKING), waits)

    def _drop_wait(self, wait: TaskId) -> TaskId:
        """Forgets a wait; returns the request in whose turn it was opened, or an empty string."""
        self._withdrawn.discard(wait)
        self._reported.discard(wait)
        request = TaskId(self._waits.pop(wait))
        self._causes.get(request, set()).discard(wait)
        return request

    def _forget(self, request: Task) -> None:
        """Forgets a request that has ended; the answers that it waited for are delivered nonetheless.

        A turn that was interrupted reads no result of a tool any more, but not every CLI then cancels the call (Gemini
        CLI does not). So its waits are released here.
        """
        self._deferred.pop(request.id, None)
        for cause in self._causes.pop(request.id):
            self._messages.pop(cause, None)
            if cause in self._waits:
                self._waits[cause] = ""
                waiting = self._journal.known(cause)
                if waiting is None or (waiting.state.is_terminal and not waiting.waiter_left):
                    self._drop_wait(cause)
                elif request.state is not TaskState.COMPLETED and not waiting.waiter_released:
                    self._interrupted.put_nowait(waiting)


async def unrecorded_ends(
    left: Iterable[Task], store: TaskStore, now: datetime
) -> Mapping[TaskId, tuple[TaskEvent, ...]]:
    """Returns the events that end those of the open tasks `left` that an earlier host deferred and was about to end.

    It ended between the record of the last message's end, which has the answer, and that of the request's.
    """
    deferred = [task for task in left if task.state is TaskState.WORKING and task.reason == WAITING_FOR_REPLY]
    last = [(request, await _last_message(request, store)) for request in deferred]
    return {request.id: _ends_with(message, request, now) for request, message in last if message is not None}


async def _last_message(request: Task, store: TaskStore) -> Task | None:
    """Returns the message that ended last of those that a request depended on; None if it depends on more."""
    page = await store.list(TaskQuery(inbox=request.inbox, metadata=asking(request.id), limit=_MOST_WAITS))
    messages = list[Task]()
    for wait in page.tasks:
        if wait.delivered_as:
            try:
                messages.append(await store.load(TaskId(wait.delivered_as)))
            except TaskNotFound:
                return None  # it is still to be opened
        elif wait.waiter_left and wait.state is not TaskState.CANCELED:
            return None  # its answer, or the notice of its failure, is still to be delivered
    if not messages or not all(message.state.is_terminal for message in messages):
        return None
    return max(messages, key=lambda message: message.receipts[-1].at)


def _ends_with(message: Task, request: Task, now: datetime) -> tuple[TaskEvent, ...]:
    """Returns the events that end a deferred request as the turn of `message` has ended."""
    if message.state is not TaskState.COMPLETED:
        note = f"task {message.short_id}, which delivered the answer that it waited for: {message.note}"
        return outcomes.ended(request, now, message.state, message.reason, note)
    answer = message.artifacts[-1] if message.artifacts else None
    source = str(answer.metadata.get("source", "")) if answer else "journal"
    evidence = f"the turn of task {message.short_id} ended"
    return outcomes.answered(request, now, Answered(parts=answer.parts if answer else (), source=source), evidence)


async def _for_each(waits: asyncio.Queue[Task], act: Callable[[Task], Awaitable[None]]) -> None:
    while True:
        await act(await waits.get())


def _asked(waiting: Task) -> str:
    return waiting.waits_for.agent_id if waiting.waits_for else "a person" if waiting.asks_person else "an agent"


def _not_started(*_events: TaskEvent) -> None:
    raise RuntimeError("DeferredReplies.start was not called")
