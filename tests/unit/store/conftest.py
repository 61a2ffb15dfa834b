"""The stores that the contract tests run against."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.fakes.leased_store import LeasedStore
from tests.fakes.memory_store import MemoryStore
from tests.unit.store.stories import AnyStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[AnyStore]:
    """Returns each implementation in turn."""
    opened_store = MemoryStore() if request.param == "memory" else await LeasedStore.open(tmp_path / "store.db")
    yield opened_store
    await opened_store.close()
