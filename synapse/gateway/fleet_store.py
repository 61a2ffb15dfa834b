"""The store of a gateway in a fleet: this machine's store, and the replica of the other machines' logs, as one.

by task id          the store that has the task; this machine's own is asked first
lists               pages of both, merged by the time of the last change
follow one task     by the seqs of the task's own machine: a stream goes on at any gateway
follow all          by a cursor, which counts both logs as they grow here: `Recorded.cursor`
writes              to this machine's store only: other machines are asked to write theirs
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from synapse.core.address import split_inbox
from synapse.core.caller import MACHINE_SCOPE
from synapse.core.errors import InvalidRequest, TaskNotFound
from synapse.core.events import Recorded, TaskEvent
from synapse.core.push import PushStore
from synapse.core.store import IsAlive, KnownMessage, Lease, SearchProgress, TaskPage, TaskQuery, TaskStore
from synapse.core.task import Task, TaskId
from synapse.tasks.admission import message_digest

_BITS: Final = 32
"""A cursor has the seq of the own log in its lower bits, and the seq of the replica above them."""
_MASK: Final = (1 << _BITS) - 1
_END: Final = 1 << 2 * _BITS
_BETWEEN: Final = "~"
"""Between the cursors of the two pages that make one."""
_MOST_EXPECTED: Final = 1000
_AT_END: Final = "-"
"""In place of a cursor: this store has no more tasks."""


class ReplicaReader(TaskStore, Protocol):
    """The replica of other machines' logs; see `store.replica_store`."""

    async def events_of(self, task_id: TaskId, after: int, limit: int) -> Sequence[Recorded]:
        """Returns the events of a task after the seq `after` of its own machine, in order, with those seqs."""
        ...

    async def log_after(self, seq: int, limit: int) -> Sequence[Recorded]:
        """Returns the events after `seq` in order, with the seqs of their machines; `position` is the seq here."""
        ...


class FleetCursor(NamedTuple):
    """A place in both logs. A later place in either has a higher number."""

    own: int
    replica: int

    @classmethod
    def of(cls, number: int) -> FleetCursor:
        # Clients may name any number; beyond the largest there is nothing.
        return cls(number & _MASK, number >> _BITS) if number < _END else cls(_MASK, _MASK)

    @property
    def number(self) -> int:
        return (self.replica << _BITS) + self.own


def missed_events(last: int, after: int) -> int:
    """Returns how many events of both logs come after the cursor `after`; negative if that is of other logs."""
    own, replica = (end - known for end, known in zip(FleetCursor.of(last), FleetCursor.of(after), strict=True))
    return own + replica if min(own, replica) >= 0 else -1


def logs_of(store: TaskStore) -> tuple[TaskStore, ...]:
    """Returns the stores whose logs make up that of `store`: two in a fleet, else itself."""
    return store.logs if isinstance(store, FleetStore) else (store,)


class FleetStore:
    """Implements `core.store.TaskStore` over two stores. What it does not merge is about this machine's own store."""

    def __init__(self, own: TaskStore, replica: ReplicaReader) -> None:
        self.own = own
        self.replica = replica
        self.logs: tuple[TaskStore, ...] = (own, replica)
        """The two stores, for readers that count each log by itself."""
        self._expected: OrderedDict[TaskId, Task] = OrderedDict()

    @property
    def pushes(self) -> PushStore:
        """The webhooks of this machine's tasks: those of other tasks are with their hosts."""
        return self.own.pushes

    def append(self, task: Task, events: Sequence[TaskEvent], *, lease: Lease, digest: str = "") -> Awaitable[int]:
        """Writes to this machine's store; see `TaskStore.append`."""
        return self.own.append(task, events, lease=lease, digest=digest)

    async def load(self, task_id: TaskId) -> Task:
        """Raises TaskNotFound."""
        try:
            return await self.own.load(task_id)
        except TaskNotFound:
            pass
        try:
            task = await self.replica.load(task_id)
        except TaskNotFound:
            if (expected := self._expected.get(task_id)) is None:
                raise
            return await self._opened_before(expected) or expected
        return self._arrived(task)

    def expect(self, task: Task) -> None:
        """Shows a task that its machine has not shipped yet, as far as it is known, until the replica has it."""
        self._expected[task.id] = task
        if len(self._expected) > _MOST_EXPECTED:
            self._expected.popitem(last=False)

    def is_expected(self, task_id: TaskId) -> bool:
        """Whether the replica does not have a task that is expected."""
        return task_id in self._expected

    async def wait_for(self, task_id: TaskId, version: int, seconds: float) -> Task | None:
        """Returns a task of another machine once the replica has this version of it.

        After `seconds` it returns the version that the replica has, or None.
        """
        end = asyncio.get_running_loop().time() + seconds
        seq = 0
        while True:
            try:
                task = await self.replica.load(task_id)
            except TaskNotFound:
                task = None
            left = end - asyncio.get_running_loop().time()
            if left <= 0 or (task is not None and task.version >= version):
                return task
            seq = await self.replica.wait_after(seq, left)

    def _arrived(self, task: Task) -> Task:
        """Returns a task of the replica; one that was expected is not any more.

        The task of a message that was taken back names only the machine that did so: it stays that of its caller here.
        """
        expected = self._expected.get(task.id)
        if expected is not None and task.scope.startswith(MACHINE_SCOPE):
            return replace(task, scope=expected.scope)
        self._expected.pop(task.id, None)
        return task

    async def _opened_before(self, expected: Task) -> Task | None:
        """Returns the task that an earlier copy of the message opened: the machine then opens none for this one."""
        message = expected.history[0]
        known = await self.replica.find_message(expected.inbox, expected.scope, message.message_id)
        if known is None or known.digest != message_digest(message):
            return None
        return await self.replica.load(known.task_id)

    async def find(self, prefix: str, *, inbox: str = "", limit: int = 10) -> Sequence[TaskId]:
        """Returns the ids of visible tasks that begin with `prefix`, those of this machine first."""
        found = list[TaskId]()
        for store in self._stores_of(inbox):
            found += await store.find(prefix, inbox=inbox, limit=limit)
        return list(dict.fromkeys(found))[:limit]

    async def find_message(self, inbox: str, scope: str, message_id: str) -> KnownMessage | None:
        """Returns the task that claimed the message id, or None; an empty inbox or scope means any."""
        for store in self._stores_of(inbox):
            if known := await store.find_message(inbox, scope, message_id):
                return known
        return None

    async def list(self, query: TaskQuery) -> TaskPage:
        """Returns one page of the tasks of all machines, newest change first; see `TaskStore.list`."""
        stores = self._stores_of(query.inbox)
        if len(stores) == 1:
            return await stores[0].list(query)
        cursors = _split_cursor(query.cursor)
        queries = [replace(query, cursor=cursor) for cursor in cursors]
        pages = [
            _ENDED if one.cursor == _AT_END else await store.list(one)
            for store, one in zip(stores, queries, strict=True)
        ]
        totals = [
            (await store.list(replace(query, cursor="", limit=1))).total if one.cursor == _AT_END else page.total
            for store, one, page in zip(stores, queries, pages, strict=True)
        ]
        sides = [(task, side) for side, page in enumerate(pages) for task in page.tasks]
        # Stable, so tasks of one store that changed at the same moment stay in its order.
        sides.sort(key=lambda one: one[0].updated_at, reverse=True)
        shown = sides[: query.limit]
        counts = [sum(side == number for _, side in shown) for number in range(len(stores))]
        following = [
            await _cursor_after(store, one, page, count)
            for store, one, page, count in zip(stores, queries, pages, counts, strict=True)
        ]
        is_last = all(cursor == _AT_END for cursor in following)
        return TaskPage(
            tuple(task for task, _ in shown),
            "" if is_last else _BETWEEN.join(following),
            sum(totals),
            is_counted=all(page.is_counted for page in pages),
        )

    async def update_search(self, seconds: float) -> SearchProgress:
        """Indexes what is new in both; see `TaskStore.update_search`."""
        own = await self.own.update_search(seconds / 2)
        replica = await self.replica.update_search(seconds / 2)
        return SearchProgress(FleetCursor(own.seq, replica.seq).number, FleetCursor(own.last, replica.last).number)

    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        """Returns the events of one task after the seq `seq` of its machine, or those of all tasks after a cursor."""
        if task_id is not None:
            found = await self.own.read_after(seq, task_id=task_id, limit=limit)
            return found or await self._remote_events(task_id, seq, limit)
        at = FleetCursor.of(seq)
        own = await self.own.read_after(at.own, limit=limit)
        # At the beginning of the replica, the cursor of an event of the own log is its seq.
        placed = [Recorded(*one[:2], at._replace(own=one.seq).number) for one in own] if at.replica else list(own)
        at = at._replace(own=own[-1].seq if own else at.own)
        if len(placed) < limit:
            replica = await self.replica.log_after(at.replica, limit - len(placed))
            placed += [Recorded(one.seq, one.event, at._replace(replica=one.position).number) for one in replica]
        return placed

    async def last_seq(self) -> int:
        """Returns the cursor of the end of both logs."""
        return FleetCursor(await self.own.last_seq(), await self.replica.last_seq()).number

    async def store_id(self) -> str:
        """Returns the id of this machine's store."""
        return await self.own.store_id()

    async def wait_after(self, seq: int, seconds: float) -> int:
        """Returns the cursor of the end of both logs as soon as one of them has grown, or after `seconds`."""
        at = FleetCursor.of(seq)
        waits = [
            asyncio.ensure_future(self.own.wait_after(at.own, seconds)),
            asyncio.ensure_future(self.replica.wait_after(at.replica, seconds)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            own, replica = (wait.result() if wait.done() else known for wait, known in zip(waits, at, strict=True))
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return FleetCursor(max(own, at.own), max(replica, at.replica)).number

    async def open_tasks(self, inbox: str) -> Sequence[Task]:
        """Returns the unfinished tasks of an inbox, oldest first."""
        return await self._stores_of(inbox)[0].open_tasks(inbox)

    async def acquire(self, inbox: str, holder: str, is_alive: IsAlive) -> Lease | None:
        """Leases an inbox of this machine; see `TaskStore.acquire`."""
        return await self.own.acquire(inbox, holder, is_alive)

    async def verify(self, lease: Lease) -> None:
        """Raises LeaseLost unless `lease` is current."""
        await self.own.verify(lease)

    async def release(self, lease: Lease) -> None:
        """Releases the lease; does nothing if it is lost."""
        await self.own.release(lease)

    async def stored_bytes(self, *, inbox: str = "", scope: str = "") -> int:
        """Returns the size of all kept events in bytes, on all machines."""
        return sum([await store.stored_bytes(inbox=inbox, scope=scope) for store in self._stores_of(inbox)])

    async def prune(self, before: datetime, *, relayed_before: datetime | None = None) -> int:
        """Prunes this machine's store; the link prunes the replica."""
        return await self.own.prune(before, relayed_before=relayed_before)

    def fault(self) -> str:
        """Returns what is wrong with this machine's store, or with the replica."""
        return self.own.fault() or self.replica.fault()

    async def check(self) -> None:
        """Reads all kept data. Raises StoreCorrupt."""
        await self.own.check()
        await self.replica.check()

    async def recover(self) -> bool:
        """Restores this machine's store if its files were deleted; a replica is shipped again."""
        return await self.own.recover()

    async def close(self) -> None:
        """Closes both."""
        await self.own.close()
        await self.replica.close()

    def _stores_of(self, inbox: str) -> tuple[TaskStore, ...]:
        """Returns the store that has the tasks of an inbox; both for an empty one."""
        if not inbox:
            return self.logs
        return (self.replica,) if split_inbox(inbox)[1] else (self.own,)

    async def _remote_events(self, task_id: TaskId, after: int, limit: int) -> Sequence[Recorded]:
        try:
            # A task of this machine has no events in the replica, also if another machine ships one of the same id.
            await self.own.load(task_id)
        except TaskNotFound:
            return await self.replica.events_of(task_id, after, limit)
        return ()


_ENDED: Final = TaskPage((), "", 0)


def _split_cursor(cursor: str) -> tuple[str, str]:
    """Returns the cursors of the two stores. Raises InvalidRequest."""
    if not cursor:
        return "", ""
    own, between, replica = cursor.partition(_BETWEEN)
    if not between:
        raise InvalidRequest("the cursor is not valid", hint="start again without a cursor")
    return own, replica


async def _cursor_after(store: TaskStore, query: TaskQuery, page: TaskPage, count: int) -> str:
    """Returns where the store's next page begins if `count` tasks of this one are shown."""
    if count == len(page.tasks):
        return page.next_cursor or _AT_END
    if not count:
        return query.cursor
    # Only the store knows its cursors: the page is read again up to the last task that is shown.
    return (await store.list(replace(query, limit=count))).next_cursor
