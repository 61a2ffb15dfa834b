"""The states of this machine's agents, as other machines see them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.driver import AgentStatus
from synapse.core.waiting import pause
from synapse.link import link
from synapse.link.agent_states import AgentStates
from synapse.registry.files import FileRegistry, own_start_time
from synapse.registry.local import LocalRegistry
from tests.fakes.clock import FakeClock

BOUND = 20
"""Only for what hangs."""
READY = AgentStatus(state="ready", why="", source="", since=datetime(2026, 1, 1, tzinfo=UTC))


class DefectiveOnce:
    """Hosts whose first status has something in it that no reader expects."""

    def __init__(self) -> None:
        self.asked = 0

    async def follow_status(self, _agent: AgentEntry) -> AsyncGenerator[AgentStatus, None]:
        self.asked += 1
        if self.asked == 1:
            raise AttributeError("a defect")
        yield READY
        await asyncio.Event().wait()


async def test_an_agent_is_followed_again_after_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "RESTART_SECONDS", 0.0)
    files = FileRegistry(tmp_path)
    files.write(AgentEntry("synapse-codex-8120", "codex", port=8120, pid=os.getpid(), pid_started=own_start_time()))
    states = AgentStates(LocalRegistry(files, FakeClock().monotonic), DefectiveOnce(), lambda: None)
    notes: list[str] = []
    running = asyncio.create_task(link.keep_running(states.run, notes.append))
    try:
        async with asyncio.timeout(BOUND):
            while [row["state"] for row in states.rows()] != ["ready"]:
                await pause(0.01)
    finally:
        running.cancel()
        await asyncio.wait({running})

    assert "a defect" in notes[0]
