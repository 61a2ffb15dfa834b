"""Push notifications of one agent: the configurations of its tasks, its outbox, and the encoder of each dialect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from synapse.config.process import new_id
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidRequest, PushConfigNotFound, TaskNotFound
from synapse.core.events import ArtifactAdded, Update
from synapse.core.push import Push, PushConfig, PushStore, checked_config
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.dialects.paths import A2A_V0_3
from synapse.push.outbox import IsKeyValid, Notification, NotificationEncoder, PushOutbox, RetrySchedule
from synapse.push.webhook import WebhookSender
from synapse.tasks.journal import Journal
from synapse.tasks.outcomes import PARTIAL

if TYPE_CHECKING:
    from synapse.auth.api_keys import KeyFile

MAX_PER_TASK: Final = 16
_SUPERVISOR: Final = "supervisor"
_MEDIA_TYPE_1_0: Final = "application/a2a+json"
_JSON: Final = "application/json"


def open_push(me: AgentEntry, store: TaskStore, journal: Journal, clock: Clock, settings: Settings) -> AgentPush:
    """Returns the push notifications of the agent whose inbox this process holds."""
    webhooks = WebhookSender(allow_private=settings.allow_private_webhooks)
    outbox = PushOutbox(
        me.inbox,
        store=store,
        pushes=store.pushes,
        journal=journal,
        webhooks=webhooks,
        encoder_for=lambda dialect: encoder_for(dialect, me.name or me.agent_id),
        clock=clock,
        jitter=random.random,
        schedule=RetrySchedule(attempts=max(1, settings.push_attempts)),
        pause=pause,
        is_key_valid=_key_check(settings.home, clock),
    )
    return AgentPush(PushConfigs(store.pushes, webhooks, journal, new_id=new_id, on_saved=outbox.add), outbox)


@dataclass(frozen=True, slots=True)
class AgentPush:
    """The configurations, for the agent's TaskService, and the outbox, which the agent's process runs."""

    configs: PushConfigs
    outbox: PushOutbox


class WebhookGuard(Protocol):
    """Decides which addresses a webhook may have."""

    async def check(self, url: str) -> None:
        """Raises InvalidField for an address that Synapse never calls."""
        ...


class PushConfigs:
    """Implements `core.push.PushService`. It calls `on_saved` with each configuration, so that the outbox delivers."""

    def __init__(
        self,
        pushes: PushStore,
        guard: WebhookGuard,
        journal: Journal,
        *,
        new_id: Callable[[], str],
        on_saved: Callable[[Push], None],
    ) -> None:
        self._pushes = pushes
        self._guard = guard
        self._journal = journal
        self._new_id = new_id
        self._on_saved = on_saved

    async def set(self, task: Task, config: PushConfig) -> PushConfig:
        """Configures a webhook for the events of the task from now on.

        Raises InvalidField, or InvalidRequest when the task has too many webhooks.
        """
        told = await self.expect(config, task.id)
        return await self.keep(task, replace(config, id=config.id or self._new_id()), told)

    async def expect(self, config: PushConfig, task_id: str) -> int:
        """Checks the configuration in a message before the message is sent; returns the last seq to leave out.

        Raises InvalidField.
        """
        await self._guard.check(checked_config(config).url)
        if not task_id:
            return 0
        with suppress(TaskNotFound):  # sending the message reports it
            return (await self._journal.snapshot(TaskId(task_id))).seq
        return 0

    async def keep(self, task: Task, config: PushConfig, told: int) -> PushConfig:
        """Configures a webhook for the events of the task after the seq `told`.

        Raises InvalidRequest when the task has too many webhooks.
        """
        # A default id: a message that is sent twice configures one webhook, not two.
        config = replace(config, id=config.id or task.id)
        known = {push.config.id for push in await self._pushes.of_task(task.id)}
        if config.id not in known and len(known) >= MAX_PER_TASK:
            raise InvalidRequest(
                f"task {task.short_id} already has {len(known)} push configurations", hint="delete one first"
            )
        push = await self._pushes.save(task.id, task.inbox, config, told)
        self._on_saved(push)
        return push.config

    async def get(self, task: Task, config_id: str) -> PushConfig:
        """Returns a configuration; without an id, the only one. Raises PushConfigNotFound."""
        configs = await self.list(task)
        found = [config for config in configs if config_id in ("", config.id)]
        if len(found) != 1:
            raise PushConfigNotFound(task.id, config_id)
        return found[0]

    async def list(self, task: Task) -> tuple[PushConfig, ...]:
        """Returns all configurations of the task, oldest first."""
        return tuple(push.config for push in await self._pushes.of_task(task.id))

    async def delete(self, task: Task, config_id: str) -> None:
        """Deletes a configuration. Idempotent."""
        await self._pushes.delete(task.id, config_id)


def encoder_for(dialect: str, agent: str) -> NotificationEncoder:
    """Returns the encoder of the dialect that configured a webhook; A2A 1.0 for dialects without their own format."""
    # A dialect is loaded with the first notification in it.
    if dialect == A2A_V0_3:
        from synapse.dialects.a2a_v0_3.push import encode_notification as encode_0_3  # noqa: PLC0415 - see above

        return _encoder(encode_0_3, _JSON)
    if dialect == _SUPERVISOR:
        from synapse.dialects.supervisor.encode import encode_notification as encode_supervisor  # noqa: PLC0415 - see above

        return _encoder(lambda update: encode_supervisor(update, agent), _JSON)
    from synapse.dialects.a2a_v1.push import encode_notification as encode_1_0  # noqa: PLC0415 - see above

    return _encoder(encode_1_0, _MEDIA_TYPE_1_0)


def _encoder(encode: Callable[[Update], bytes | None], media_type: str) -> NotificationEncoder:
    def encode_update(update: Update) -> Notification | None:
        # A webhook gets results, not the partial text that changes four times a second.
        is_partial = isinstance(update.event, ArtifactAdded) and bool(update.event.artifact.metadata.get(PARTIAL))
        body = None if is_partial else encode(update)
        return None if body is None else Notification(body=body, media_type=media_type)

    return encode_update


def _key_check(home: Path, clock: Clock) -> IsKeyValid:
    """Returns a function that says whether an API key is valid. A thread reads the file of keys."""

    @cache
    def keys() -> KeyFile:
        from synapse.auth.api_keys import KeyFile  # noqa: PLC0415 - few agents have webhooks that were configured with a key

        return KeyFile(home, clock)

    async def is_key_valid(key_id: str) -> bool:
        return await asyncio.to_thread(lambda: keys().is_good_for_webhooks(key_id))

    return is_key_valid
