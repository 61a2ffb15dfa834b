"""The process of one agent: builds the object graph around its driver, serves it, and shuts it down in order.

    reserve → open the store → start the agent → serve, deliver, reply, sweep → the agent ends → shut down
       ↑                                                                                             │
       └────────────── restart (SIGUSR1, SIGUSR2): the process executes itself anew ─────────────────┘

The agent starts before the parts that serve it are built, because importing some of them takes a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any, Final

from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts, own_token
from synapse.config.process import (
    Limit,
    SystemClock,
    open_file_limit,
    raise_file_limit,
    set_file_limit,
    stop_signal,
    tune_gc,
)
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.errors import LeaseLost, RegistryFailed
from synapse.core.extension import to_text
from synapse.core.registry import KEEP_ALIVE_SECONDS, CachedRegistry
from synapse.core.service import Handler
from synapse.core.store import Lease, TaskStore
from synapse.core.waiting import pause
from synapse.host.agent import AgentRuntime, RunningAgent, StartAgent
from synapse.host.background import RESTART, RESTART_FRESH, restart_process
from synapse.host.ends import EndReason, HostEnd, write_end
from synapse.host.identity import HostIdentity, acquire_inbox, holders_of, release_inbox
from synapse.host.open_store import open_store
from synapse.host.routes import DialectChoice, host_dialects
from synapse.registry.files import FileRegistry, controlling_terminal
from synapse.registry.local import open_local_registry
from synapse.server.acceptor import limits_within
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.http import Server

log = logging.getLogger(__name__)

REGISTRY_CHECK_SECONDS: Final = 1.0
"""How often a host checks that its registry entry exists: one file, a few microseconds."""
MAX_UNPROVEN: Final = 64
"""The limit of connections of other users, who have to show the token."""
MAX_UNPROVEN_PER_USER: Final = 32


class Host:
    """Runs one agent and serves it."""

    def __init__(
        self, identity: HostIdentity, store: TaskStore, lease: Lease, registry: CachedRegistry, settings: Settings
    ) -> None:
        self._identity = identity
        self._lease = lease
        self._me = identity.entry
        self._store = store
        self._registry = registry
        self._settings = settings
        self.restarts = False
        """Whether the process is to restart after `run`."""
        self.end_reason = EndReason.ENDED
        """Why `run` ended."""
        self.resumes = True
        """Whether its CLI is to go on with its conversation then."""
        self.original_limit: Limit | None = None
        """The limit of open files that this process was started with; set when `run` raises it."""

    async def run(self, start: StartAgent, *, instructions: bool) -> int:
        """Runs the agent until it ends or a signal stops the host; returns the agent's exit status.

        Raises LeaseLost when another process took over the inbox: the agent was stopped, and nothing more was typed.
        """
        agent = await start(self._me)
        # After the start, so that the program keeps the limit that the user gave it.
        self.original_limit = raise_file_limit()
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
        from synapse.net.hosts import open_host_client  # noqa: PLC0415 - not needed to start the agent

        runtime = AgentRuntime(
            self._me,
            agent,
            store=self._store,
            lease=self._lease,
            registry=self._registry,
            hosts=open_host_client(self._registry, SystemClock(), self._registry.recheck),
            settings=self._settings,
        )
        plan = await runtime.plan_recovery()
        server = open_server(self._identity, agent, runtime.service, self._registry, self._settings)
        stop = stop_signal(RESTART, RESTART_FRESH)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            await server.wait_started()
            tune_gc()
            agent.on_served()
            jobs = runtime.start(group)
            jobs.append(group.create_task(server.keep_in_place(self._identity.unix)))
            if instructions:
                await runtime.instruct()
            # Only now: agents send as soon as they see the entry, and their messages must come after the instructions.
            await self._registry.publish(self._me)
            jobs.append(group.create_task(self._restore_entry()))
            replaced = group.create_task(runtime.lease_lost())
            jobs.append(replaced)
            log.info("host_started", extra=_identity(self._me))
            await runtime.resume(plan)
            jobs.append(group.create_task(runtime.settle_doubts()))
            ends: set[asyncio.Future[Any]] = {stop, replaced, jobs[0], *((agent.ends_with,) if agent.ends_with else ())}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self.restarts = stop.done() and stop.result() in (RESTART, RESTART_FRESH)
            self.resumes = stop.done() and stop.result() == RESTART
            why = f"signal {signal.Signals(stop.result()).name}" if stop.done() else "its program ended"
            self.end_reason = EndReason.STOPPED if stop.done() else EndReason.ENDED
            if is_replaced := replaced.done():
                why, self.end_reason = "another process took its inbox over", EndReason.REPLACED
            log.info("host_stopping", extra={"why": why, "waiting": runtime.queue_length})
            # Before the agent ends: results in memory that wait for a deleted store can still be recorded.
            await runtime.recover_store()
            await agent.stop()
            await runtime.finish()
            agent.on_stopped(runtime.queued_tasks())
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

    async def _restore_entry(self) -> None:
        """Writes the registry entry again if a cleaner, or a process that took this one for dead, removed its file."""
        while True:
            await pause(REGISTRY_CHECK_SECONDS)
            try:
                if await self._registry.find(self._me.agent_id) is None:
                    await self._registry.publish(self._me)
                    log.warning("registry_entry_restored", extra={"agent": self._me.agent_id})
            except RegistryFailed as error:
                log.warning("registry_entry_not_restored", extra={"error": str(error)})


def _identity(me: AgentEntry) -> dict[str, object]:
    """Returns what identifies this start in the log."""
    return {
        "version": me.version,
        "pid": me.pid,
        "program": me.cli_pid,
        "port": me.port,
        "socket": me.socket,
        "folder": me.working_dir,
    }


async def run_host(identity: HostIdentity, start: StartAgent, settings: Settings, *, instructions: bool) -> int:
    """Opens the store, acquires the inbox, runs the host, and releases everything. Returns the agent's exit status.

    Raises StoreFailed, NameTaken, CommandMissing or AgentFailed before the agent has started, and LeaseLost when
    another process took over its inbox.
    """
    registry = open_local_registry(settings.registry, SystemClock().monotonic)
    try:
        store = await open_store(settings)
        try:
            holds = holders_of(FileRegistry(settings.registry))
            lease = await acquire_inbox(identity.entry, store, registry, holds)
            host = Host(identity, store, lease, registry, settings)
            try:
                status = await host.run(start, instructions=instructions)
            except LeaseLost:
                record_end(host, identity.entry, settings.home, 1)
                raise
            finally:
                await release_inbox(lease, store)
        finally:
            await store.close()
    finally:
        identity.release()
    if host.restarts:
        if host.original_limit is not None:
            set_file_limit(host.original_limit)
        restart_process(identity.entry.port, resume=host.resumes)
    record_end(host, identity.entry, settings.home, status)
    return status


def record_end(host: Host, me: AgentEntry, home: Path, status: int) -> None:
    """Writes how the host ended, for the keeper of its team. A full disk must not change how it ends."""
    at = SystemClock().now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        write_end(home, me, HostEnd(reason=host.end_reason, status=status, at=at))
    except OSError as error:
        log.warning("end_not_recorded", extra={"error": str(error)})


def open_server(
    identity: HostIdentity, agent: RunningAgent, service: Handler, registry: CachedRegistry, settings: Settings
) -> Server:
    """Returns the HTTP server of a host, for its Unix socket and its TCP port."""
    entry = identity.entry
    dialects = host_dialects(
        entry, title=agent.title, pty_wrapped=agent.pty_wrapped, advertise_0_3=settings.advertise_0_3
    )
    auth = LocalAuth(
        uid=os.getuid(),
        hosts=loopback_hosts(entry.port),
        # With our own entry, whose file does not exist yet, and may be removed later.
        entries=lambda: (*registry.latest, entry),
        token=own_token(settings.home),
        terminal_decides=settings.terminal_decides,
    )
    app = HttpApp(
        service,
        dialects,
        admit=LocalAdmission(auth, registry.agents),
        choose=DialectChoice(dialects),
        websockets=agent.websockets,
        limits=HttpLimits(max_body_bytes=settings.max_body_bytes, keep_alive_seconds=KEEP_ALIVE_SECONDS),
    )
    limits = limits_within(open_file_limit(), unproven=MAX_UNPROVEN, per_source=MAX_UNPROVEN_PER_USER)
    return Server(app, [identity.tcp, identity.unix.socket], limits=limits)
