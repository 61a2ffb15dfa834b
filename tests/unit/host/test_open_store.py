"""Opening a store of an older version: never under running agents, and the error names those to restart."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from synapse.config.settings import Settings, load_settings
from synapse.core.agent import AgentEntry
from synapse.core.errors import StoreInUse
from synapse.host.open_store import open_store
from synapse.registry.files import FileRegistry, start_time
from synapse.store.file import APPLICATION_ID, migrations
from tests.fakes.old_stores import bring_up_to

STARTED = start_time(os.getpid()) or 0


def agent(name: str, *, port: int = 8120, gateway: str = "") -> AgentEntry:
    """An agent in this process, which runs."""
    agent_id = f"synapse-codex-{port}"
    inbox = name or "codex@/proj"
    return AgentEntry(
        agent_id, "codex", name=name, port=port, pid=os.getpid(), pid_started=STARTED, inbox=inbox, gateway=gateway
    )


def house(home: Path, agents: Sequence[AgentEntry]) -> Settings:
    """A home with a store of schema 6, in which these agents hold their inboxes."""
    settings = load_settings(environ={"SYNAPSE_HOME": str(home)})
    registry = FileRegistry(settings.registry)
    with closing(sqlite3.connect(settings.store)) as connection:
        bring_up_to(connection, 6)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for one in agents:
            registry.write(one)
            connection.execute("INSERT INTO inboxes VALUES (?, ?)", (one.inbox, f"{one.pid}:{one.pid_started}"))
        connection.commit()
    return settings


@pytest.mark.parametrize(
    ("agents", "advice"),
    [
        ([agent("ada")], "`synapse restart ada`"),
        ([agent("")], "`synapse restart codex-8120`"),
        ([agent("ada"), agent("", port=8121)], "`synapse stop ada codex-8121`"),
        ([agent("ada", gateway="synapse-gateway-8300")], "`synapse stop gateway`"),
    ],
)
async def test_the_error_says_which_agents_to_restart(
    agents: Sequence[AgentEntry], advice: str, tmp_path: Path
) -> None:
    settings = house(tmp_path, agents)

    with pytest.raises(StoreInUse, match="agents that run an older Synapse use it: ") as refused:
        await open_store(settings)

    assert all(one.inbox in str(refused.value) for one in agents)
    assert advice in refused.value.hint


async def test_the_leases_of_processes_that_have_ended_do_not_count(tmp_path: Path) -> None:
    gone = agent("ada")
    gone.pid_started -= 1
    settings = house(tmp_path, [gone])

    store = await open_store(settings)
    await store.close()
    with closing(sqlite3.connect(settings.store)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (migrations()[-1][0],)
