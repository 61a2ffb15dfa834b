"""A PushStore in dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from synapse.core.push import Delivery, DeliveryState, Push, PushConfig
from synapse.core.task import TaskId


class MemoryPushes:
    """Keeps webhooks and their deliveries until the process ends."""

    def __init__(self) -> None:
        self._pushes: dict[int, Push] = {}
        self._finished: set[int] = set()
        self._deliveries: dict[tuple[int, int], Delivery] = {}
        self._last = 0

    async def save(self, task_id: TaskId, inbox: str, config: PushConfig, told: int) -> Push:
        known = self._find(task_id, config.id)
        if known is None:
            self._last += 1
            push = Push(number=self._last, task_id=task_id, inbox=inbox, config=config, told=told)
        else:
            push = replace(known, config=config)
        self._pushes[push.number] = push
        self._finished.discard(push.number)
        return push

    async def of_task(self, task_id: TaskId) -> Sequence[Push]:
        return [push for push in self._pushes.values() if push.task_id == task_id]

    async def open_after(self, inbox: str, number: int) -> Sequence[Push]:
        beyond = (push for push in self._pushes.values() if push.number > number)
        return [push for push in beyond if push.inbox == inbox and push.number not in self._finished]

    async def load(self, number: int) -> Push | None:
        push = self._pushes.get(number)
        if push is None:
            return None
        waiting = (one for one in self._deliveries_of(number) if one.seq > push.told)
        return replace(push, pending=next((one for one in waiting if one.state is DeliveryState.PENDING), None))

    async def delete(self, task_id: TaskId, config_id: str) -> None:
        self._forget(lambda push: push.task_id == task_id and push.config.id == config_id)

    async def record(self, delivery: Delivery) -> bool:
        push = self._pushes.get(delivery.number)
        if push is None:
            return False
        if delivery.state is not DeliveryState.PENDING:
            self._pushes[push.number] = replace(push, told=max(push.told, delivery.seq))
        self._deliveries[push.number, delivery.seq] = delivery
        return True

    async def finish(self, number: int, told: int) -> None:
        push = self._pushes.get(number)
        if push is not None:
            self._pushes[number] = replace(push, told=max(push.told, told))
            self._finished.add(number)

    async def deliveries(self, limit: int) -> Sequence[tuple[Push, Delivery | None]]:
        pushes = sorted(self._pushes.values(), key=lambda push: push.number, reverse=True)
        new = [push for push in pushes if push.number not in self._finished and not self._deliveries_of(push.number)]
        last = sorted(self._deliveries.values(), key=lambda one: (one.at, one.number, one.seq), reverse=True)
        return [*((push, None) for push in new), *((self._pushes[one.number], one) for one in last)][:limit]

    async def counts(self) -> Mapping[DeliveryState, int]:
        return Counter(one.state for one in self._deliveries.values())

    def forget_tasks(self, task_ids: set[TaskId]) -> None:
        """What belongs to tasks that were pruned goes with them."""
        self._forget(lambda push: push.task_id in task_ids)

    def _find(self, task_id: TaskId, config_id: str) -> Push | None:
        of_task = (push for push in self._pushes.values() if push.task_id == task_id)
        return next((push for push in of_task if push.config.id == config_id), None)

    def _deliveries_of(self, number: int) -> list[Delivery]:
        return [one for one in self._deliveries.values() if one.number == number]

    def _forget(self, is_meant: Callable[[Push], bool]) -> None:
        gone = {push.number for push in self._pushes.values() if is_meant(push)}
        self._pushes = {number: push for number, push in self._pushes.items() if number not in gone}
        self._deliveries = {key: one for key, one in self._deliveries.items() if key[0] not in gone}
        self._finished -= gone
