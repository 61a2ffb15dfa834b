"""The tasks of machines that ship no log (`"ship_log": false`): read from their machines, through this machine's link.

    POST /fleet/tasks/{id}/events   the events of a task after a seq, for one caller; waits a moment for the next one

A series of such asks is a stream. Each names the last seq that it has, so the stream goes on after every loss, and at
any other gateway: the seqs are those of the task's own machine, as in a replica. Only the last known state of a task is
kept here, for the time in which its machine is away.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from synapse.core.address import remote_inbox
from synapse.core.caller import GATEWAY_SCOPE, MACHINE_SCOPE, Caller
from synapse.core.errors import (
    AgentExited,
    LinkDown,
    MachineAway,
    OutcomeUnknown,
    RateLimited,
    TaskNotFound,
    Unauthenticated,
)
from synapse.core.events import Recorded, StateChanged, TaskEvent, TaskOpened, Update
from synapse.core.task import Task, TaskId
from synapse.core.waiting import pause
from synapse.gateway.fleet_store import FleetStore
from synapse.gateway.remote import RemoteAgents
from synapse.tasks.journal import rebuild
from synapse.tasks.rules import is_settled

POLL_SECONDS: Final = 3.0
"""How long an ask waits for the next event; the link allows no more."""
RETRY_SECONDS: Final = 1.0
"""How long a stream waits before it asks a machine again that could not be asked."""
MAX_MISSES: Final = 5
"""How many asks in a row may find neither news nor an agent for the task: an agent that is restarted resumes it."""


class UnshippedTasks:
    """Reads and follows the tasks of one machine that ships no log.

    `has_agent` decides whether a running agent can work on a task: a stream ends when its agent is gone.
    """

    def __init__(
        self, machine: str, agents: RemoteAgents, store: FleetStore, has_agent: Callable[[Task], bool]
    ) -> None:
        self._machine = machine
        self._agents = agents
        self._store = store
        self._has_agent = has_agent

    async def load(self, task_id: TaskId, caller: Caller) -> Task:
        """Returns the task as its machine has it now. Raises what `RemoteAgents.read_events` raises."""
        task: Task | None = None
        seen, is_more = 0, True
        while is_more:
            events, is_more = await self._agents.read_events(self._machine, task_id, caller, after=seen, seconds=0.0)
            for recorded in events:
                task, seen = rebuild(task, (self._shown(recorded.event),)), recorded.seq
        if task is None:
            raise TaskNotFound(task_id)
        self._store.expect(task)
        return task

    async def settled(self, task_id: TaskId, caller: Caller) -> Update:
        """Returns the last update of a task that was accepted, once it has ended or needs input.

        Raises TaskNotFound, or AgentExited when its agent is gone and does not come back.
        """
        async with aclosing(self._batches(task_id, caller, is_accepted=True)) as batches:
            async for updates, is_more in batches:
                last = updates[-1]
                if not is_more and is_settled(last.task.state):
                    self._store.expect(last.task)
                    return last
        raise TaskNotFound(task_id)

    async def final(self, task_id: TaskId, caller: Caller) -> AsyncGenerator[Update, None]:
        """Yields only the last update, as a snapshot: the agent answers with a plain message, and shows no task."""
        yield (await self.settled(task_id, caller))._replace(event=None)

    async def until_settled(self, task_id: TaskId, caller: Caller, version: int) -> AsyncGenerator[Update, None]:
        """Yields an accepted task as of `version`, then each update until it has settled. Raises as `settled`."""
        async with aclosing(self._batches(task_id, caller, is_accepted=True)) as batches:
            async for updates, _ in batches:
                for update in updates:
                    if update.task.version < version:
                        continue
                    is_first = update.task.version == version
                    yield update._replace(event=None) if is_first else update
                    if is_settled(update.task.state) and (is_first or isinstance(update.event, StateChanged)):
                        return

    async def follow(self, task_id: TaskId, caller: Caller, after: int | None) -> AsyncGenerator[Update, None]:
        """Yields the task as it is now, or each update after the seq `after`, then further ones until the task ends.

        Raises as `settled`, and Unauthenticated when the caller's credentials are no longer valid.
        """
        is_live = after is not None
        async with aclosing(self._batches(task_id, caller)) as batches:
            async for updates, is_more in batches:
                if not is_live:
                    if is_more:
                        continue
                    is_live = True
                    yield updates[-1]._replace(event=None)
                    if updates[-1].task.state.is_terminal:
                        return
                    continue
                for update in updates:
                    if update.seq > (after or 0):
                        yield update
                    if isinstance(update.event, StateChanged) and update.event.state.is_terminal:
                        return

    async def events(self, task_id: TaskId, caller: Caller, *, after: int, limit: int) -> list[Recorded]:
        """Returns at most `limit` events of a task after a seq. Raises what `RemoteAgents.read_events` raises."""
        found: list[Recorded] = []
        is_more = True
        while is_more and len(found) < limit:
            events, is_more = await self._agents.read_events(self._machine, task_id, caller, after=after, seconds=0.0)
            found += [one._replace(event=self._shown(one.event)) for one in events]
            after = found[-1].seq if found else after
        return found[:limit]

    async def _batches(
        self, task_id: TaskId, caller: Caller, *, is_accepted: bool = False
    ) -> AsyncGenerator[tuple[list[Update], bool], None]:
        """Yields the updates of the task from its start, as they come, and whether further ones exist by now.

        With `is_accepted`, the machine has just said that it has the task: a loss is no answer to its sender.
        """
        task: Task | None = None
        seen = misses = 0
        while True:
            updates: list[Update] = []
            events, is_more = await self._next(task_id, caller, seen, is_known=is_accepted or task is not None)
            for recorded in events:
                event = self._shown(recorded.event)
                task, seen = rebuild(task, (event,)), recorded.seq
                updates.append(Update(seen, event, task))
            if task is None:
                if is_accepted:
                    continue
                raise TaskNotFound(task_id)
            if updates:
                yield updates, is_more
            misses = 0 if updates or self._has_agent(task) else misses + 1
            if misses > MAX_MISSES:
                raise AgentExited(
                    f"the agent of task {task.short_id} is gone",
                    hint="the task is kept until the agent is started again",
                )

    async def _next(
        self, task_id: TaskId, caller: Caller, seen: int, *, is_known: bool
    ) -> tuple[tuple[Recorded, ...], bool]:
        """Returns the next events of a task, none if they do not come soon; see `RemoteAgents.read_events`.

        The machine must answer once, so that the caller learns if it cannot. A stream that has begun waits for it.
        """
        if not caller.holds():
            raise Unauthenticated("the credentials of this stream are no longer valid")
        seconds = POLL_SECONDS if is_known else 0.0
        try:
            return await self._agents.read_events(self._machine, task_id, caller, after=seen, seconds=seconds)
        except (LinkDown, MachineAway, OutcomeUnknown, RateLimited) as error:
            if not is_known:
                raise
            await pause(error.retry_after if isinstance(error, RateLimited) else RETRY_SECONDS)
            return (), False

    def _shown(self, event: TaskEvent) -> TaskEvent:
        """Returns the event with the inbox and the scope that its task has at gateways, as in a replica."""
        if not isinstance(event, TaskOpened):
            return event
        scope = event.metadata.get(GATEWAY_SCOPE)
        is_kept = event.scope == MACHINE_SCOPE + self._agents.machine and isinstance(scope, str) and scope
        return replace(
            event, inbox=remote_inbox(event.inbox, self._machine), scope=str(scope) if is_kept else event.scope
        )
