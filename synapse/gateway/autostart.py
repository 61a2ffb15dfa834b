"""Starts the agents that a gateway's configuration names, in the background, and starts them again when they end.

not running ─► started ─► ended ─► pause, longer after each quick end ─► started …
     └── runs already, started by another process: only watched
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from synapse.config.private_files import make_private
from synapse.config.process import Limit, give_file_limit
from synapse.config.settings import load_settings, profile_names
from synapse.core.address import nearest
from synapse.core.errors import InvalidSettings, RegistryFailed
from synapse.core.registry import Registry
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.gateway.config import AgentConfig
from synapse.host.background import HostLaunch, host_environment
from synapse.host.ends import STEADY_SECONDS, pause_after

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 1.0
STOP_SECONDS: Final = 8.0


def check_startable(agents: Sequence[AgentConfig], path: Path) -> None:
    """Raises InvalidSettings for an agent that can never start; `path` is the settings file."""
    for agent in agents:
        if not agent.profile or not agent.start:
            continue
        folder = agent.working_dir
        if folder and not Path(folder).is_dir():
            raise InvalidSettings(
                f"{path}: agent '{agent.id}': there is no folder {folder}",
                hint="create it; a relative 'working_dir' starts at the folder of the settings file",
            )
        settings = load_settings(folder=folder or None)
        known = profile_names(settings.profile_sources)
        if agent.profile not in known and settings.project and agent.profile in settings.project.profiles:
            raise InvalidSettings(f"{path}: agent '{agent.id}': {settings.project.note(agent.profile)}")
        if agent.profile not in known:
            meant = nearest(agent.profile, known)
            raise InvalidSettings(
                f"{path}: agent '{agent.id}': there is no profile '{agent.profile}'",
                hint=f"did you mean '{meant}'?" if meant else f"profiles: {', '.join(known)}",
            )


class AgentAutostart:
    """Keeps one agent running. When `keep` is cancelled, it stops the agent, if it started it.

    `secrets` are environment variables that the agent does not get; `file_limit` is its limit of open files.
    """

    def __init__(  # noqa: PLR0913 - the agent, and what its host gets
        self,
        agent: AgentConfig,
        registry: Registry,
        logs: Path,
        clock: Clock,
        *,
        secrets: frozenset[str] = frozenset(),
        file_limit: Limit | None = None,
        command: Callable[[AgentConfig], list[str]] | None = None,
    ) -> None:
        self._agent = agent
        self._registry = registry
        self._logs = logs
        self._clock = clock
        self._secrets = secrets
        self._file_limit = file_limit
        self._command = command or host_command
        self._quick_ends = 0
        self.starts = 0
        """The number of starts so far."""

    async def keep(self) -> None:
        """Starts the agent whenever it does not run, until cancelled."""
        while True:
            if await self._may_run():
                await pause(WATCH_SECONDS)
                continue
            started = self._clock.monotonic()
            status = await self._run_once()
            seconds = self._clock.monotonic() - started
            self._quick_ends = 0 if seconds >= STEADY_SECONDS else self._quick_ends + 1
            delay = pause_after(self._quick_ends)
            facts = {"agent": self._agent.id, "exit_status": status, "lived": round(seconds, 1), "next_start_in": delay}
            log.warning("agent_ended", extra=facts)
            await pause(delay)

    async def _may_run(self) -> bool:
        """Returns whether the agent runs, or the registry cannot be read: a second host must not start."""
        try:
            return any(entry.name == self._agent.id for entry in await self._registry.agents())
        except RegistryFailed as error:
            log.warning("registry_not_read", extra={"error": str(error)})
            return True

    async def _run_once(self) -> int:
        """Starts the host and returns its exit status."""
        self.starts += 1
        try:
            with await asyncio.to_thread(self._output) as output:
                process = await asyncio.create_subprocess_exec(
                    *self._command(self._agent),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                    cwd=self._agent.working_dir or None,
                    # Without the gateway's secrets, which an agent's programs must not read.
                    env={name: value for name, value in host_environment().items() if name not in self._secrets},
                )
        except OSError as error:
            log.warning("agent_not_started", extra={"agent": self._agent.id, "error": str(error)})
            return -1
        if self._file_limit is not None:
            # At once, while the host is still starting: its program inherits the limit.
            give_file_limit(process.pid, self._file_limit)
        log.info("agent_started", extra={"agent": self._agent.id, "pid": process.pid})
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await _terminate(process)
            raise

    def _output(self) -> IO[bytes]:
        """Opens the file for the host's output; it holds that of the last start."""
        make_private(self._logs)
        path = self._logs / f"kept-{self._agent.id}.out"
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def host_command(agent: AgentConfig) -> list[str]:
    """Returns the command line of the agent's host."""
    launch = HostLaunch(
        verb=[agent.profile],
        name=agent.id,
        instructions=agent.instructions,
        arguments=agent.arguments,
        # After a crash of it or of the gateway, it goes on where it was.
        resume=True,
    )
    return launch.command()


async def _terminate(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
