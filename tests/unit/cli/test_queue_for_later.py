"""`synapse send --queue`: a message for an agent that does not run waits in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.registries.files import FileRegistry
from tests.unit.cli.conftest import Cli, HostFactory

NO_SUCH_PID = 2**22 + 1


def test_without_the_option_it_is_an_error(synapse: Cli, home: Path) -> None:
    assert synapse("send", "reviewer", "hi").code == 3
    assert not (home / "store.db").exists()


def test_a_message_for_a_name_waits_and_is_shown(synapse: Cli) -> None:
    ran = synapse("send", "reviewer", "later", "--queue", "--priority", "4", "--json")

    assert (ran.code, ran.json["receipt"], ran.json["task"]["status"]) == (0, "queued", "submitted")
    (waiting,) = synapse("queue", "--json").json
    assert waiting["agent_id"] == "reviewer"
    assert waiting["task"]["metadata"]["priority"] == 4


def test_a_running_agent_gets_it_at_once(synapse: Cli, start: HostFactory, home: Path) -> None:
    host = start()

    synapse("send", "codex", "now", "--queue")

    assert len(host.tasks) == 1
    assert not (home / "store.db").exists()


def test_a_profile_means_the_agent_that_will_run_in_this_folder(synapse: Cli, home: Path) -> None:
    task = synapse("send", "codex-8120", "later", "--queue", "--json").json["task"]

    assert "codex-8120" in synapse("status", task["id"][:8]).out
    assert "(not running)" in synapse("status", task["id"][:8]).out


def test_an_agent_that_was_here_is_known_by_its_inbox(synapse: Cli, home: Path) -> None:
    gone = AgentEntry("synapse-codex-8120", "codex", port=8120, pid=NO_SUCH_PID, pid_started=1, inbox="codex@/far")
    FileRegistry(home / "registry").write(gone)

    ran = synapse("send", "codex", "later", "--queue")

    assert ran.code == 0
    assert FileRegistry(home / "registry").written() == []


def test_it_can_be_taken_back(synapse: Cli) -> None:
    task = synapse("send", "reviewer", "later", "--queue", "--json").json["task"]

    assert synapse("cancel", task["id"][:8]).code == 0
    assert synapse("queue", "--json").json == []
    assert synapse("cancel", task["id"][:8]).code == 7


def test_it_cannot_be_resolved_while_nobody_runs(synapse: Cli) -> None:
    task = synapse("send", "reviewer", "later", "--queue", "--json").json["task"]

    assert synapse("resolve", task["id"], "--retry").code == 7


@pytest.mark.parametrize("option", ["--response", "--wait=submitted"])
def test_nothing_is_there_to_wait_for(synapse: Cli, option: str) -> None:
    assert synapse("send", "reviewer", "later", "--queue", option).code == 2
