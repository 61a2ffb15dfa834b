"""The agent host: builds the object graph around one driver, serves it, and takes it down in order.

take a place → open the store → start the agent → serve, deliver, reply, sweep → the agent ends → take down
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from synapse.core.errors import AgentExited, SynapseError
from synapse.drivers.pty.composer import forget_files_before
from synapse.registries.files import FileRegistry
from synapse.runtime.courier import HostCourier
from synapse.runtime.ids import new_id
from synapse.runtime.place import Place, leave_inbox, take_inbox
from synapse.runtime.running_agent import RunningAgent, StartAgent
from synapse.runtime.settings import Settings
from synapse.runtime.system_clock import SystemClock
from synapse.service import recovery
from synapse.service.absences import Absences
from synapse.service.doubts import Doubts
from synapse.service.feed import Feed
from synapse.service.hook_reports import HookReports
from synapse.service.instructions import initial_instructions
from synapse.service.intake import Intake, Limits
from synapse.service.journal import Journal
from synapse.service.replies import Replies
from synapse.service.tasks import TaskService
from synapse.service.worker import AgentWorker
from synapse.stores.sqlite import SqliteStore

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 2.0
PRUNE_SECONDS: Final = 3600.0
FAREWELL_SECONDS: Final = 2.0


class Host:
    """One agent and everything that serves it."""

    def __init__(self, place: Place, store: SqliteStore, registry: FileRegistry, settings: Settings) -> None:
        self._place = place
        self._me = place.entry
        self._store = store
        self._registry = registry
        self._settings = settings
        self._clock = SystemClock()
        self._journal = Journal(store)
        self._feed = Feed(self._journal, store)
        self._replies = Replies(self._journal, HostCourier(self._me, registry), self._clock)
        self._pruned = float("-inf")

    async def run(self, start: StartAgent, *, instructions: bool) -> int:
        """Run the agent until it ends or this process is told to; return the agent's exit status."""
        agent = await start(self._me)
        self._me.cli_pid = agent.cli_pid
        try:
            return await self._serve(agent, instructions=instructions)
        finally:
            self._registry.remove(self._me.agent_id)
            await agent.stop()

    async def _serve(self, agent: RunningAgent, *, instructions: bool) -> int:
        worker = AgentWorker(agent.driver, self._journal, self._clock, self._replies.turn_ended)
        intake = self._intake(worker)
        doubts = Doubts(
            self._journal,
            worker,
            self._replies,
            self._clock,
            agents_may_decide=self._settings.agents_may_approve,
        )
        left = recovery.plan(await self._journal.take_over(self._me.inbox), self._clock.now())
        server = self._server(agent, intake, worker, doubts)
        stop = _told_to_stop()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            await server.wait_started()
            _spare_the_collector()
            agent.on_served()
            # Only now: whoever sees the entry may send.
            self._registry.write(self._me)
            delivering = group.create_task(_until_exit(worker.run()))
            helpers = [group.create_task(self._replies.run()), group.create_task(self._sweep(intake, doubts))]
            await self._begin(intake, left, instructions=instructions)
            ends: set[asyncio.Future[Any]] = {stop, delivering, *((agent.ends_with,) if agent.ends_with else ())}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await agent.stop()
            if worker.current is not None:
                # The turn that runs records how it ended; a worker that waits for a message would wait on.
                await asyncio.wait({delivering}, timeout=FAREWELL_SECONDS)
            self._replies.leave(
                f"{self._me.agent_id} has ended; a message that it had not taken waits for its next start"
            )
            await self._replies.drain(FAREWELL_SECONDS)
            self._registry.remove(self._me.agent_id)
            for job in (delivering, *helpers):
                job.cancel()
            server.stop()
            await serving
        return agent.exit_status() or 0

    async def _begin(self, intake: Intake, left: recovery.Plan, *, instructions: bool) -> None:
        """Tell the agent who it is, then go on with what an earlier host left."""
        if instructions:
            await intake.instruct(initial_instructions(self._me, self._registry.entries()))
        await intake.take_up(left)

    async def _sweep(self, intake: Intake, doubts: Doubts) -> None:
        """Find what no event woke, every few seconds."""
        absences = Absences(self._journal, self._registry, self._clock)
        never = asyncio.Event()
        while True:
            for look in (doubts.expire, intake.release_held, absences.give_up, self._prune):
                try:
                    await look()
                except (SynapseError, OSError) as error:
                    # The next sweep tries again; an agent outlives a store that is locked for a while.
                    log.warning("sweep_failed", extra={"error": str(error)})
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), SWEEP_SECONDS)

    async def _prune(self) -> None:
        """Forget tasks that are too old to keep, and the files that came with them."""
        if self._settings.keep_days and self._clock.monotonic() - self._pruned > PRUNE_SECONDS:
            self._pruned = self._clock.monotonic()
            before = self._clock.now() - timedelta(days=self._settings.keep_days)
            await self._store.prune(before)
            await asyncio.to_thread(forget_files_before, self._settings.files, before.timestamp())

    def _intake(self, worker: AgentWorker) -> Intake:
        ttl = self._settings.message_ttl
        limits = Limits(
            queue=self._settings.queue_limit,
            ttl=timedelta(seconds=ttl) if ttl else None,
            pair_per_minute=self._settings.loop_limit_per_minute,
        )
        return Intake(
            self._me,
            journal=self._journal,
            store=self._store,
            feed=self._feed,
            worker=worker,
            replies=self._replies,
            registry=self._registry,
            clock=self._clock,
            new_id=new_id,
            limits=limits,
        )

    def _server(self, agent: RunningAgent, intake: Intake, worker: AgentWorker, doubts: Doubts) -> Any:
        # uvicorn and the dialect cost a tenth of a second to import: the agent has been started by now.
        from synapse.runtime.listening import open_server  # noqa: PLC0415 - see above

        service = TaskService(
            self._me,
            journal=self._journal,
            store=self._store,
            feed=self._feed,
            intake=intake,
            worker=worker,
            replies=self._replies,
            doubts=doubts,
            externals=self._externals(),
            driver=agent.driver,
            clock=self._clock,
            hook_reports=HookReports(self._me, agent.hook_door),
            answers_directly=agent.answers_directly,
        )
        return open_server(self._place, agent, service, self._registry, self._settings)

    def _externals(self) -> Any:
        from synapse.runtime.externals import open_externals  # noqa: PLC0415 - as above

        return open_externals(self._settings.home)


async def run_host(place: Place, start: StartAgent, settings: Settings, *, instructions: bool) -> int:
    """Open the store, take the inbox, run the host, and leave everything as it was found.

    Raises StoreFailed, NameTaken, CommandMissing or AgentFailed before the agent has begun.
    """
    registry = FileRegistry(settings.registry)
    try:
        store = await SqliteStore.open(settings.store)
        try:
            await take_inbox(place.entry, store, registry)
            try:
                return await Host(place, store, registry, settings).run(start, instructions=instructions)
            finally:
                await leave_inbox(place.entry, store)
        finally:
            await store.close()
    finally:
        place.leave()


def _spare_the_collector() -> None:
    """What is loaded by now stays, and what is queued is no garbage; looking through both cost a tenth of each POST."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def _until_exit(delivering: Awaitable[None]) -> None:
    with suppress(AgentExited):
        await delivering


def _told_to_stop() -> asyncio.Future[int]:
    """Done when this process gets a signal that asks it to end."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def tell(number: int) -> None:
        if not told.done():
            told.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, tell, number)
    return told
