"""The order in which an agent's messages are delivered: higher priority first, then first in, first out."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from synapse.core.message import Message
from synapse.core.task import INTERRUPT_PRIORITY, TaskId


@dataclass(frozen=True, slots=True)
class Queued:
    """One message that waits for its turn."""

    rank: tuple[int, int]
    task_id: TaskId
    message: Message
    first: bool
    resumed: bool = False
    """The agent has the message already; see `Turn.resumed`."""


_rank = attrgetter("rank")

RESUMED_RANK: Final = -INTERRUPT_PRIORITY - 1


class Queue:
    """The waiting messages of one agent. Plain data: it neither waits nor types."""

    def __init__(self) -> None:
        self._items: list[Queued] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._items)

    def add(self, task_id: TaskId, message: Message, priority: int, *, first: bool, resumed: bool = False) -> Queued:
        """Put a message behind all of its priority and above; one that the agent has already comes before them."""
        self._counter += 1
        rank = RESUMED_RANK if resumed else -priority
        item = Queued((rank, self._counter), task_id, message, first, resumed)
        insort(self._items, item, key=_rank)
        return item

    def put_back(self, item: Queued) -> None:
        """Return an item to the place that it had."""
        insort(self._items, item, key=_rank)

    def head(self) -> Queued | None:
        return self._items[0] if self._items else None

    def take(self) -> Queued:
        """Remove and return the next item; the caller has seen that there is one."""
        return self._items.pop(0)

    def remove(self, task_id: TaskId) -> bool:
        """Take all messages of a task out; False when there was none."""
        left = [item for item in self._items if item.task_id != task_id]
        removed = len(left) != len(self._items)
        self._items = left
        return removed
