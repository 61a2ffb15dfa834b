"""Which webhooks are told about a task: set, read and deleted by whoever may see the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from synapse.core.errors import InvalidRequest, TaskNotFound
from synapse.core.push import Push, PushConfig, PushStore, checked_config
from synapse.core.push_errors import PushConfigNotFound
from synapse.core.task import Task, TaskId
from synapse.service.journal import Journal

MOST_PER_TASK: Final = 16


class WebhookGuard(Protocol):
    """Knows which addresses may be called."""

    async def check(self, url: str) -> None:
        """Raises InvalidField for an address that we never call."""
        ...


class PushConfigs:
    """The push configurations of tasks. `saved` is told of each, so that somebody delivers."""

    def __init__(
        self,
        pushes: PushStore,
        guard: WebhookGuard,
        journal: Journal,
        *,
        new_id: Callable[[], str],
        saved: Callable[[Push], None],
    ) -> None:
        self._pushes = pushes
        self._guard = guard
        self._journal = journal
        self._new_id = new_id
        self._saved = saved

    async def set(self, task: Task, config: PushConfig) -> PushConfig:
        """Tell a webhook about what happens to the task from now on.

        Raises InvalidField, or InvalidRequest when the task has too many.
        """
        told = await self.expect(config, task.id)
        return await self.keep(task, replace(config, id=config.id or self._new_id()), told)

    async def expect(self, config: PushConfig, task_id: str) -> int:
        """Check what comes with a message, before it is sent; return the seq after which the webhook will be told.

        Raises InvalidField.
        """
        await self._guard.check(checked_config(config).url)
        if not task_id:
            return 0
        with suppress(TaskNotFound):  # whoever sends the message hears of it
            return (await self._journal.snapshot(TaskId(task_id))).seq
        return 0

    async def keep(self, task: Task, config: PushConfig, told: int) -> PushConfig:
        """Tell a webhook about what happens to the task after the seq `told`.

        Raises InvalidRequest when the task has too many.
        """
        # The same message sent twice comes with the same configuration, which then is not a second one.
        config = replace(config, id=config.id or task.id)
        known = {push.config.id for push in await self._pushes.of_task(task.id)}
        if config.id not in known and len(known) >= MOST_PER_TASK:
            raise InvalidRequest(
                f"task {task.short_id} has {len(known)} push configurations already", hint="delete one first"
            )
        push = await self._pushes.save(task.id, task.inbox, config, told)
        self._saved(push)
        return push.config

    async def get(self, task: Task, config_id: str) -> PushConfig:
        """Without an id, the only one.

        Raises PushConfigNotFound.
        """
        configs = await self.list(task)
        found = [config for config in configs if config_id in ("", config.id)]
        if len(found) != 1:
            raise PushConfigNotFound(task.id, config_id)
        return found[0]

    async def list(self, task: Task) -> Sequence[PushConfig]:
        return tuple(push.config for push in await self._pushes.of_task(task.id))

    async def delete(self, task: Task, config_id: str) -> None:
        """Done twice it is done."""
        await self._pushes.delete(task.id, config_id)
