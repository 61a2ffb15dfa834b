"""Push notifications of one agent, put together: its configurations, its outbox, and how each dialect words them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from synapse.core.agent import AgentEntry
from synapse.core.clock import Clock
from synapse.core.events import ArtifactAdded, Update
from synapse.dialects.negotiation import A2A_0_3
from synapse.runtime.ids import new_id
from synapse.runtime.settings import Settings
from synapse.service.journal import Journal
from synapse.service.outcomes import PARTIAL
from synapse.service.push_configs import PushConfigs
from synapse.service.push_outbox import Holds, Notification, PushOutbox, Words
from synapse.service.retry import RetrySchedule
from synapse.stores.sqlite import SqliteStore
from synapse.transports.webhook import WebhookSender

if TYPE_CHECKING:
    from synapse.runtime.keys import KeyFile

_SUPERVISOR: Final = "supervisor"
_MEDIA_TYPE_1_0: Final = "application/a2a+json"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Pushing:
    """What an agent's service needs to take configurations, and what its process runs to deliver."""

    configs: PushConfigs
    outbox: PushOutbox


def open_pushing(me: AgentEntry, store: SqliteStore, journal: Journal, clock: Clock, settings: Settings) -> Pushing:
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
        from synapse.runtime.keys import KeyFile  # noqa: PLC0415 - few agents have webhooks that a key has set

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
        from synapse.dialects.supervisor.notification import encode_notification as own  # noqa: PLC0415 - see above

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
