"""`synapse send --queue`: a message for a stopped agent is queued in the store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from synapse.cli import send_later
from synapse.config.settings import load_settings
from synapse.core.agent import AgentEntry
from synapse.host.identity import holders_of
from synapse.registry.files import FileRegistry, start_time
from tests.fakes.leased_store import LeasedStore
from tests.unit.cli.conftest import Cli, HostFactory

NO_SUCH_PID = 2**22 + 1


def test_without_the_option_it_is_an_error(synapse: Cli, home: Path) -> None:
    assert synapse("send", "reviewer", "hi").code == 3
    assert not (home / "store.db").exists()


def test_a_message_for_a_given_name_is_queued_and_listed(synapse: Cli) -> None:
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

    assert "at codex-8120 (not running)" in synapse("status", task["id"][:8]).out
    assert synapse("queue").out.splitlines()[1].split()[0] == "codex-8120"
    assert "(not running)" in synapse("status", task["id"][:8]).out


def test_a_stopped_agent_is_found_by_its_inbox(synapse: Cli, home: Path) -> None:
    gone = AgentEntry("synapse-codex-8120", "codex", port=8120, pid=NO_SUCH_PID, pid_started=1, inbox="codex@/far")
    FileRegistry(home / "registry").write(gone)

    ran = synapse("send", "codex", "later", "--queue")

    assert ran.code == 0
    assert FileRegistry(home / "registry").written() == []


def test_a_queued_message_can_be_canceled(synapse: Cli) -> None:
    task = synapse("send", "reviewer", "later", "--queue", "--json").json["task"]

    assert synapse("cancel", task["id"][:8]).code == 0
    assert synapse("queue", "--json").json == []
    assert synapse("cancel", task["id"][:8]).code == 7


def test_a_message_of_a_stopped_agent_cannot_be_resolved(synapse: Cli) -> None:
    task = synapse("send", "reviewer", "later", "--queue", "--json").json["task"]

    assert synapse("resolve", task["id"], "--retry").code == 7


@pytest.mark.parametrize("option", ["--response", "--wait=submitted"])
def test_queue_cannot_be_combined_with_waiting(synapse: Cli, option: str) -> None:
    assert synapse("send", "reviewer", "later", "--queue", option).code == 2


@pytest.mark.parametrize("target", ["no such/name", "-x", "n" * 41])
def test_a_name_that_no_agent_can_have_is_refused(synapse: Cli, target: str) -> None:
    assert synapse("send", "--target", target, "later", "--queue").code == 2


def test_a_name_that_resembles_a_profile_is_questioned(synapse: Cli) -> None:
    ran = synapse("send", "cloude", "later", "--queue")

    assert ran.code == 0
    assert "did you mean 'claude'?" in ran.err
    assert "cloude" in synapse("queue", "cloude").out
    assert "did you mean" not in synapse("send", "reviewer", "later", "--queue").err


def test_a_message_that_is_too_large_is_not_queued(synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNAPSE_MAX_BODY_BYTES", "1000")

    ran = synapse("send", "reviewer", "x" * 1000, "--queue", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (7, "body_too_large")


def test_no_more_messages_are_queued_than_the_limit(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNAPSE_QUEUE_LIMIT", "1")
    synapse("send", "reviewer", "first", "--queue")

    assert synapse("send", "reviewer", "second", "--queue", "--json").json["error"]["code"] == "queue_full"


def test_an_expired_message_is_no_longer_queued(synapse: Cli) -> None:
    task = synapse("send", "reviewer", "later", "--queue", "--ttl", "0.001", "--json").json["task"]

    assert synapse("queue", "--json").json == []
    shown = synapse("status", task["id"], "--json").json["task"]
    assert (shown["status"], shown["metadata"]["reason"]) == ("failed", "expired")


def test_a_message_is_sent_to_an_agent_that_has_started_meanwhile(
    synapse: Cli, start: HostFactory, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.tasks.stopped._LEASE_TRIES", 2)
    settings = load_settings(folder=home)
    asyncio.run(hold(settings.store, "reviewer"))
    host = start(name="reviewer")
    host.registry.remove(host.entry.agent_id)
    host.entry.inbox = "reviewer"

    def appear(target: str, registry: FileRegistry) -> bool:
        host.registry.write(host.entry)
        return started(target, registry)

    started = send_later.wait_until_started
    monkeypatch.setattr(send_later, "wait_until_started", appear)

    ran = synapse("send", "reviewer", "hello", "--queue")

    assert ran.code == 0
    assert [task["message"]["parts"][0]["text"] for task in host.tasks.values()] == ["hello"]
    assert "[→ reviewer] sent" in ran.err


def test_an_inbox_that_an_unknown_process_holds_is_a_conflict(
    synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.tasks.stopped._LEASE_TRIES", 2)
    monkeypatch.setattr("synapse.cli.send_later._START_SECONDS", 0.1)
    asyncio.run(hold(load_settings(folder=home).store, "reviewer"))

    assert synapse("send", "reviewer", "hello", "--queue").code == 7


def test_a_message_that_is_queued_again_with_its_id_is_stored_once(synapse: Cli) -> None:
    for _ in range(2):
        assert synapse("send", "reviewer", "later", "--queue", "--message-id", "m-1").code == 0

    assert len(synapse("queue", "--json").json) == 1


async def hold(path: Path, inbox: str) -> None:
    """Acquires an inbox for a process that lives as long as this test."""
    store = await LeasedStore.open(path)
    parent = os.getppid()
    assert await store.acquire(
        inbox, f"{parent}:{start_time(parent)}", holders_of(FileRegistry(path.parent / "registry"))
    )
    await store.close()


def test_the_name_of_an_agent_that_is_gone_is_not_taken_for_the_beginning_of_many_tasks(synapse: Cli) -> None:
    ids = [synapse("send", "reviewer", str(number), "--queue", "--json").json["task"]["id"] for number in range(17)]
    first_letters = [task_id[0] for task_id in ids]
    shared = max(first_letters, key=first_letters.count)

    ran = synapse("status", shared)

    assert (ran.code, f"No agent found matching '{shared}'" in ran.err) == (3, True)


def test_cancel_queue_leaves_the_queue_of_another_agent_of_that_profile(
    synapse: Cli, start: HostFactory, home: Path
) -> None:
    gone = AgentEntry("synapse-codex-8121", "codex", name="bob", port=8121, pid=NO_SUCH_PID, pid_started=1, inbox="bob")
    FileRegistry(home / "registry").write(gone)
    synapse("send", "bob", "keep me", "--queue")
    start(name="codex")

    ran = synapse("cancel", "--queue", "codex")

    assert (ran.code, ran.err.strip()) == (0, "No messages are queued.")
    assert len(synapse("queue", "bob", "--json").json) == 1


def test_cancel_queue_refuses_a_profile_that_names_several_agents(synapse: Cli, home: Path) -> None:
    for port, name in ((8120, "amy"), (8121, "bob")):
        gone = AgentEntry(f"synapse-codex-{port}", "codex", name=name, port=port, pid=NO_SUCH_PID, inbox=name)
        FileRegistry(home / "registry").write(gone)
        synapse("send", name, "keep me", "--queue")

    ran = synapse("cancel", "--queue", "codex")

    assert (ran.code, "use one of: amy, bob" in ran.err) == (4, True)
    assert len(synapse("queue", "--json").json) == 2


def test_cancel_queue_accepts_a_profile_if_one_agent_has_queued_messages(synapse: Cli) -> None:
    synapse("send", "codex", "later", "--queue")

    ran = synapse("cancel", "--queue", "codex")

    assert (ran.code, ran.err.count(" is canceled")) == (0, 1)


@pytest.mark.parametrize("word", ["my", "@"])
def test_the_beginning_of_a_name_names_no_agent(synapse: Cli, word: str) -> None:
    synapse("send", "my-agent", "keep me", "--queue")
    synapse("send", "other", "me too", "--queue")

    assert synapse("cancel", "--queue", word).code == 3
    assert synapse("queue", word).code == 3
    assert len(synapse("queue", "--json").json) == 2
