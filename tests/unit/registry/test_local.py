"""The registry for event loops: read in a thread, cached until the folder changes, never stale or blocking."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.errors import RegistryFailed
from synapse.core.override import override
from synapse.registry.files import FileRegistry
from synapse.registry.local import FRESH_SECONDS, LocalRegistry, open_local_registry
from tests.fakes.clock import FakeClock

BOUND = 5.0
NO_SUCH_PID = 2**22 + 1


def living(port: int = 8120) -> AgentEntry:
    return AgentEntry(f"synapse-codex-{port}", "codex", port=port, pid=os.getpid())


class SlowFiles(FileRegistry):
    """A slow folder: tests decide when a scan ends and a write begins. `reads` counts the scans."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads = 0
        self.may_go_on = threading.Event()
        self.is_reached = threading.Event()

    def hold(self) -> None:
        self.may_go_on.clear()
        self.is_reached.clear()

    @override
    def entries(self) -> list[AgentEntry]:
        self.reads += 1
        found = super().entries()
        self._wait()
        return found

    @override
    def write(self, entry: AgentEntry) -> None:
        self._wait()
        super().write(entry)

    def _wait(self) -> None:
        self.is_reached.set()
        assert self.may_go_on.wait(BOUND)


@pytest.fixture
def files(tmp_path: Path) -> SlowFiles:
    found = SlowFiles(tmp_path / "registry")
    found.may_go_on.set()
    return found


def age(files: FileRegistry) -> None:
    """Moves the folder's modification time so far back that no other change can have that time."""
    os.utime(files.folder, ns=(1, 1))


async def test_an_agent_is_seen_from_publish_to_withdraw(tmp_path: Path) -> None:
    registry = open_local_registry(tmp_path / "registry", FakeClock().monotonic)
    assert await registry.agents() == ()
    assert await registry.find("synapse-codex-8120") is None

    await registry.publish(living())
    assert [one.agent_id for one in await registry.agents()] == ["synapse-codex-8120"]
    found = await registry.find("synapse-codex-8120")
    assert found is not None and found.port == 8120  # noqa: PT018 - one thought

    await registry.withdraw("synapse-codex-8120")
    assert await registry.agents() == registry.latest == ()
    await registry.withdraw("synapse-codex-8120")


async def test_the_folder_is_not_read_again_until_it_changes(files: SlowFiles) -> None:
    registry = LocalRegistry(files, FakeClock().monotonic)
    await registry.publish(living(8120))
    age(files)
    first = await registry.agents()
    assert await registry.agents() is first
    assert (files.reads, registry.is_fresh()) == (1, True)

    await registry.publish(living(8121))
    assert not registry.is_fresh()
    assert [one.port for one in await registry.agents()] == [8120, 8121]


async def test_two_changes_in_one_tick_of_the_file_system_are_both_seen(files: SlowFiles) -> None:
    registry = LocalRegistry(files, FakeClock().monotonic)
    # A time that cannot lie a tick back, however long this test takes.
    tick = time.time_ns() + 60 * 10**9
    for port in (8120, 8121):
        files.write(living(port))
        os.utime(files.folder, ns=(tick, tick))
        assert len(await registry.agents()) == port - 8119


async def test_a_host_that_was_killed_is_missed_after_a_second_or_as_soon_as_it_does_not_answer(
    files: SlowFiles,
) -> None:
    clock = FakeClock()
    registry = LocalRegistry(files, clock.monotonic)
    entry = living()
    files.write(entry)
    age(files)
    assert len(await registry.agents()) == 1

    clock.advance(FRESH_SECONDS / 2)
    assert (await registry.agents(), files.reads) == (registry.latest, 1)
    clock.advance(FRESH_SECONDS)
    await registry.agents()
    assert files.reads == 2
    registry.recheck()
    await registry.agents()
    assert files.reads == 3

    files.write(AgentEntry("synapse-codex-8121", "codex", pid=NO_SUCH_PID, pid_started=1))
    assert [one.agent_id for one in await registry.agents()] == [entry.agent_id]
    assert files.notes == []


async def test_a_folder_that_is_slow_to_read_does_not_stall_the_loop(files: SlowFiles) -> None:
    registry = LocalRegistry(files, FakeClock().monotonic)
    files.hold()
    asked = [asyncio.ensure_future(registry.agents()) for _ in range(3)]
    async with asyncio.timeout(BOUND):
        await asyncio.to_thread(files.is_reached.wait, BOUND)
        # The event loop is not blocked meanwhile.
        for _ in range(1000):
            await asyncio.wait((asyncio.ensure_future(_nothing()),))
        assert not any(one.done() for one in asked)

        asked[0].cancel()
        files.may_go_on.set()
        assert [await one for one in asked[1:]] == [(), ()]
        # Calls during the read have started no read of their own before it ended.
        assert files.reads <= 2


async def test_a_call_during_a_read_sees_later_changes(files: SlowFiles) -> None:
    registry = LocalRegistry(files, FakeClock().monotonic)
    files.hold()
    first = asyncio.ensure_future(registry.agents())
    async with asyncio.timeout(BOUND):
        await asyncio.to_thread(files.is_reached.wait, BOUND)
        FileRegistry(files.folder).write(living())
        second = asyncio.ensure_future(registry.agents())
        files.may_go_on.set()
        assert (len(await first), len(await second)) == (0, 1)


async def test_a_withdrawal_is_not_overtaken_by_an_earlier_publication(files: SlowFiles) -> None:
    registry = LocalRegistry(files, FakeClock().monotonic)
    files.hold()
    publishing = asyncio.ensure_future(registry.publish(living()))
    async with asyncio.timeout(BOUND):
        await asyncio.to_thread(files.is_reached.wait, BOUND)
        publishing.cancel()
        withdrawing = asyncio.ensure_future(registry.withdraw("synapse-codex-8120"))
        files.may_go_on.set()
        await withdrawing
        assert files.written() == []


async def test_a_folder_that_cannot_be_used_is_an_error_of_synapse_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    folder.write_text("not a folder", encoding="utf-8")
    registry = open_local_registry(folder, FakeClock().monotonic)

    for act in (registry.agents(), registry.publish(living())):
        with pytest.raises(RegistryFailed, match=f"{folder} cannot be used: ") as failure:
            await act
        assert isinstance(failure.value.__cause__, OSError)

    folder.unlink()
    await registry.publish(living())
    assert [one.agent_id for one in await registry.agents()] == ["synapse-codex-8120"]


async def test_a_call_during_a_read_that_fails_reads_again(files: SlowFiles) -> None:
    registry = LocalRegistry(files, FakeClock().monotonic)
    files.hold()
    Path(files.folder).write_text("not a folder", encoding="utf-8")
    first = asyncio.ensure_future(registry.agents())
    # The failing read does not reach the wait: both calls begin before the loop learns of it.
    second = asyncio.ensure_future(registry.agents())
    async with asyncio.timeout(BOUND):
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(one) for one in outcomes] == [RegistryFailed, RegistryFailed]
        assert files.reads == 2


async def _nothing() -> None:
    """Waits for one iteration of the event loop."""
