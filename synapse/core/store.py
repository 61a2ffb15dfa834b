"""What the service needs from durability, and no more."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, cast

from synapse.core.events import Recorded, TaskEvent
from synapse.core.message import Json
from synapse.core.push import PushStore
from synapse.core.task import EXPIRED, Task, TaskId, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """Which tasks; newest change first. Empty fields do not filter. `cursor` is opaque, from the page before."""

    inbox: str = ""
    agent_id: str = ""
    scope: str = ""
    states: frozenset[TaskState] = frozenset()
    context_id: str = ""
    parent_id: str = ""
    updated_after: datetime | None = None
    metadata: Json = field(default_factory=dict[str, Any])
    """Only tasks whose metadata has all of these values; see `has_metadata`."""
    expired: bool | None = None
    """Only tasks that ended because their time was over, or only others."""
    limit: int = 50
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks, and where the next page begins (empty on the last)."""

    tasks: tuple[Task, ...]
    next_cursor: str
    total: int


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A message id that was used before, the task that it made, and a digest of what it said."""

    task_id: TaskId
    digest: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write the tasks of one inbox, until another process acquires it."""

    inbox: str
    holder: str
    """The process that has it, as `IsAlive` understands it."""
    epoch: int
    """Grows by one with each acquisition, so an older lease never equals the current one."""


class TaskStore(Protocol):
    """Keeps events, and the tasks that they amount to. Every method may raise StoreFailed."""

    @property
    def pushes(self) -> PushStore:
        """The webhooks of the tasks."""
        ...

    def append(self, task: Task, events: Sequence[TaskEvent], *, lease: Lease, digest: str = "") -> Awaitable[int]:
        """Make `events` durable in one transaction; `task` is what they amount to.

        Returns the seq of the first of them; the others follow it without a gap.

        Takes its place at the call, not at the await: what was called first is durable and done first. With a `digest`
        the message id of the first event (TaskOpened, MessageAdded) is claimed for the task's inbox and scope.

        Raises (when awaited):
            LeaseLost: `lease` is not the current lease of the task's inbox. The same transaction checks it, so a
                process that was suspended writes nothing after its successor has acquired the inbox.
            VersionConflict: the stored version is not `task.version - len(events)`, or the message id is claimed.
            InvalidRequest: something in the events cannot be written as JSON.
        """
        ...

    async def load(self, task_id: TaskId) -> Task:
        """Raises TaskNotFound."""
        ...

    async def find(self, prefix: str, *, inbox: str = "", limit: int = 10) -> Sequence[TaskId]:
        """Ids that begin with `prefix`, hidden ones excluded, newest first."""
        ...

    async def find_message(self, inbox: str, scope: str, message_id: str) -> KnownMessage | None:
        """The task that claimed the message id; an empty inbox or scope means any."""
        ...

    async def list(self, query: TaskQuery) -> TaskPage: ...

    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        """The events after `seq`, in order; of one task, or of all."""
        ...

    async def last_seq(self) -> int:
        """The seq of the newest event; 0 when there is none."""
        ...

    async def wait_after(self, seq: int, seconds: float) -> int:
        """Return the seq of the newest event as soon as it is beyond `seq`, or else after `seconds`.

        Events count that any process appends. One that is durable when this is called, or becomes so meanwhile, is
        never waited past.
        """
        ...

    async def open_tasks(self, inbox: str) -> Sequence[Task]:
        """The unfinished tasks of an inbox, oldest first."""
        ...

    async def acquire(self, inbox: str, holder: str, is_alive: IsAlive) -> Lease | None:
        """Return a new lease of the inbox; None while another living holder has one.

        A holder that acquires again gets a new epoch too, and loses its earlier lease: a process that replaced itself
        (exec) keeps its pid and start time, and nothing of its earlier life may write. `is_alive` may be called in
        another thread.
        """
        ...

    async def verify(self, lease: Lease) -> None:
        """Raises LeaseLost unless `lease` is current."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back; does nothing when it is lost."""
        ...

    async def stored_bytes(self, *, inbox: str = "", scope: str = "") -> int:
        """How many bytes of events are kept; an empty inbox or scope means any."""
        ...

    async def prune(self, before: datetime) -> int:
        """Delete finished tasks that did not change since, in steps that let others write; return how many."""
        ...

    def fault(self) -> str:
        """What keeps it from storing anything, as a sentence for people; nothing while it can."""
        ...

    async def check(self) -> None:
        """Read everything that is kept. Raises StoreCorrupt."""
        ...

    async def recover(self) -> bool:
        """Put a store whose files were deleted back to its place, and go on with it; False when it cannot be used.

        To be called at the end of a process, so that what waits to be recorded is recorded: until then the store stays
        as whoever deleted it has left it.
        """
        ...

    async def close(self) -> None:
        """Write what waits, then close the store."""
        ...


class IsAlive(Protocol):
    """Tells whether the process that a lease names still runs."""

    def __call__(self, holder: str, /) -> bool: ...


def is_wanted(task: Task, query: TaskQuery) -> bool:
    """Whether a task fits what a query says of its metadata and its end, which stores keep no columns for."""
    if query.expired is not None and query.expired is not (task.reason == EXPIRED):
        return False
    return has_metadata(task.metadata, query.metadata)


def has_metadata(actual: Json, wanted: Json) -> bool:
    """Whether `actual` has every value of `wanted`; an object has those of another when it has all of its fields."""
    return all(key in actual and _is_like(actual[key], value) for key, value in wanted.items())


def _is_like(actual: object, wanted: object) -> bool:
    if isinstance(actual, dict) and isinstance(wanted, dict):
        return has_metadata(cast("Json", actual), cast("Json", wanted))
    # In Python 1 is True; in JSON it is not.
    return actual == wanted and isinstance(actual, bool) is isinstance(wanted, bool)
