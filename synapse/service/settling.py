"""Sending a message and staying with its task until it settles: it has ended, or waits for somebody.

    sent ─► submitted ─► working ─► settled      (a question, an authorization, or an end)

Whoever sends is with the task from its first state. An urgent message interrupts between its record and the joining,
and the task may end meanwhile: so what is joined is the task as it is by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial

from synapse.core.caller import Caller
from synapse.core.events import StateChanged, Update
from synapse.core.message import Message
from synapse.core.requests import SendAndFollow, SendAndWait
from synapse.core.task import Task, TaskId, TaskState
from synapse.service.feed import Feed
from synapse.service.intake import Intake
from synapse.service.journal import Journal


def never(_message: Message) -> bool:
    """For agents that answer with tasks only."""
    return False


def is_settled(state: TaskState) -> bool:
    """Nothing more comes by itself."""
    return state.is_terminal or state.is_interrupted


class Settling:
    """Stays with tasks. `answers_directly` tells of a message whether the agent will answer it with a plain message."""

    def __init__(
        self, intake: Intake, journal: Journal, feed: Feed, answers_directly: Callable[[Message], bool]
    ) -> None:
        self._intake = intake
        self._journal = journal
        self._feed = feed
        self._answers_directly = answers_directly
        self._waiting: dict[TaskId, set[asyncio.Future[Task]]] = {}
        journal.listen(self._hear, self._waiting.__contains__)

    async def wait(self, request: SendAndWait, caller: Caller) -> Task | asyncio.Future[Task]:
        """Send; return the task if it has settled, else a future of it. Whoever gives up waiting cancels that.

        Raises what `Intake.send` raises.
        """
        task = await self._intake.send(request.send, caller, waits_for_end=True)
        return task if is_settled(task.state) else self._settled(task)

    async def follow(self, request: SendAndFollow, caller: Caller) -> AsyncGenerator[Update, None]:
        """Send; yield the task as it was then, and each update until it has settled.

        An agent that answers with a plain message has no task to show: then only the end is told, as a snapshot.

        Raises what `Intake.send` raises.
        """
        task = await self._intake.send(request.send, caller)
        if self._answers_directly(request.send.message):
            return self._end_of(self._settled(task))
        updates = self._feed.follow(task.id)
        return _until_settled(await anext(updates), updates)

    def _settled(self, task: Task) -> asyncio.Future[Task]:
        future: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        task = self._journal.known(task.id) or task
        if is_settled(task.state):
            future.set_result(task)
            return future
        self._waiting.setdefault(task.id, set()).add(future)
        future.add_done_callback(partial(self._forget, task.id))
        return future

    def _hear(self, update: Update) -> None:
        waiting = self._waiting.get(update.task.id)
        if waiting and is_settled(update.task.state):
            for future in waiting:
                if not future.done():
                    future.set_result(update.task)

    def _forget(self, task_id: TaskId, future: asyncio.Future[Task]) -> None:
        waiting = self._waiting[task_id]
        waiting.discard(future)
        if not waiting:
            del self._waiting[task_id]

    async def _end_of(self, settled: asyncio.Future[Task]) -> AsyncGenerator[Update, None]:
        task = await settled
        yield Update((await self._journal.snapshot(task.id)).seq, None, task)


async def _until_settled(first: Update, updates: AsyncGenerator[Update, None]) -> AsyncGenerator[Update, None]:
    async with aclosing(updates):
        yield first
        if is_settled(first.task.state):
            return
        async for update in updates:
            yield update
            if isinstance(update.event, StateChanged) and is_settled(update.event.state):
                return
