"""The stores that the contract tests run against."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.fakes.leased_fleet_store import LeasedFleetStore
from tests.fakes.leased_store import LeasedStore
from tests.fakes.memory_store import MemoryStore
from tests.unit.store.stories import AnyStore


@pytest.fixture(params=["memory", "sqlite", "fleet"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[AnyStore]:
    """Returns each implementation in turn; that of a fleet has an empty replica."""
    opened_store = await _open(request.param, tmp_path)
    yield opened_store
    await opened_store.close()


async def _open(kind: str, folder: Path) -> AnyStore:
    match kind:
        case "memory":
            return MemoryStore()
        case "sqlite":
            return await LeasedStore.open(folder / "store.db")
        case _:
            return await LeasedFleetStore.open(folder)
