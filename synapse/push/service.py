"""Which webhooks are told about a task: set, read and deleted by whoever may see the task.

Push notifications of one agent, put together: its configurations, its outbox, and how each dialect words them.
"""

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
from synapse.dialects.negotiation import A2A_0_3
from synapse.push.outbox import Holds, Notification, PushOutbox, RetrySchedule, Words
from synapse.push.webhook import WebhookSender
from synapse.tasks.journal import Journal
from synapse.tasks.outcomes import PARTIAL

if TYPE_CHECKING:
    from synapse.auth.api_keys import KeyFile

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

    async def list(self, task: Task) -> tuple[PushConfig, ...]:
        return tuple(push.config for push in await self._pushes.of_task(task.id))

    async def delete(self, task: Task, config_id: str) -> None:
        """Done twice it is done."""
        await self._pushes.delete(task.id, config_id)


_SUPERVISOR: Final = "supervisor"
_MEDIA_TYPE_1_0: Final = "application/a2a+json"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Pushing:
    """What an agent's service needs to take configurations, and what its process runs to deliver."""

    configs: PushConfigs
    outbox: PushOutbox


def open_pushing(me: AgentEntry, store: TaskStore, journal: Journal, clock: Clock, settings: Settings) -> Pushing:
    """Return the push notifications of the agent whose inbox this process holds."""
    webhooks = WebhookSender(allow_private=settings.allow_private_webhooks)
    outbox = PushOutbox(
        me.inbox,
        store=store,
        pushes=store.pushes,
        journal=journal,
        webhooks=webhooks,
        words=lambda dialect: words_of(dialect, me.name or me.agent_id),
        clock=clock,
        chance=random.random,
        schedule=RetrySchedule(attempts=max(1, settings.push_attempts)),
        pause=_pause,
        holds=_key_holder(settings.home, clock),
    )
    return Pushing(PushConfigs(store.pushes, webhooks, journal, new_id=new_id, saved=outbox.take), outbox)


def _key_holder(home: Path, clock: Clock) -> Holds:
    """Tells whether an API key counts, as the file of keys is then: it is not read before somebody asks."""

    @cache
    def keys() -> KeyFile:
        from synapse.auth.api_keys import KeyFile  # noqa: PLC0415 - few agents have webhooks that a key has set

        return KeyFile(home, clock)

    def holds(key_id: str) -> bool:
        key = keys().find(key_id)
        return key is not None and not key.is_expired(clock.now())

    return holds


def words_of(dialect: str, agent: str) -> Words:
    """How the dialect that configured a webhook tells updates; one without words of its own uses those of A2A 1.0."""
    # Each dialect is loaded when the first of its webhooks is told something.
    if dialect == A2A_0_3:
        from synapse.dialects.a2a_v0_3.push import encode_notification as former  # noqa: PLC0415 - see above

        return _worded(former, _JSON)
    if dialect == _SUPERVISOR:
        from synapse.dialects.supervisor.encode import encode_notification as own  # noqa: PLC0415 - see above

        return _worded(lambda update: own(update, agent), _JSON)
    from synapse.dialects.a2a_v1.push import encode_notification as current  # noqa: PLC0415 - see above

    return _worded(current, _MEDIA_TYPE_1_0)


def _worded(encode: Callable[[Update], bytes | None], media_type: str) -> Words:
    def words(update: Update) -> Notification | None:
        # A webhook is called for what has come of a task, not four times a second while an answer grows.
        is_growing = isinstance(update.event, ArtifactAdded) and bool(update.event.artifact.metadata.get(PARTIAL))
        body = None if is_growing else encode(update)
        return None if body is None else Notification(body=body, media_type=media_type)

    return words


async def _pause(seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), seconds)
