"""Opens StoppedTasks for the agents of a home."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Final

from synapse.config.process import SystemClock, new_context_id, new_task_id
from synapse.config.settings import Settings
from synapse.core.store import TaskStore
from synapse.core.types import Clock
from synapse.host.identity import holders_of
from synapse.host.open_store import open_store
from synapse.registry.files import FileRegistry, own_start_time
from synapse.tasks.quota import Quota
from synapse.tasks.rules import Limits
from synapse.tasks.stopped import LeaseHolder, StoppedTasks

_LEASE_NUMBERS: Final = count(1)


@asynccontextmanager
async def open_stopped(settings: Settings) -> AsyncGenerator[StoppedTasks]:
    """Opens the store for the length of a block, and yields its StoppedTasks. Raises StoreFailed."""
    store = await open_store(settings)
    try:
        yield stopped_tasks(store, settings)
    finally:
        await store.close()


def stopped_tasks(store: TaskStore, settings: Settings) -> StoppedTasks:
    """Returns the service for the agents of this home that are not running."""
    clock = SystemClock()

    def quota_of(inbox: str, agent: str) -> Quota:
        return agent_quota(inbox, agent, store, settings, clock)

    ttl = settings.message_ttl
    return StoppedTasks(
        store,
        clock=clock,
        holder=LeaseHolder(
            new_name=lambda: f"{os.getpid()}:{own_start_time()}:{next(_LEASE_NUMBERS)}",
            is_alive=holders_of(FileRegistry(settings.registry)),
        ),
        limits=Limits(queue=settings.queue_limit, ttl=timedelta(seconds=ttl) if ttl else None),
        quota_of=quota_of,
        new_task_id=new_task_id,
        new_context_id=new_context_id,
    )


def agent_quota(inbox: str, name: str, store: TaskStore, settings: Settings, clock: Clock) -> Quota:
    """Returns the storage quota of the agent with this inbox."""
    measure = partial(store.stored_bytes, inbox=inbox)
    return Quota(settings.agent_quota_bytes, measure, clock, whose=name, setting="agent_quota_bytes")
