"""The stores that every test of a store's promises runs on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from synapse.core.store import TaskStore
from synapse.store.memory import MemoryStore
from synapse.store.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[TaskStore]:
    """Each kind of store in turn."""
    opened_store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "store.db")
    yield opened_store
    await opened_store.close()
