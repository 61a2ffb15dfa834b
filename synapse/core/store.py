"""The TaskStore port: keeps the events of tasks, finds tasks, and leases inboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, cast

from synapse.core.events import Recorded, TaskEvent
from synapse.core.message import Json
from synapse.core.push import PushStore
from synapse.core.task import EXPIRED, Task, TaskId, TaskState

RELAYED_DAYS: Final = 15
"""How long finished tasks that other machines sent are kept at least: they know the ids of messages, and a copy of one
that expires after 7 days may be in the mail for 7 more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """Selects tasks, newest change first. Empty fields do not filter. `cursor` is opaque, from the previous page."""

    inbox: str = ""
    agent_id: str = ""
    scope: str = ""
    """Only tasks of this scope; see `core.caller.covers`."""
    states: frozenset[TaskState] = frozenset()
    context_id: str = ""
    parent_id: str = ""
    updated_after: datetime | None = None
    metadata: Json = field(default_factory=dict[str, Any])
    """Only tasks whose metadata has all of these values; see `has_metadata`."""
    expired: bool | None = None
    """True: only tasks that ended by their deadline. False: only others."""
    text: str = ""
    """Only tasks in whose messages or answers these words occur; see `store.search_words`."""
    limit: int = 50
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """One page of tasks, and the cursor of the next page (empty on the last)."""

    tasks: tuple[Task, ...]
    next_cursor: str
    total: int
    is_counted: bool = True
    """Whether `total` is how many there are: what the store has no columns for is filtered page by page."""


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """The task that a used message id belongs to, and a digest of the message's content."""

    task_id: TaskId
    digest: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write the tasks of one inbox, until another process acquires it."""

    inbox: str
    holder: str
    """The process that holds the lease, in the form that `IsAlive` reads."""
    epoch: int
    """Grows by one with each acquisition, so an older lease never equals the current one."""


class SearchProgress(NamedTuple):
    """How far the search index is: the last event in it, and the newest event of the store."""

    seq: int
    last: int

    @property
    def left(self) -> int:
        """How many events are not indexed yet."""
        return self.last - self.seq

    @property
    def is_current(self) -> bool:
        return not self.left

    @property
    def percent(self) -> int:
        return 100 * self.seq // self.last if self.last else 100


class TaskStore(Protocol):
    """Keeps events and the tasks that result from them. Every method may raise StoreFailed."""

    @property
    def pushes(self) -> PushStore:
        """The webhooks of the tasks."""
        ...

    def append(self, task: Task, events: Sequence[TaskEvent], *, lease: Lease, digest: str = "") -> Awaitable[int]:
        """Makes `events` durable in one transaction; `task` is the task after them.

        Returns the seq of the first event; the others follow without a gap.

        The order is that of the calls, not of the awaits: an earlier call is durable and done first. With a `digest`
        the append also claims the message id of the first event (TaskOpened, MessageAdded) for the inbox and scope of
        the task.

        Raises (when awaited):
            LeaseLost: `lease` is not the current lease of the task's inbox. The same transaction checks it, so a
                process that was suspended writes nothing after its successor has acquired the inbox.
            VersionConflict: the stored version is not `task.version - len(events)`, or the message id is claimed.
            InvalidRequest: the events contain a value that JSON cannot express.
        """
        ...

    async def load(self, task_id: TaskId) -> Task:
        """Raises TaskNotFound."""
        ...

    async def find(self, prefix: str, *, inbox: str = "", limit: int = 10) -> Sequence[TaskId]:
        """Returns the ids of visible tasks that begin with `prefix`, newest first."""
        ...

    async def find_message(self, inbox: str, scope: str, message_id: str) -> KnownMessage | None:
        """Returns the task that claimed the message id, or None; an empty inbox or scope means any."""
        ...

    async def list(self, query: TaskQuery) -> TaskPage:
        """Returns one page.

        Raises (also):
            InvalidRequest: the cursor is invalid, or the text to search for is too long.
            SearchNotReady: the query has a text, and the search index is being built.
            UnsupportedOperation: the query has a text, and search is switched off.
        """
        ...

    async def update_search(self, seconds: float) -> SearchProgress:
        """Indexes what is new for about `seconds` at most; returns how far the search index is then.

        Several processes may do this in turn. If search is switched off, it deletes the index and counts as current.
        """
        ...

    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        """Returns the events after `seq`, in order, of one task or of all."""
        ...

    async def last_seq(self) -> int:
        """Returns the seq of the newest event; 0 if there is none."""
        ...

    async def store_id(self) -> str:
        """Returns the id that the store got when it was made; a copy of the store has the same."""
        ...

    async def wait_after(self, seq: int, seconds: float) -> int:
        """Returns the seq of the newest event as soon as it is greater than `seq`, or after `seconds`.

        Events of every process count. The call never misses an event that is durable before it or becomes so meanwhile.
        """
        ...

    async def open_tasks(self, inbox: str) -> Sequence[Task]:
        """Returns the unfinished tasks of an inbox, oldest first."""
        ...

    async def acquire(self, inbox: str, holder: str, is_alive: IsAlive) -> Lease | None:
        """Returns a new lease of the inbox, or None while another living process holds one.

        A holder that acquires again also gets a new epoch and loses its earlier lease: a process that replaced itself
        (exec) keeps its pid and start time, and its earlier program must not write any more. `is_alive` may be called
        in another thread.
        """
        ...

    async def verify(self, lease: Lease) -> None:
        """Raises LeaseLost unless `lease` is current."""
        ...

    async def release(self, lease: Lease) -> None:
        """Releases the lease; does nothing if it is lost."""
        ...

    async def stored_bytes(self, *, inbox: str = "", scope: str = "") -> int:
        """Returns the size of all kept events in bytes; an empty inbox or scope means any."""
        ...

    async def prune(self, before: datetime, *, relayed_before: datetime | None = None) -> int:
        """Deletes finished tasks unchanged since `before`, in steps that let others write; returns how many.

        With `relayed_before`, tasks that other machines sent must be unchanged since then too: they claim the ids of
        messages that may still come again.
        """
        ...

    def fault(self) -> str:
        """Returns a sentence for people about why the store cannot write; empty while it can."""
        ...

    async def check(self) -> None:
        """Reads all kept data. Raises StoreCorrupt."""
        ...

    async def recover(self) -> bool:
        """Restores a store whose files were deleted; returns False if it cannot be used.

        A process calls this when it ends, so that pending events are recorded. Until then it leaves the files deleted.
        """
        ...

    async def close(self) -> None:
        """Writes pending events, then closes the store."""
        ...


class IsAlive(Protocol):
    """Decides whether the process that holds a lease still runs."""

    def __call__(self, holder: str, /) -> bool: ...


def is_wanted(task: Task, query: TaskQuery) -> bool:
    """Decides whether a task matches the filters that stores keep no columns for: metadata and expiry."""
    if query.expired is not None and query.expired is not (task.reason == EXPIRED):
        return False
    return has_metadata(task.metadata, query.metadata)


def has_metadata(actual: Json, wanted: Json) -> bool:
    """Decides whether `actual` has every value of `wanted`; compares nested objects likewise."""
    return all(key in actual and _is_like(actual[key], value) for key, value in wanted.items())


def _is_like(actual: object, wanted: object) -> bool:
    if isinstance(actual, dict) and isinstance(wanted, dict):
        return has_metadata(cast("Json", actual), cast("Json", wanted))
    # In Python 1 equals True; in JSON it does not.
    return actual == wanted and isinstance(actual, bool) is isinstance(wanted, bool)
