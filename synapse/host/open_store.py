"""Opens the store of a home: the one place that says which kind of store it is."""

from __future__ import annotations

import asyncio

from synapse.config.settings import Settings
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import StoreInUse, StoreLost
from synapse.core.store import TaskStore
from synapse.host.identity import holders_of
from synapse.registry.files import GATEWAY, FileRegistry, gateways
from synapse.store.sqlite import SqliteStore


async def open_store(settings: Settings) -> TaskStore:
    """Open the store, making it if it was never there, and migrating it if it is of an older version.

    Raises:
        StoreLost: it is missing, and agents that run have it open: what they stored would be cut off by a new one.
        StoreInUse: it has to be migrated, and agents that run an older Synapse hold leases in it.
        StoreFailed: it cannot be opened.
    """
    await asyncio.to_thread(require_no_lost_store, settings)
    registry = FileRegistry(settings.registry)
    try:
        return await SqliteStore.open(settings.store, is_alive=holders_of(registry))
    except StoreInUse as error:
        entries = await asyncio.to_thread(registry.entries)
        names = list(dict.fromkeys(_name_to_stop(entry) for entry in entries if entry.inbox))
        if len(names) == 1 and names[0] != GATEWAY:
            raise StoreInUse(str(error), hint=f"`synapse restart {names[0]}` starts it with this version") from error
        if names:
            hint = f"`synapse stop {' '.join(names)}`, then start them again: they run with this version then"
            raise StoreInUse(str(error), hint=hint) from error
        raise


def require_no_lost_store(settings: Settings) -> None:
    """Raises StoreLost when the store is missing, and processes that have it open can put it back."""
    if settings.store.exists():
        return
    # Who is listed has opened the store before; agents inside a gateway are listed as well.
    running = [*FileRegistry(settings.registry).entries(), *gateways(settings.home).entries()]
    if running:
        first = running[0]
        name = first.gateway or first.agent_id
        is_gateway = bool(first.gateway) or first.agent_type == GATEWAY
        again = "`synapse stop gateway`" if is_gateway else f"`synapse restart {name}`"
        raise StoreLost(
            f"{settings.store} is missing, and {name} still has it open",
            hint=f"{again} puts it back; or `synapse stop --all` and start again",
        )


def _name_to_stop(entry: AgentEntry) -> str:
    """What `synapse stop` calls the process of an agent."""
    return GATEWAY if entry.gateway else short_name(entry)
