"""Opens the task store of a home. The only module that names the concrete store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from synapse.config.fleet import REPLICA_FILE, fleet_folder
from synapse.config.settings import Settings
from synapse.core.address import short_name
from synapse.core.errors import StoreInUse, StoreLost
from synapse.core.store import TaskStore
from synapse.host.identity import holders_of
from synapse.registry.files import GATEWAY, FileRegistry, gateways
from synapse.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from synapse.store.replica_store import ReplicaStore


async def open_replica(settings: Settings) -> ReplicaStore:
    """Opens the replica of the other machines' logs, for a gateway; creates it if the link has not yet.

    Raises StoreFailed.
    """
    from synapse.store.replica_store import ReplicaStore  # noqa: PLC0415 - only gateways of a fleet need it

    return await ReplicaStore.open(fleet_folder(settings.home) / REPLICA_FILE, search=settings.search)


async def open_store(settings: Settings) -> TaskStore:
    """Opens the store; creates it if it does not exist, and migrates it if it is of an older version.

    Raises:
        StoreLost: its file was deleted while running agents have it open; a new store would hide what they stored.
        StoreInUse: it has to be migrated, but agents of an older version hold leases in it.
        StoreFailed: it cannot be opened.
    """
    await asyncio.to_thread(require_no_lost_store, settings)
    registry = FileRegistry(settings.registry)
    try:
        return await SqliteStore.open(settings.store, is_alive=holders_of(registry), search=settings.search)
    except StoreInUse as error:
        entries = await asyncio.to_thread(registry.entries)
        names = list(dict.fromkeys(GATEWAY if entry.gateway else short_name(entry) for entry in entries if entry.inbox))
        if len(names) == 1 and names[0] != GATEWAY:
            raise StoreInUse(str(error), hint=f"`synapse restart {names[0]}` restarts it with this version") from error
        if names:
            hint = f"`synapse stop {' '.join(names)}`, then start them again with this version"
            raise StoreInUse(str(error), hint=hint) from error
        raise


def require_no_lost_store(settings: Settings) -> None:
    """Raises StoreLost when the store's file is missing, but running processes have it open and can restore it."""
    if settings.store.exists():
        return
    # Every listed process has opened the store; in-process agents of a gateway are listed too.
    running = [*FileRegistry(settings.registry).entries(), *gateways(settings.home).entries()]
    if running:
        first = running[0]
        name = first.gateway or first.agent_id
        is_gateway = bool(first.gateway) or first.agent_type == GATEWAY
        command = "`synapse stop gateway`" if is_gateway else f"`synapse restart {name}`"
        raise StoreLost(
            f"{settings.store} is missing, and {name} still has it open",
            hint=f"{command} restores it; or `synapse stop --all` and start again",
        )
