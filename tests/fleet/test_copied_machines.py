"""A machine is copied, or its files are an older backup: nothing is typed twice, and what is uncertain is told."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fleet.careful_client import closed_rows, end_in, insist, row_of, tasks_of, typed
from tests.fleet.waiting import until
from tests.fleet.world import Machine, World, open_world
from tests.integration.chaos.house import LINE_RULES, RunningHost

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@dataclass(slots=True)
class Pair:
    """`laptop` sends to bob on `box2`; the server is on `hub`."""

    world: World
    bob: RunningHost

    @property
    def laptop(self) -> Machine:
        return self.world["laptop"]

    @property
    def box2(self) -> Machine:
        return self.world["box2"]

    @property
    def is_copied(self) -> bool:
        """Whether the replica on the hub has the whole log of box2."""
        copied = {one["machine"]: one for one in self.world["hub"].ask_link("/fleet/status")["replica"]["machines"]}
        with closing(sqlite3.connect(f"file:{self.box2.home}/store.db?mode=ro", uri=True)) as connection:
            (seq,) = connection.execute("SELECT max(seq) FROM appends").fetchone()
        return "box2" in copied and copied["box2"]["seq"] == seq

    def send(self) -> str:
        """Sends a message from laptop to bob; returns its nonce."""
        nonce = uuid4().hex[:12]
        insist(self.laptop, "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")
        return nonce

    def send_and_settle(self, count: int = 1) -> list[str]:
        """Sends messages that are answered; returns their nonces."""
        sent = [self.send() for _ in range(count)]
        for nonce in sent:
            self.check_settled(nonce)
        return sent

    def check_settled(self, nonce: str) -> None:
        """The message has ended, and was typed once."""
        [row] = closed_rows(self.laptop, [f"m-{nonce}"])
        assert (row["state"], end_in(row)) == ("settled", "completed"), row
        assert len(tasks_of(self.box2, f"m-{nonce}")) == 1
        self.check_typed_once(nonce)

    def check_typed_once(self, *nonces: str) -> None:
        got = typed(self.box2, "bob")
        assert [got.count(nonce) for nonce in nonces] == [1] * len(nonces)


@pytest.fixture(scope="module")
def pair() -> Generator[Pair]:
    with open_world("hub", "laptop", "box2", namespaces=False) as world:
        world.form()
        world["box2"].add_profile("bob", LINE_RULES, "line_recorder")
        yield Pair(world, world["box2"].start("bob", name="bob"))


def test_a_copied_machine_stops_and_says_so_and_the_first_goes_on(pair: Pair) -> None:
    pair.send_and_settle()
    with open_world("twin", namespaces=False) as other:
        twin = other["twin"]
        copy(pair.laptop.home, twin.home)
        (twin.home / "links/synapse-link.json").unlink()

        started = twin.synapse("link")

        assert started.code == 7, started
        assert "runs under the name laptop, so this one has stopped" in started.err
        assert twin.link is None
        twin.synapse("fleet", "start")
        until(lambda: twin.link is None, "the end of the link of the copy")
        left = twin.synapse("fleet", "leave")
        assert "Do not remove laptop: another machine runs under that name.\n" in left.err, left
    assert pair.laptop.is_connected()
    pair.send_and_settle()


def test_a_copied_machine_in_the_place_of_the_first_takes_a_new_incarnation(pair: Pair) -> None:
    before = incarnation(pair.laptop)
    with open_world("twin", namespaces=False) as other:
        twin = other["twin"]
        copy(pair.laptop.home, twin.home)
        (twin.home / "links/synapse-link.json").unlink()
        sent = pair.send_and_settle(3)
        pair.laptop.stop_link()

        twin.start_link()
        twin.wait_connected()
        nonce = uuid4().hex[:12]
        insist(twin, "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")

        [row] = closed_rows(twin, [f"m-{nonce}"])
        assert (row["state"], end_in(row)) == ("settled", "completed")
        assert incarnation(twin) == before + 1
        twin.stop_link()
    # The first one is the copy now.
    pair.laptop.start_link()
    sent += [nonce, *pair.send_and_settle()]
    pair.check_typed_once(*sent)
    assert incarnation(pair.laptop) == before + 2


def test_a_sender_whose_fleet_folder_is_a_backup_sends_nothing_twice(pair: Pair, tmp_path: Path) -> None:
    before = incarnation(pair.laptop)
    pair.box2.stop_link()
    open_in_backup = pair.send()
    pair.laptop.stop_link()
    copy(pair.laptop.home / "fleet", tmp_path / "backup")
    pair.laptop.start_link()
    pair.box2.start_link()
    pair.check_settled(open_in_backup)
    sent = pair.send_and_settle(3)

    pair.laptop.kill_link()
    restore(tmp_path / "backup", pair.laptop.home / "fleet")
    pair.laptop.start_link()

    # It sends what the backup holds as open again, under the old id, which box2 knows.
    pair.check_settled(open_in_backup)
    sent += pair.send_and_settle()
    pair.check_typed_once(*sent)
    assert incarnation(pair.laptop) > before
    assert any("this machine has a new incarnation" in note for note in notes(pair.laptop))


def test_a_receiver_whose_fleet_folder_is_a_backup_delivers_nothing_twice(pair: Pair, tmp_path: Path) -> None:
    before = incarnation(pair.box2)
    pair.box2.stop_link()
    copy(pair.box2.home / "fleet", tmp_path / "backup")
    pair.box2.start_link()
    sent = pair.send_and_settle(3)

    pair.box2.kill_link()
    waiting = pair.send()
    restore(tmp_path / "backup", pair.box2.home / "fleet")
    pair.box2.start_link()

    # Nobody knows whether the files that are gone knew the message that waits, so a person decides about it.
    [row] = closed_rows(pair.laptop, [f"m-{waiting}"])
    assert (row["state"], typed(pair.box2, "bob").count(waiting)) in (("uncertain", 0), ("settled", 1))
    sent += pair.send_and_settle()
    pair.check_typed_once(*sent)
    assert incarnation(pair.box2) > before


def test_a_receiver_whose_whole_home_is_a_backup_tells_what_is_uncertain(pair: Pair, tmp_path: Path) -> None:
    before = incarnation(pair.box2)
    pair.box2.stop_link()
    pair.bob.stop()
    copy(pair.box2.home, tmp_path / "backup")
    pair.box2.start_link()
    kept = pair.send()
    until(lambda: row_of(pair.laptop, f"m-{kept}")["state"] == "accepted", "box2 to keep it for bob's next start")
    # By its own log, which the fleet has, the machine will notice that its files are a backup.
    until(lambda: pair.is_copied, "the hub to have the log of box2")

    pair.box2.kill_link()
    restore(tmp_path / "backup", pair.box2.home)
    pair.box2.start_link()
    pair.bob = pair.box2.start("bob", name="bob")
    pair.send_and_settle(2)

    [row] = closed_rows(pair.laptop, [f"m-{kept}"])
    shown = pair.laptop.run("status", row["task_id"])
    assert row["state"] == "uncertain"
    assert "it is not known whether the agent got it" in shown
    assert kept not in typed(pair.box2, "bob")
    assert incarnation(pair.box2) > before


def copy(folder: Path, to: Path) -> None:
    """Copies files as a backup does, without sockets."""

    def sockets(place: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(place) / name).is_socket()]

    shutil.copytree(folder, to, ignore=sockets)


def restore(backup: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    copy(backup, folder)


def incarnation(machine: Machine) -> int:
    """Returns the counter of the machine's incarnation, when its link knows what others know of it."""
    machine.wait_connected()
    return int(machine.ask_link("/fleet/status")["incarnation"].partition(".")[0])


def notes(machine: Machine) -> list[str]:
    return [str(note) for note in machine.ask_link("/fleet/status")["notes"]]
