"""How the link finds the agents of its machine by the names that other machines use."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, AmbiguousTarget
from synapse.link.deliveries import AgentFinder
from synapse.registry.files import FileRegistry
from synapse.registry.local import LocalRegistry
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore

CODEX = AgentEntry("synapse-codex-8120", "codex", port=8120, inbox="codex@/src/shop")
OTHER = AgentEntry("synapse-codex-8121", "codex", port=8121, inbox="codex@/src/blog")


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    return LocalRegistry(FileRegistry(tmp_path), FakeClock().monotonic)


async def test_a_stopped_agent_is_found_by_its_profile_inbox_or_id(registry: LocalRegistry) -> None:
    finder = AgentFinder(registry, MemoryStore(), past=lambda: [CODEX])

    for name in ("codex", "@codex", "codex-8120", "synapse-codex-8120", "codex@/src/shop"):
        assert await finder.stopped(name) is CODEX
    with pytest.raises(AgentNotFound):
        await finder.running("codex")


async def test_of_two_stopped_agents_the_name_must_say_which(registry: LocalRegistry) -> None:
    finder = AgentFinder(registry, MemoryStore(), past=lambda: [CODEX, OTHER])

    with pytest.raises(AmbiguousTarget):
        await finder.stopped("codex")
    assert await finder.stopped("codex-8121") is OTHER


async def test_an_agent_that_never_ran_is_not_found(registry: LocalRegistry) -> None:
    assert await AgentFinder(registry, MemoryStore()).stopped("codex") is None
