"""The server goes away, loses its disk's last writes, or all it had: local work goes on, and every message settles."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fleet.careful_client import closed_rows, end_in, insist, tasks_of, typed
from tests.fleet.network import mount_image, open_disk
from tests.fleet.shifted_clock import give_own_clock, set_clock
from tests.fleet.waiting import until
from tests.fleet.world import Machine, World, open_world
from tests.integration.chaos.house import LINE_RULES, RunningHost

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
MANY = 8
HOUR = 3600.0
WAYS = (("laptop", "bob@box2"), ("box2", "ada@laptop"))
"""Who sends to whom."""


@dataclass(slots=True)
class Fleet:
    """Two machines with an agent each; the server is on a third."""

    world: World
    ada: RunningHost
    bob: RunningHost

    def send(self, count: int, **metadata: object) -> dict[str, list[str]]:
        """Sends messages both ways, to be kept; returns their nonces by the target."""
        sent: dict[str, list[str]] = {target: [] for _, target in WAYS}
        for _ in range(count):
            for machine, target in WAYS:
                nonce = uuid4().hex[:12]
                insist(self.world[machine], target, f"do <<{nonce}>>", f"m-{nonce}", **metadata)
                sent[target].append(nonce)
        return sent

    def check(self, *sendings: dict[str, list[str]]) -> None:
        """Every message has one task, was typed once and in order, and its sender knows that it is completed."""
        for machine, target in WAYS:
            agent, _, there = target.partition("@")
            nonces = [nonce for sent in sendings for nonce in sent[target]]
            rows = closed_rows(self.world[machine], [f"m-{nonce}" for nonce in nonces], bound=60)
            assert {(row["state"], end_in(row)) for row in rows} == {("settled", "completed")}
            assert [nonce for nonce in typed(self.world[there], agent) if nonce in nonces] == nonces
            assert all(len(tasks_of(self.world[there], f"m-{nonce}")) == 1 for nonce in nonces)

    def stop_server(self) -> int:
        """Suspends the server, so that nothing starts it again, and returns its pid."""
        pid = until(self.world.server_pid, "the server to run")
        os.kill(pid, signal.SIGSTOP)
        return pid

    @property
    def store(self) -> Path:
        """Where the server keeps its streams."""
        return self.world.hub.home / "fleet/server/store"


@pytest.fixture(scope="module")
def fleet() -> Generator[Fleet]:
    with open_world("hub", "laptop", "box2", namespaces=False) as world:
        for name in ("laptop", "box2"):
            give_own_clock(world[name])
        world.form()
        hosts: list[RunningHost] = []
        for machine, agent in (("laptop", "ada"), ("box2", "bob")):
            world[machine].add_profile(agent, LINE_RULES, "line_recorder")
            hosts.append(world[machine].start(agent, name=agent))
        yield Fleet(world, *hosts)


def test_a_server_that_lost_all_streams_while_everything_runs_is_filled_again(fleet: Fleet) -> None:
    before = fleet.send(MANY)
    fleet.world["box2"].kill_link()
    absent = [uuid4().hex[:12] for _ in range(MANY)]
    for nonce in absent:
        insist(fleet.world["laptop"], "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")

    server = fleet.stop_server()
    shutil.rmtree(fleet.store)
    os.kill(server, signal.SIGKILL)
    fleet.world["laptop"].wait_connected()
    fleet.world["box2"].start_link()
    after = fleet.send(MANY)

    fleet.check(before, {"bob@box2": absent, "ada@laptop": []}, after)
    until(lambda: is_copied(fleet), "the replica to have all", lambda: fleet.world.hub.ask_link("/fleet/status"), 60)


def test_a_power_cut_of_the_server_loses_no_message_and_doubles_none(fleet: Fleet, tmp_path: Path) -> None:
    with ExitStack() as ending:
        try:
            disk = ending.enter_context(open_disk(tmp_path, megabytes=256))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no loop mounts here: {getattr(error, 'stderr', error)}")
        move_store(fleet, disk / "store")
        fleet.world["box2"].kill_link()
        absent = [uuid4().hex[:12] for _ in range(MANY)]
        for number, nonce in enumerate(absent):
            insist(fleet.world["laptop"], "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")
            if number == MANY // 2:
                subprocess.run(["cp", "--sparse=always", tmp_path / "disk", tmp_path / "copy"], check=True, timeout=60)

        # The power is back: the server starts from what the disk had then.
        server = fleet.stop_server()
        (tmp_path / "after").mkdir()
        mount_image(tmp_path / "copy", tmp_path / "after")
        ending.callback(lambda: subprocess.run(["umount", "--lazy", tmp_path / "after"], check=True))
        fleet.store.unlink()
        fleet.store.symlink_to(tmp_path / "after/store")
        os.kill(server, signal.SIGKILL)
        fleet.world["laptop"].wait_connected()
        fleet.world["box2"].start_link()
        after = fleet.send(2)

        fleet.check({"bob@box2": absent, "ada@laptop": []}, after)
        move_store(fleet, tmp_path / "store")


def test_an_hour_without_the_server_ends_with_every_message_in_order(fleet: Fleet) -> None:
    laptop, box2 = fleet.world["laptop"], fleet.world["box2"]
    before = fleet.send(1)
    fleet.world.hub.stop_fleet()
    until(lambda: not laptop.is_connected() and not box2.is_connected(), "both to be cut off")

    # Local work goes on as ever, and what cannot wait is refused in words.
    assert fleet.ada.finished(fleet.ada.accepted("local"))["status"] == "completed"
    refused = laptop.synapse("send", "bob@box2", "now")
    waiting = fleet.send(MANY)
    expiring = fleet.send(1, ttl=HOUR / 2)
    for machine in (laptop, box2):
        set_clock(machine, HOUR)
        machine.kill_link()
        machine.start_link()
    later = fleet.send(1)
    fleet.world.hub.start_link()
    for machine in (laptop, box2):
        machine.wait_connected()

    fleet.check(before, waiting, later)
    assert (refused.code, "no connection to the fleet" in refused.err) == (8, True), refused
    for machine, target in ((laptop, "bob@box2"), (box2, "ada@laptop")):
        [nonce] = expiring[target]
        [row] = closed_rows(machine, [f"m-{nonce}"])
        agent, _, there = target.partition("@")
        assert (row["state"], row["why"]) == ("void", "expired")
        assert "fleet: expired" in machine.run("status", row["task_id"])
        assert nonce not in typed(fleet.world[there], agent)


def move_store(fleet: Fleet, place: Path) -> None:
    """Lets the server keep its streams elsewhere; nothing is lost."""
    server = fleet.stop_server()
    shutil.copytree(fleet.store, place)
    if fleet.store.is_symlink():
        fleet.store.unlink()
    else:
        shutil.rmtree(fleet.store)
    fleet.store.symlink_to(place)
    os.kill(server, signal.SIGKILL)
    until(lambda: fleet.world.server_pid() not in (0, server), "the server to be started again")
    fleet.world.wait_connected()


def is_copied(fleet: Fleet) -> bool:
    """Whether the replica on the hub has the whole logs of both machines."""
    copied = {one["machine"]: one for one in fleet.world.hub.ask_link("/fleet/status")["replica"]["machines"]}
    return all(name in copied and copied[name]["seq"] == last_seq(fleet.world[name]) for name in ("laptop", "box2"))


def last_seq(machine: Machine) -> int:
    with closing(sqlite3.connect(f"file:{machine.home}/store.db?mode=ro", uri=True)) as connection:
        (seq,) = connection.execute("SELECT max(seq) FROM appends").fetchone()
        return int(seq)
