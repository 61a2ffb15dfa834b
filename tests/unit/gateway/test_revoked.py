"""Webhooks of revoked and expired keys on other machines: deleted once, however long some of the machines are away."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from synapse.auth.api_keys import KEYS, KEYS_FILE, Grant, KeyFile
from synapse.auth.mirror import Mirrored, MirrorFile, Revocations
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.override import override
from synapse.core.push import PushConfig
from synapse.core.requests import CommandResult, DeletePushConfig, HostCommand, ListPushConfigs
from synapse.core.task import Task
from synapse.core.waiting import pause
from synapse.gateway import revoked
from synapse.gateway.directory import GatewayAgent, GatewayDirectory
from synapse.gateway.revoked import RETRY_SECONDS, RevokedWebhooks
from synapse.gateway.tasks import GatewayFleet
from synapse.store.replica import ReplicaFile
from tests.fakes.clock import FakeClock
from tests.fakes.facts import numbered, opened
from tests.fakes.leased_fleet_store import LeasedFleetStore
from tests.fakes.shipped_log import ShippedMachine, take_all

CODEX = AgentEntry("synapse-codex-8120", "codex", name="codex@box2", inbox="box2!codex")
KEY = "00000000000a"


class FakeHosts:
    """Hosts whose tasks have one webhook of the key KEY each."""

    def __init__(self) -> None:
        self.commands: list[HostCommand] = []

    async def command(self, _agent: AgentEntry, request: HostCommand, _caller: Caller) -> CommandResult:
        self.commands.append(request)
        hook = PushConfig(id="c-1", url="https://example.com", set_by=f"{KEY}@gate")
        return CommandResult(result=(hook,) if isinstance(request, ListPushConfigs) else None)


class FakeDirectory:
    """Knows the agents of `inboxes` only."""

    def __init__(self, hosts: FakeHosts) -> None:
        self.inboxes = {"box2!codex"}
        self._hosts = hosts

    def owner(self, task: Task) -> GatewayAgent | None:
        hosts = cast("Any", self._hosts)
        return GatewayAgent(entry=CODEX, hosts=hosts, machine="box2") if task.inbox in self.inboxes else None


async def test_a_task_is_asked_once_though_the_agent_of_another_is_absent(tmp_path: Path) -> None:
    clock, hosts = FakeClock(), FakeHosts()
    directory = FakeDirectory(hosts)
    store, box2 = await LeasedFleetStore.open(tmp_path), await ShippedMachine.open("box2", tmp_path)
    with closing(ReplicaFile.open(tmp_path / "fleet" / "replica.db")) as file:
        await box2.keep(opened(numbered(1), inbox="codex"))
        await box2.keep(opened(numbered(2), inbox="absent"))
        take_all(file, box2.batches())
    fleet = GatewayFleet(cast("Any", None), store, clock, str)
    webhooks = RevokedWebhooks(tmp_path, cast("GatewayDirectory", directory), fleet)
    Revocations(tmp_path).add(KEY, clock)

    for _ in range(3):
        await webhooks.check()
        clock.advance(RETRY_SECONDS + 1)
    first = list(hosts.commands)
    directory.inboxes.add("box2!absent")
    for _ in range(2):
        await webhooks.check()
        clock.advance(RETRY_SECONDS + 1)

    assert first == [ListPushConfigs(task_id=numbered(1)), DeletePushConfig(task_id=numbered(1), config_id="c-1")]
    assert [one.task_id for one in hosts.commands[2:] if isinstance(one, DeletePushConfig)] == [numbered(2)]
    await box2.store.close()
    await store.close()


async def test_a_task_that_the_replica_gets_later_loses_its_webhook_too(tmp_path: Path) -> None:
    clock, hosts = FakeClock(), FakeHosts()
    store, box2 = await LeasedFleetStore.open(tmp_path), await ShippedMachine.open("box2", tmp_path)
    fleet = GatewayFleet(cast("Any", None), store, clock, str)
    webhooks = RevokedWebhooks(tmp_path, cast("GatewayDirectory", FakeDirectory(hosts)), fleet)
    for key_id in (KEY, "00000000000b"):
        Revocations(tmp_path).add(key_id, clock)

    with closing(ReplicaFile.open(tmp_path / "fleet" / "replica.db")) as file:
        await box2.keep(opened(numbered(1), inbox="codex"))
        take_all(file, box2.batches())
        await webhooks.check()
        clock.advance(RETRY_SECONDS + 1)
        await box2.keep(opened(numbered(2), inbox="codex"))
        take_all(file, box2.batches())
    for _ in range(3):
        await webhooks.check()
        clock.advance(RETRY_SECONDS + 1)

    assert [(type(one), getattr(one, "task_id", "")) for one in hosts.commands] == [
        (kind, numbered(task)) for task in (1, 2) for kind in (ListPushConfigs, DeletePushConfig)
    ]
    await box2.store.close()
    await store.close()


@pytest.mark.parametrize("made_here", [True, False])
async def test_the_webhooks_of_a_key_are_deleted_when_it_expires(tmp_path: Path, made_here: bool) -> None:
    clock, hosts = FakeClock(), FakeHosts()
    store, box2 = await LeasedFleetStore.open(tmp_path), await ShippedMachine.open("box2", tmp_path)
    with closing(ReplicaFile.open(tmp_path / "fleet" / "replica.db")) as file:
        await box2.keep(opened(numbered(1), inbox="codex"))
        take_all(file, box2.batches())
    grant = Grant(expires_at=clock.now() + timedelta(minutes=5))
    home = tmp_path if made_here else tmp_path / "box3"
    key, _ = KeyFile(home, clock, mint=lambda size: KEY[: size * 2].ljust(size * 2, "0")).create("short", grant)
    if not made_here:
        MirrorFile(tmp_path, KEYS_FILE, KEYS, clock).write([Mirrored("box3", key)])
    fleet = GatewayFleet(cast("Any", None), store, clock, str)
    webhooks = RevokedWebhooks(tmp_path, cast("GatewayDirectory", FakeDirectory(hosts)), fleet)

    await webhooks.check()
    before = list(hosts.commands)
    clock.advance(301)
    await webhooks.check()

    assert before == []
    assert hosts.commands == [
        ListPushConfigs(task_id=numbered(1)),
        DeletePushConfig(task_id=numbered(1), config_id="c-1"),
    ]
    await box2.store.close()
    await store.close()


class DefectiveDirectory(FakeDirectory):
    """Fails at the first task that it is asked about."""

    asked = 0

    @override
    def owner(self, task: Task) -> GatewayAgent | None:
        self.asked += 1
        if self.asked == 1:
            raise TypeError("a defect")
        return super().owner(task)


async def test_a_defect_does_not_end_the_gateway_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revoked, "LOOK_SECONDS", 0.01)
    clock, hosts = FakeClock(), FakeHosts()
    store, box2 = await LeasedFleetStore.open(tmp_path), await ShippedMachine.open("box2", tmp_path)
    with closing(ReplicaFile.open(tmp_path / "fleet" / "replica.db")) as file:
        await box2.keep(opened(numbered(1), inbox="codex"))
        take_all(file, box2.batches())
    fleet = GatewayFleet(cast("Any", None), store, clock, str)
    Revocations(tmp_path).add(KEY, clock)

    running = asyncio.create_task(
        RevokedWebhooks(tmp_path, cast("GatewayDirectory", DefectiveDirectory(hosts)), fleet).run()
    )
    async with asyncio.timeout(20):
        while not hosts.commands and not running.done():
            await pause(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert hosts.commands[0] == ListPushConfigs(task_id=numbered(1))
    await box2.store.close()
    await store.close()
