"""Ends the waits of agents here for agents of other machines that nothing else will end.

A host fails the waits of its agent for other agents of its machine (`tasks.waits.LostAgents`). The relay ends those for
agents of other machines when the message is settled, refused, void or uncertain. What remains is found here:

    no message in the outbox, and the waiter has left        `not_sent`
    the agent that was asked is gone, its message is open    `agent_exited`; the message waits for its next start
    the machine was removed from the fleet                   `machine_lost`

Nothing of it is stored: after a restart of the link the times begin anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from synapse.core.address import on_machine, split_inbox, split_machine
from synapse.core.errors import AgentNotFound, Ambiguous, SynapseError
from synapse.core.message import TextPart
from synapse.core.store import TaskStore
from synapse.core.task import Task
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.fleet import asks
from synapse.fleet.bus import BusError
from synapse.fleet.relay_io import OutboxRow, OutboxState
from synapse.fleet.wire import UnreadableBody
from synapse.link.asking import FleetClient, task_in
from synapse.link.database import LinkDatabase
from synapse.link.deliveries import WaitReply, remote_name
from synapse.link.presence import Machines
from synapse.tasks.outcomes import AGENT_EXITED
from synapse.tasks.waits import GRACE_SECONDS, UNSENT, UNSENT_SECONDS, remote_waits

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 2.5
LOST_SECONDS: Final = 60.0
"""How long a machine must have been removed: another one may join under its name at once."""
MACHINE_LOST: Final = "machine_lost"
EndWait = Callable[[WaitReply], Awaitable[bool]]
H = TypeVar("H", bound=Hashable)


class _Wait(NamedTuple):
    """A task that waits for an agent of another machine, and its message, if the outbox has it."""

    task: Task
    row: OutboxRow | None

    @property
    def agent(self) -> tuple[str, str]:
        """The machine and the inbox there of the agent that was asked."""
        inbox, machine = split_inbox(self.task.waits_for.inbox) if self.task.waits_for else ("", "")
        return machine, inbox

    @property
    def is_unsent(self) -> bool:
        return self.row is None and self.task.waiter_left

    @property
    def is_accepted(self) -> bool:
        return self.row is not None and self.row.state is OutboxState.ACCEPTED

    @property
    def may_be_under_way(self) -> bool:
        """Whether no end of the message is known: it is not closed, or the outbox has lost it."""
        return self.row is None or not self.row.state.is_closed


class RemoteWaits:
    """Looks after the waits while `run` runs."""

    def __init__(
        self,
        store: TaskStore,
        database: LinkDatabase,
        client: FleetClient,
        machines: Machines,
        end_wait: EndWait,
        clock: Clock,
    ) -> None:
        self._store = store
        self._database = database
        self._client = client
        self._machines = machines
        self._end_wait = end_wait
        self._clock = clock
        self._messages: dict[str, str] = {}
        """The ids of the messages of waiting tasks, once they are found."""
        self._unsent = _Since[str](clock)
        self._gone = _Since[tuple[str, str]](clock)
        self._lost = _Since[str](clock)

    async def run(self) -> None:
        """Ends waits until it is cancelled."""
        while True:
            await pause(SWEEP_SECONDS)
            try:
                await self.sweep()
            except (SynapseError, BusError) as error:
                log.info("waits_not_checked", extra={"error": str(error)})

    async def sweep(self) -> None:
        """Looks at all waits once. Raises StoreFailed."""
        tasks = await remote_waits(self._store)
        self._messages = {task.id: self._messages[task.id] for task in tasks if task.id in self._messages}
        waits = [_Wait(task, await self._message_of(task)) for task in tasks]
        await self._end_unsent(waits)
        await self._end_gone([wait for wait in waits if wait.is_accepted])
        await self._end_lost([wait for wait in waits if wait.may_be_under_way])

    async def _message_of(self, task: Task) -> OutboxRow | None:
        """Returns the message whose answer the task waits for."""
        if known := self._messages.get(task.id):
            return await self._database.find_message(known)
        for row in await self._database.find_naming(task.id):
            if _awaited(row) == task.id:
                self._messages[task.id] = row.message_id
                return row
        return None

    async def _end_unsent(self, waits: list[_Wait]) -> None:
        """Ends waits whose waiter left before it had sent its request."""
        overdue = self._unsent.longer_than(UNSENT_SECONDS, (wait.task.id for wait in waits if wait.is_unsent))
        for wait in waits:
            if wait.task.id in overdue:
                why = "the request was not sent: the process that was to send it has ended"
                await self._end(wait, UNSENT, why)

    async def _end_gone(self, waits: list[_Wait]) -> None:
        """Ends waits for agents that have exited, or whose host was killed."""
        agents = sorted({wait.agent for wait in waits})
        gone = await asyncio.gather(*(self._is_gone(*agent) for agent in agents))
        overdue = self._gone.longer_than(
            GRACE_SECONDS, (agent for agent, is_gone in zip(agents, gone, strict=True) if is_gone)
        )
        for wait in waits:
            if wait.agent in overdue and await self._is_open_there(wait):
                asked = wait.task.waits_for.agent_id if wait.task.waits_for else ""
                name = split_machine(asked)[0] or remote_name(wait.agent[1])
                later = "messages that it had not started wait for its next start"
                await self._end(wait, AGENT_EXITED, f"{on_machine(name, wait.agent[0])} has exited; {later}")

    async def _end_lost(self, waits: list[_Wait]) -> None:
        """Ends waits for machines that were removed from the fleet."""
        machines = sorted({wait.agent[0] for wait in waits})
        removed = [machine for machine in machines if await self._was_removed(machine)]
        overdue = self._lost.longer_than(LOST_SECONDS, removed)
        for wait in waits:
            if (machine := wait.agent[0]) in overdue:
                why = f"the fleet has no machine {machine} any more; nobody knows whether its agent got the message"
                await self._end(wait, MACHINE_LOST, why)

    async def _is_gone(self, machine: str, inbox: str) -> bool:
        """Decides whether a machine that can be asked says that the agent of an inbox does not run there."""
        try:
            found = await self._client.ask(machine, asks.ResolveAgent(target=inbox), asks.AgentResolved)
        except (AgentNotFound, Ambiguous):
            return True
        except SynapseError:
            return False  # nobody can tell
        return found.agent.get("inbox") != inbox

    async def _is_open_there(self, wait: _Wait) -> bool:
        """Decides whether the other machine has the task of the message, and it has not ended: no answer is coming."""
        try:
            ask = asks.ReadTask(task_id=wait.row.task_id if wait.row else "", exact=True)
            return not task_in(await self._client.ask(wait.agent[0], ask, asks.TaskRead)).state.is_terminal
        except SynapseError:
            return False

    async def _was_removed(self, machine: str) -> bool:
        try:
            return await self._machines.was_removed(machine)
        except BusError:
            return False  # nobody can tell

    async def _end(self, wait: _Wait, reason: str, why: str) -> None:
        machine, inbox = wait.agent
        reply = WaitReply(
            inbox=wait.task.inbox,
            task_id=wait.task.id,
            machine=machine,
            agent=remote_name(inbox),
            message_id=f"lost-{wait.task.id}",
            parts=(TextPart(text=why),),
            marks={"failed": True, "inferred": True, "end_reason": reason},
        )
        log.info("wait_ended", extra={"task": wait.task.id, "reason": reason})
        await self._end_wait(reply)


class _Since(Generic[H]):
    """Remembers since when something holds, as long as it is told of it again and again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[H, float] = {}

    def longer_than(self, seconds: float, holding: Iterable[H]) -> set[H]:
        """Returns those of `holding` that have held for `seconds`; forgets all others."""
        now = self._clock.monotonic()
        self._times = {one: self._times.get(one, now) for one in holding}
        return {one for one, since in self._times.items() if now - since >= seconds}


def _awaited(row: OutboxRow) -> str:
    """Returns the task on this machine that waits for the answer to a message; empty if none does."""
    try:
        return asks.decode_send_body(row.body).sender_task_id
    except UnreadableBody:
        return ""
