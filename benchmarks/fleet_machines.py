"""Some machines of a simulated fleet, in one process: `python -m benchmarks.fleet_machines SERVER FOLDER …`.

Real: the server, and for each machine the relay, its shell, a `link.db` (SQLite, durable) and a connection of nats-py.
Simulated: the hosts. They answer at once, and their log is not written.

It prints "ready", begins when it reads a line, and prints what it has counted as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

from benchmarks.processes import memory
from synapse.config.process import SystemClock
from synapse.core.waiting import pause
from synapse.fleet.relay_io import (
    EndedTask,
    FindTask,
    HostAbsent,
    HostAccepted,
    HostCall,
    HostOutcome,
    HostTold,
    HostUnknown,
    OpenTask,
    OutboxState,
    StoreMark,
    Tailed,
    TellEnd,
    VoidTask,
)
from synapse.fleet.wire import End
from synapse.link.database import LinkDatabase
from synapse.link.nats_bus import NatsBus
from synapse.link.nats_connection import Access
from synapse.link.shell import RelayShell

_PATIENCE_SECONDS = 900.0
_TEXT = b'{"parts": [{"type": "text", "text": "please look at the parser again"}]}'


class Machine:
    """One machine with its agents. `delivered` counts how often each message came, by its id and its agent."""

    def __init__(self, number: int, bus: NatsBus, database: LinkDatabase) -> None:
        self.number = number
        self.delivered: Counter[str] = Counter()
        self.settled = 0
        self.shell = RelayShell(
            name_of(number), bus=bus, database=database, hosts=self, read_mark=self._mark, clock=SystemClock()
        )
        self._seqs = count(1)
        self._ended: asyncio.Queue[EndedTask] = asyncio.Queue()

    async def ask(self, call: HostCall) -> HostOutcome:
        """Answers the relay as hosts would. A task ends as soon as it is open."""
        match call:
            case OpenTask():
                self.delivered[f"{call.message_id} {call.target}"] += 1
                end = End(state="completed", answer=_TEXT)
                self._ended.put_nowait(
                    EndedTask(machine=call.machine, message_id=call.message_id, task_id=call.task_id, end=end)
                )
                return HostAccepted(task_id=call.task_id)
            case TellEnd(row=row):
                self.settled += row.state is OutboxState.SETTLED
                return HostTold()
            case FindTask():
                return HostAbsent()
            case VoidTask():
                return HostUnknown()

    async def tail(self) -> None:
        """Tells the relay of the tasks that have ended, as the tail of the log does: many at once."""
        while True:
            ended = [await self._ended.get()]
            while not self._ended.empty():
                ended.append(self._ended.get_nowait())
            await self.shell.store(Tailed(seq=next(self._seqs), mark="", ended=tuple(ended)))

    async def send(self, machines: int, agents: int, messages: int) -> None:
        """Lets each agent send its share, one after another, to all machines and agents in turn."""
        await asyncio.gather(*(self._send_from(agent, machines, agents, messages // agents) for agent in range(agents)))

    async def _send_from(self, agent: int, machines: int, agents: int, messages: int) -> None:
        for number in range(messages):
            to = (self.number + 1 + (agent + number) % (machines - 1)) % machines
            target = f"agent-{(agent + number) % agents}"
            message_id = f"{self.number}.{agent}.{number}.{to}"
            row = await self.shell.submit(
                name_of(to), message_id, target=target, task_id=message_id, body=_TEXT, queue=True, expires_in=3600
            )
            if row.state not in (OutboxState.OPEN, OutboxState.ACCEPTED, OutboxState.SETTLED):
                raise RuntimeError(f"{message_id} is {row.state}: {row.why}")

    async def _mark(self, _seq: int) -> StoreMark:
        return StoreMark(store_id=f"store-{self.number}", last_seq=0, mark="")


def name_of(number: int) -> str:
    return f"machine-{number}"


async def main(server: str, folder: Path, numbers: range, fleet: tuple[int, int, int]) -> None:
    machines, agents, messages = fleet
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        mine: list[Machine] = []
        for number in numbers:
            access = Access(machine=name_of(number), servers=(server,), makes_streams=number == 0)
            bus = await stack.enter_async_context(NatsBus(access))
            await bus.wait_connected(30)
            (folder / name_of(number)).mkdir(mode=0o700)
            database = LinkDatabase(folder / name_of(number) / "link.db", SystemClock())
            stack.push_async_callback(database.close)
            mine.append(Machine(number, bus, database))
        jobs = [group.create_task(job) for machine in mine for job in (machine.shell.run(), machine.tail())]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while any(machine.shell.incarnation is None for machine in mine):
                await pause(0.01)
            await asyncio.gather(*(machine.send(machines, agents, messages) for machine in mine))
            while any(machine.settled < messages // agents * agents for machine in mine):
                await pause(0.01)
        print("settled", flush=True)
        # The others may still send messages to these machines.
        await asyncio.to_thread(sys.stdin.readline)
        delivered = {f"{key} {machine.number}": times for machine in mine for key, times in machine.delivered.items()}
        print(json.dumps({"delivered": delivered, "memory": memory(os.getpid())}), flush=True)
        for job in jobs:
            job.cancel()


if __name__ == "__main__":
    url, place, first, last, *sizes = sys.argv[1:]
    asyncio.run(main(url, Path(place), range(int(first), int(last)), (int(sizes[0]), int(sizes[1]), int(sizes[2]))))
