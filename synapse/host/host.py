"""The agent host: builds the object graph around one driver, serves it, and takes it down in order.

take a place → open the store → start the agent → serve, deliver, reply, sweep → the agent ends → take down
      ↑                                                                                                │
      └──────────────── told to begin again (SIGUSR1): the process becomes a new host ────────────────┘

The host's HTTP side: its dialects on the Unix socket and the TCP port, with the gate in front.

Importing this file costs what uvicorn and the dialects cost; a host does it after its agent was started.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from contextlib import suppress
from typing import Any, Final

from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts, own_token
from synapse.config.process import Limit, SystemClock, open_file_limit, raise_file_limit, set_file_limit
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.errors import LeaseLost
from synapse.core.extension import to_text
from synapse.core.service import Handler
from synapse.core.store import Lease, TaskStore
from synapse.host.agent import AgentRuntime, RunningAgent, StartAgent
from synapse.host.background import begin_again
from synapse.host.identity import HostIdentity, leave_inbox, take_inbox
from synapse.host.open_store import open_store
from synapse.host.routes import DialectChoice, host_dialects
from synapse.registry.files import controlling_terminal
from synapse.registry.local import LocalRegistry, open_registry
from synapse.server.acceptor import limits_within
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.http import Server
from synapse.tasks.service import AgentTasks

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often a host looks whether it is still in the registry: one file, a few microseconds."""
AGAIN: Final = signal.SIGUSR1
"""Tells a host to end and begin again as it was started. Whoever sends it adds nothing to what the host may do."""


class Host:
    """One agent and everything that serves it."""

    def __init__(
        self, place: HostIdentity, store: TaskStore, lease: Lease, registry: LocalRegistry, settings: Settings
    ) -> None:
        self._place = place
        self._lease = lease
        self._me = place.entry
        self._store = store
        self._registry = registry
        self._settings = settings
        self.begins_again = False
        self.given_limit: Limit | None = None
        """The limit of open files that this process was started with, once it was raised."""

    async def run(self, start: StartAgent, *, instructions: bool) -> int:
        """Run the agent until it ends or this process is told to; return the agent's exit status.

        Raises LeaseLost when another process took the inbox over: the agent was stopped, and nothing more was typed.
        """
        agent = await start(self._me)
        # Behind the start: the program has the limit that its user gave it.
        self.given_limit = raise_file_limit()
        self._me.cli_pid = agent.cli_pid
        self._me.terminal = await asyncio.to_thread(controlling_terminal, agent.cli_pid)
        self._me.takes = agent.acceptance.as_text
        self._me.extensions = to_text(agent.extensions)
        self._me.lacks = " ".join(agent.lacks)
        try:
            return await self._serve(agent, instructions=instructions)
        finally:
            await self._registry.withdraw(self._me.agent_id)
            await agent.stop()

    async def _serve(self, agent: RunningAgent, *, instructions: bool) -> int:
        parts = self._parts(agent)
        left = await parts.left()
        server = self._server(agent, parts.service)
        stop = stop_signal(AGAIN)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            await server.wait_started()
            tune_gc()
            agent.on_served()
            jobs = parts.start(group)
            jobs.append(group.create_task(server.keep_in_place(self._place.unix)))
            if instructions:
                await parts.instruct()
            # Only now: whoever sees the entry may send, and comes behind the instructions.
            await self._registry.publish(self._me)
            jobs.append(group.create_task(self._stay_listed()))
            replaced = group.create_task(parts.lease_lost())
            jobs.append(replaced)
            log.info("host_started", extra=_identity(self._me))
            await parts.resume(left)
            ends: set[asyncio.Future[Any]] = {stop, replaced, jobs[0], *((agent.ends_with,) if agent.ends_with else ())}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self.begins_again = stop.done() and stop.result() == AGAIN
            why = f"signal {signal.Signals(stop.result()).name}" if stop.done() else "its program ended"
            if is_replaced := replaced.done():
                why = "another process took its inbox over"
            log.info("host_stopping", extra={"why": why, "waiting": parts.waiting})
            # Before the agent ends: what is in memory and waits for a store that was deleted can still be recorded.
            await parts.recover_store()
            await agent.stop()
            await parts.say_farewell()
            agent.say_goodbye(parts.still_waiting())
            for job in jobs:
                job.cancel()
            await self._registry.withdraw(self._me.agent_id)
            server.stop()
            await serving
        if is_replaced:
            raise LeaseLost(
                f"{self._me.agent_id} was stopped: another process took over its inbox '{self._lease.inbox}'",
                hint="`synapse list` shows which agent has it now",
            )
        return agent.exit_status() or 0

    async def _stay_listed(self) -> None:
        """Write our entry again when its file is lost: a cleaner, or a process that took us for dead, removed it."""
        never = asyncio.Event()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), LOOK_SECONDS)
            try:
                if await self._registry.find(self._me.agent_id) is None:
                    await self._registry.publish(self._me)
                    log.warning("registry_entry_restored", extra={"agent": self._me.agent_id})
            except OSError as error:
                log.warning("registry_entry_not_restored", extra={"error": str(error)})

    def _parts(self, agent: RunningAgent) -> AgentRuntime:
        # Of what it loads an agent's start needs nothing: the agent has been started by now.
        from synapse.net.hosts import open_host_client  # noqa: PLC0415 - see above

        hosts = open_host_client(self._registry, SystemClock(), self._registry.recheck)
        return AgentRuntime(
            self._me,
            agent,
            store=self._store,
            lease=self._lease,
            registry=self._registry,
            hosts=hosts,
            settings=self._settings,
        )

    def _server(self, agent: RunningAgent, service: AgentTasks) -> Server:
        # uvicorn and the dialect cost a tenth of a second to import: the agent has been started by now.

        return open_server(self._place, agent, service, self._registry, self._settings)


def _identity(me: AgentEntry) -> dict[str, object]:
    """What tells this start from others in the log."""
    return {
        "version": me.version,
        "pid": me.pid,
        "program": me.cli_pid,
        "port": me.port,
        "socket": me.socket,
        "folder": me.working_dir,
    }


async def run_host(place: HostIdentity, start: StartAgent, settings: Settings, *, instructions: bool) -> int:
    """Open the store, take the inbox, run the host, and leave everything as it was found.

    Raises StoreFailed, NameTaken, CommandMissing or AgentFailed before the agent has begun, and LeaseLost when another
    process took its inbox over.
    """
    registry = open_registry(settings.registry, SystemClock().monotonic)
    try:
        store = await open_store(settings)
        try:
            lease = await take_inbox(place.entry, store, registry)
            host = Host(place, store, lease, registry, settings)
            try:
                status = await host.run(start, instructions=instructions)
            finally:
                await leave_inbox(lease, store)
        finally:
            await store.close()
    finally:
        place.leave()
    if host.begins_again:
        if host.given_limit is not None:
            set_file_limit(host.given_limit)
        begin_again(place.entry.port)
    return status


def tune_gc() -> None:
    """What is loaded by now stays, and what is queued is no garbage; looking through both cost a tenth of each POST."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def stop_signal(*more: signal.Signals) -> asyncio.Future[int]:
    """Done when this process gets a signal that asks it to end, or one of `more`; the result is its number."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def tell(number: int) -> None:
        if not told.done():
            told.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *more):
        loop.add_signal_handler(number, tell, number)
    return told


MOST_UNPROVEN: Final = 64
"""Connections of other users, who need the token to be heard."""
MOST_UNPROVEN_PER_USER: Final = 32


def open_server(
    place: HostIdentity, agent: RunningAgent, service: Handler, registry: LocalRegistry, settings: Settings
) -> Server:
    """Return the server of a host; it listens already, and answers once it is served."""
    entry = place.entry
    dialects = host_dialects(
        entry, title=agent.title, pty_wrapped=agent.pty_wrapped, advertise_0_3=settings.advertise_0_3
    )
    gate = LocalAuth(
        uid=os.getuid(),
        hosts=loopback_hosts(entry.port),
        # Ourselves in any case: our file is not there yet, and somebody may remove it.
        entries=lambda: (*registry.latest, entry),
        token=own_token(settings.home),
        terminal_decides=settings.terminal_decides,
    )
    app = HttpApp(
        service,
        dialects,
        admit=LocalAdmission(gate, registry.agents),
        choose=DialectChoice(dialects),
        websockets=agent.websockets,
        limits=HttpLimits(max_body_bytes=settings.max_body_bytes),
    )
    limits = limits_within(open_file_limit(), unproven=MOST_UNPROVEN, per_source=MOST_UNPROVEN_PER_USER)
    return Server(app, [place.tcp, place.unix.socket], limits=limits)
