"""How long messages take, read from the log that all agents share: from queued to submitted, started and answered.

Whoever asks is told what was recorded since the last time. Nothing is read while nobody asks.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from synapse.core.events import ReceiptChanged, TaskEvent, TaskOpened
from synapse.core.figures import Delivered
from synapse.core.receipt import ReceiptStep
from synapse.core.task import TaskId
from synapse.service.store_tail import TailedStore

_PAGE: Final = 500
_MOST_PAGES: Final = 20
"""What is read at once; the rest is told to whoever asks next."""
_MOST_TASKS: Final = 10_000
_STEPS: Final = frozenset({ReceiptStep.SUBMITTED, ReceiptStep.TURN_STARTED, ReceiptStep.ANSWERED})


class DeliveryTimes:
    """Reads the log from its end as it is at the first question."""

    def __init__(self, store: TailedStore) -> None:
        self._store = store
        self._seq: int | None = None
        self._queued: dict[TaskId, tuple[str, datetime]] = {}

    async def since_last_time(self) -> tuple[Delivered, ...]:
        """What has come further meanwhile; messages that were queued before the first question are left out.

        Raises StoreFailed.
        """
        if self._seq is None:
            self._seq = await self._store.last_seq()
            return ()
        told: list[Delivered] = []
        for _ in range(_MOST_PAGES):
            page = await self._store.read_after(self._seq, limit=_PAGE)
            for recorded in page:
                told += self._took(recorded.event)
                self._seq = recorded.seq
            if len(page) < _PAGE:
                break
        return tuple(told)

    def _took(self, event: TaskEvent) -> list[Delivered]:
        if isinstance(event, TaskOpened) and event.queued:
            self._queue(event.task_id, event.agent_id, event.at)
        if not isinstance(event, ReceiptChanged):
            return []
        agent, since = self._queued.get(event.task_id, ("", event.at))
        if event.step is ReceiptStep.QUEUED and agent:
            self._queue(event.task_id, agent, event.at)
        if event.step.is_final:
            self._queued.pop(event.task_id, None)
        if event.step not in _STEPS or not agent:
            return []
        # A clock that was set back meanwhile must not make a negative time.
        seconds = max(0.0, (event.at - since).total_seconds())
        return [Delivered(agent=agent, step=event.step.value, seconds=seconds)]

    def _queue(self, task_id: TaskId, agent: str, at: datetime) -> None:
        self._queued[task_id] = (agent, at)
        if len(self._queued) > _MOST_TASKS:
            # The one that waits longest is the least likely to be answered.
            del self._queued[next(iter(self._queued))]
