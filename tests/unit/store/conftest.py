"""Runs a story on each kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from synapse.core.store import TaskStore
from synapse.store.memory import MemoryStore
from synapse.store.sqlite import SqliteStore
from tests.unit.store.stories import Story, Tell


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    """Runs a story on one kind of store."""

    @asynccontextmanager
    async def store() -> AsyncGenerator[TaskStore]:
        opened_store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "store.db")
        try:
            yield opened_store
        finally:
            await opened_store.close()

    async def run(story: Story) -> None:
        async with asyncio.timeout(20), store() as one:
            await story(one)

    return lambda story: asyncio.run(run(story))
