"""Stores that misbehave on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from synapse.core.events import TaskEvent
from synapse.core.override import override
from synapse.core.store import Lease
from synapse.core.task import Task, TaskId, TaskState
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore


class SlowStore(MemoryStore):
    """Keeps what is appended only when the test says so, as a disk that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[tuple[Task, Sequence[TaskEvent], Lease, str, asyncio.Future[int]]] = []
        self.loads = 0

    @property
    def waiting(self) -> int:
        return len(self._pending)

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending.append((task, events, lease, digest, done))
        return done

    @override
    async def load(self, task_id: TaskId) -> Task:
        self.loads += 1
        return await super().load(task_id)

    def commit(self) -> None:
        """Make everything that waits durable, in order."""
        pending, self._pending = self._pending, []
        for task, events, lease, digest, done in pending:
            kept = super().append(task, events, lease=lease, digest=digest)
            error = kept.exception()
            if error is None:
                done.set_result(kept.result())
            else:
                done.set_exception(error)

    def fail_next(self, error: Exception) -> None:
        """Fail the write that waits longest; those behind it stay."""
        *_, done = self._pending.pop(0)
        done.set_exception(error)

    def stop(self) -> None:
        """Give up everything that waits, as at shutdown."""
        for *_, done in self._pending:
            done.cancel()

    async def write_behind_the_back(self, task: Task, *events: TaskEvent) -> None:
        """Append as another process would."""
        await super().append(task, events)


class LateStore(MemoryStore):
    """Keeps everything at once, but tells the writer of a task in one state only later: others read it before."""

    def __init__(self, late: TaskState) -> None:
        super().__init__()
        self._late = late
        self._told: list[tuple[asyncio.Future[int], int]] = []
        self.is_ahead = asyncio.Event()
        """Set when something is kept that its writer does not know of."""

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        kept = super().append(task, events, lease=lease, digest=digest)
        if task.state is not self._late:
            return kept
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._told.append((done, kept.result()))
        self.is_ahead.set()
        return done

    def tell(self) -> None:
        """Tell the writer of everything."""
        told, self._told = self._told, []
        for done, first_seq in told:
            done.set_result(first_seq)


class ForgetfulStore(MemoryStore):
    """Says that everything is durable and keeps nothing, so that only the journal's own memory counts."""

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(1)
        return done


async def settle() -> None:
    """Let everything happen that can happen without the store."""
    for _ in range(10):
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(ready.set_result, None)
        await ready
