"""Opens the store of a home; a new one is made only when no process has an old one open."""

from __future__ import annotations

import asyncio

from synapse.config.settings import Settings
from synapse.core.errors import StoreLost
from synapse.registry.files import GATEWAY, FileRegistry, gateways
from synapse.store.sqlite import SqliteStore


async def open_store(settings: Settings) -> SqliteStore:
    """Open the store, making it first if it was never there.

    Raises:
        StoreLost: it is missing, and agents that run have it open: what they stored would be cut off by a new one.
        StoreFailed: it cannot be opened.
    """
    await asyncio.to_thread(require_no_lost_store, settings)
    return await SqliteStore.open(settings.store)


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
