"""Which names an agent can have, and how its inbox is acquired."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from synapse.config.settings import BUNDLED_PROFILES, Settings, load_settings
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidRequest, NameTaken, PortTaken
from synapse.core.override import override
from synapse.core.store import IsAlive, Lease
from synapse.host.identity import acquire_inbox, check_name, holders_of, reserve
from synapse.registry.files import FileRegistry, start_time
from synapse.registry.local import open_local_registry
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore

SETTINGS = Settings(profile_sources=(BUNDLED_PROFILES,))
OTHER = f"{os.getppid()}:{start_time(os.getppid())}"


@pytest.mark.parametrize(
    "name", ["reviewer", "keys", "unverified", "key", "claude2", "claude-a", "synapse", "users", "a.b_c-1", "n" * 40]
)
def test_a_name_that_means_no_other_agent_is_accepted(name: str) -> None:
    check_name(name, SETTINGS)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "claude",
            "Claude",
            "codex-8120",
            "scripted",
            "scripted-8180",
            "user",
            "synapse-system",
            "synapse-dummy-8195",
        ),
        *("unverified.x", "key.ci", "Key.ci", "UNVERIFIED.", "key."),
        *("", "-x", "no such", "a/b", "n" * 41, ".", "..", ".x", "list.json"),
    ],
)
def test_a_name_that_means_other_agents_or_is_invalid_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_name(name, SETTINGS)


class HeldForAMoment(MemoryStore):
    """A store in which another process holds every inbox, for the first `times` attempts."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    @override
    async def acquire(self, inbox: str, holder: str, is_alive: IsAlive) -> Lease | None:
        self._times -= 1
        return None if self._times >= 0 else await super().acquire(inbox, holder, is_alive)


async def test_an_inbox_that_a_command_holds_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    me = entry()

    registry = open_local_registry(tmp_path, FakeClock().monotonic)
    await acquire_inbox(me, HeldForAMoment(3), registry, holders_of(FileRegistry(tmp_path)))

    assert me.inbox == "reviewer"


async def test_a_name_that_a_running_agent_has_is_taken(tmp_path: Path) -> None:
    async def run() -> None:
        store, registry, other = MemoryStore(), FileRegistry(tmp_path), entry()
        other.agent_id, other.inbox = "synapse-codex-8120", "reviewer"
        other.pid, other.pid_started = os.getppid(), start_time(os.getppid()) or 0
        registry.write(other)
        await store.acquire("reviewer", OTHER, lambda _: True)
        here = open_local_registry(tmp_path, FakeClock().monotonic)
        await asyncio.wait_for(acquire_inbox(entry(), store, here, holders_of(registry)), 0.5)

    with pytest.raises(NameTaken, match="synapse-codex-8120 goes by 'reviewer' already"):
        await run()


def test_the_error_for_a_taken_port_names_its_agent(tmp_path: Path) -> None:
    settings = load_settings(environ={"SYNAPSE_HOME": str(tmp_path), "SYNAPSE_UDS_DIR": str(tmp_path / "s")})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = entry()
        other.port = port
        FileRegistry(settings.registry).write(other)

        with pytest.raises(PortTaken, match=f"port {port} is taken by synapse-codex-8121"):
            reserve("codex", [port], name="", port=port, settings=settings, clock=FakeClock())


def entry() -> AgentEntry:
    started = start_time(os.getpid()) or 0
    return AgentEntry("synapse-codex-8121", "codex", name="reviewer", port=8121, pid=os.getpid(), pid_started=started)
