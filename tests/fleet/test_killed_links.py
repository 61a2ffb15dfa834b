"""A link is killed at every durable step of the sender's or the receiver's: one task, one typing, the right end.

Also at those of shipping the log and of writing a replica: the replica then has every row of the log, once.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from synapse.client.http import NoAnswer
from synapse.core.address import remote_inbox
from tests.fleet.careful_client import (
    closed_rows,
    end_in,
    insist,
    open_waiting,
    outbox_rows,
    row_of,
    tasks_of,
    typed,
)
from tests.fleet.dying_link import DIE_AT, POINTS, STAY_AWAY
from tests.fleet.waiting import until
from tests.fleet.world import Machine, World, open_world
from tests.integration.chaos.house import FINISHED, LINE_RULES, RunningHost, status_of

pytestmark = pytest.mark.integration


class DyingLink:
    """The link of a machine under a supervisor; see `dying_link`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.stop_link()
        (machine.folder / POINTS).touch()
        program = [sys.executable, str(Path(__file__).with_name("dying_link.py")), str(machine.folder)]
        with (machine.folder / "dying-link.out").open("ab") as output:
            self._process = subprocess.Popen(
                program, env=machine.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        machine.wait_connected()

    def die_at(self, point: str) -> None:
        (self.machine.folder / DIE_AT).write_text(point, encoding="utf-8")

    def wait_dead(self) -> None:
        """Waits until the link has come to the point and died."""
        armed = self.machine.folder / DIE_AT
        until(lambda: not armed.exists(), f"the link of {self.machine.name} to die", lambda: armed.read_text("utf-8"))

    @property
    def points(self) -> Counter[str]:
        """How often its links have passed each point."""
        return Counter((self.machine.folder / POINTS).read_text(encoding="utf-8").splitlines())

    @contextmanager
    def away(self) -> Generator[None]:
        """Keeps the link from running for the length of a block."""
        self.machine.wait_connected()
        (self.machine.folder / STAY_AWAY).touch()
        self.machine.kill_link()
        try:
            yield
        finally:
            (self.machine.folder / STAY_AWAY).unlink()

    def end(self) -> None:
        self.machine.stop_link()
        self._process.wait(20)


@dataclass(slots=True)
class Pair:
    """`laptop` sends for its agent ada, to plain on `box2`."""

    world: World
    laptop: DyingLink
    box2: DyingLink
    ada: RunningHost
    plain: str
    """The inbox of plain, as laptop knows it."""
    mails: int = 0
    """How many mails with messages there were before the last message."""

    def send(self, nonce: str) -> str:
        """Lets ada ask plain; returns the id of the task at ada that waits for the answer."""
        self.mails = self.laptop.points["after mail send"]
        waiting = open_waiting(self.ada, "plain@box2", self.plain)
        sender = {"sender_id": self.ada.entry.agent_id}
        insist(
            self.laptop.machine,
            "plain@box2",
            f"do <<{nonce}>>",
            f"m-{nonce}",
            sender=sender,
            sender_task_id=waiting,
            response_expected=True,
        )
        return waiting

    def wait_mailed(self) -> None:
        """Waits until the server has the last message."""
        until(lambda: self.laptop.points["after mail send"] > self.mails, "the mail")

    def cancel(self, nonce: str) -> None:
        """Takes the message back, as often as it needs until a link has answered."""
        task_id = row_of(self.laptop.machine, f"m-{nonce}")["task_id"]

        def is_taken() -> bool:
            with suppress(NoAnswer):
                taken = self.laptop.machine.request_link("POST", "/fleet/outbox/cancel", {"task_id": task_id})
                return taken.status == 200
            return False

        until(is_taken, "the cancel to be taken")

    def check(self, nonce: str, waiting: str) -> None:
        """The message has one task, was typed once, and everybody was told that it is completed."""
        row = self._end_of(nonce)
        assert (row["state"], end_in(row)) == ("settled", "completed"), row
        assert typed(self.box2.machine, "plain").count(nonce) == 1
        until(lambda: status_of(self.ada.task(waiting)) == "completed", "ada to have its answer")

    def check_canceled(self, nonce: str, waiting: str) -> None:
        """The message has one task, which was canceled in time or in the middle, or else completed."""
        row = self._end_of(nonce)
        assert (row["state"], end_in(row)) in (("void", "canceled"), ("settled", "completed")), row
        assert typed(self.box2.machine, "plain").count(nonce) <= 1
        # An answer that failed ends the wait as well.
        until(lambda: status_of(self.ada.task(waiting)) in FINISHED, "ada to be told")

    def check_replica(self) -> None:
        """The replica on laptop gets the whole log of box2, row for row."""
        until(lambda: self._replica() == self._log(), "the replica to have the whole log of box2", self._missing)

    def _log(self) -> list[tuple[int, str]]:
        """Returns the seqs of box2's log and the tasks that they are of."""
        return _rows(self.box2.machine.home / "store.db", "SELECT appends.seq, tasks.id FROM appends", "appends.seq")

    def _replica(self) -> list[tuple[int, str]]:
        rows = "SELECT origin_seq, tasks.id FROM origins JOIN appends USING (seq)"
        return _rows(self.laptop.machine.home / "fleet/replica.db", rows, "origin_seq")

    def _missing(self) -> list[tuple[int, str]]:
        return sorted({*self._log()} ^ {*self._replica()})

    def _end_of(self, nonce: str) -> dict[str, Any]:
        """Returns the outbox row of a message when both machines are done with it; it has one task, and says which."""
        [row] = closed_rows(self.laptop.machine, [f"m-{nonce}"])
        [task] = tasks_of(self.box2.machine, f"m-{nonce}")
        assert (task.id, task.state.value) == (row["task_id"], end_in(row))
        until(lambda: not self._open_ends(), "box2 to know that the end was told", self._open_ends)
        return row

    def _open_ends(self) -> list[str]:
        return [row["message_id"] for row in outbox_rows(self.box2.machine, "kind = 'ended' AND state = 'open'")]


def _rows(path: Path, select: str, order: str) -> list[tuple[int, str]]:
    """Returns rows of a store's log, whose appends are joined with their tasks."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
        return connection.execute(f"{select} JOIN tasks ON tasks.number = appends.task ORDER BY {order}").fetchall()


@pytest.fixture
def nonce() -> str:
    return uuid4().hex[:12]


@pytest.fixture(scope="module")
def pair() -> Generator[Pair]:
    with open_world("laptop", "box2", namespaces=False) as world:
        world.form()
        # Ada sends more to plain in a minute than agents may that talk to each other.
        world["box2"].environment["SYNAPSE_LOOP_LIMIT_PER_MINUTE"] = "0"
        world["box2"].add_profile("plain", LINE_RULES, "line_recorder")
        plain = world["box2"].start("plain", name="plain")
        world["laptop"].add_profile("ada", LINE_RULES, "line_recorder")
        ada = world["laptop"].start("ada", name="ada")
        laptop, box2 = DyingLink(world["laptop"]), DyingLink(world["box2"])
        try:
            yield Pair(world, laptop, box2, ada, remote_inbox(plain.entry.inbox, "box2"))
        finally:
            laptop.end()
            box2.end()


SENDER_STEPS = (
    "commit send open",
    "request send",
    "commit send accepted",
    "commit handled ended",
    "commit send settled",
    "answer receipt",
    "TellEnd",
    "commit send settled told",
)
RECEIVER_STEPS = (
    "OpenTask",
    "commit handled send",
    "answer receipt",
    "commit ended open",
    "request ended",
    "commit ended settled",
)
SENDER_STEPS_OF_MAIL = ("mail send", "acknowledge")
RECEIVER_STEPS_OF_MAIL = ("OpenTask", "commit handled send", "mail receipt", "acknowledge")
SENDER_STEPS_OF_CANCEL = ("commit void open", "request void")
RECEIVER_STEPS_OF_CANCEL = ("VoidTask", "commit handled void")
STEPS_OF_SHIPPING = ("commit chain", "ship batch")
STEPS_OF_A_REPLICA = ("commit replica",)
OTHER_STEPS = {
    "mail receipt": "as the mail of the other side",
    "request FindMessage": "a question, which is asked again",
    "FindTask": "a question, which is asked again",
    "answer Found": "a question, which is asked again",
    "mail void": "as a mail with a message",
    "mail ended": "as a mail with a message",
    "commit void void": "as the end of a message",
    "commit void settled": "as the end of a message",
    "commit void void told": "as the end of a message",
    "commit void settled told": "as the end of a message",
}
"""Steps that are taken now and then and are not tried here, because they do what another one does."""


def around(*steps: str) -> list[str]:
    return [f"{side} {step}" for step in steps for side in ("before", "after")]


@pytest.mark.parametrize("point", around(*SENDER_STEPS))
def test_a_sender_s_link_that_dies_with_a_message_sends_it_once(pair: Pair, nonce: str, point: str) -> None:
    pair.laptop.die_at(point)

    waiting = pair.send(nonce)

    pair.laptop.wait_dead()
    pair.check(nonce, waiting)


@pytest.mark.parametrize("point", around(*RECEIVER_STEPS))
def test_a_receiver_s_link_that_dies_with_a_message_delivers_it_once(pair: Pair, nonce: str, point: str) -> None:
    pair.box2.die_at(point)

    waiting = pair.send(nonce)

    pair.box2.wait_dead()
    pair.check(nonce, waiting)


@pytest.mark.parametrize("point", around(*SENDER_STEPS_OF_MAIL))
def test_a_sender_s_link_that_dies_with_a_mail_sends_it_once(pair: Pair, nonce: str, point: str) -> None:
    pair.laptop.die_at(point)

    with pair.box2.away():
        waiting = pair.send(nonce)
        pair.wait_mailed()

    pair.laptop.wait_dead()
    pair.check(nonce, waiting)


@pytest.mark.parametrize("point", around(*RECEIVER_STEPS_OF_MAIL))
def test_a_receiver_s_link_that_dies_with_a_mail_delivers_it_once(pair: Pair, nonce: str, point: str) -> None:
    with pair.box2.away():
        waiting = pair.send(nonce)
        pair.wait_mailed()
        pair.box2.die_at(point)

    pair.box2.wait_dead()
    pair.check(nonce, waiting)


@pytest.mark.parametrize("point", around(*SENDER_STEPS_OF_CANCEL))
def test_a_sender_s_link_that_dies_with_a_cancel_tells_the_truth(pair: Pair, nonce: str, point: str) -> None:
    with pair.box2.away():
        waiting = pair.send(nonce)
        pair.wait_mailed()
        pair.laptop.die_at(point)
        pair.cancel(nonce)

    pair.laptop.wait_dead()
    pair.check_canceled(nonce, waiting)


@pytest.mark.parametrize("point", around(*RECEIVER_STEPS_OF_CANCEL))
def test_a_receiver_s_link_that_dies_with_a_cancel_tells_the_truth(pair: Pair, nonce: str, point: str) -> None:
    with pair.box2.away():
        waiting = pair.send(nonce)
        pair.wait_mailed()
        pair.cancel(nonce)
        pair.box2.die_at(point)

    pair.box2.wait_dead()
    pair.check_canceled(nonce, waiting)


@pytest.mark.parametrize("point", around(*STEPS_OF_SHIPPING))
def test_a_link_that_dies_as_it_ships_its_log_ships_all_of_it_once(pair: Pair, nonce: str, point: str) -> None:
    pair.box2.die_at(point)

    waiting = pair.send(nonce)

    pair.box2.wait_dead()
    pair.check(nonce, waiting)
    pair.check_replica()


@pytest.mark.parametrize("point", around(*STEPS_OF_A_REPLICA))
def test_a_link_that_dies_as_it_writes_its_replica_has_all_of_it_once(pair: Pair, nonce: str, point: str) -> None:
    pair.laptop.die_at(point)

    waiting = pair.send(nonce)

    pair.laptop.wait_dead()
    pair.check(nonce, waiting)
    pair.check_replica()


def test_links_were_killed_at_all_of_their_steps(pair: Pair) -> None:
    """Runs last: a step that the product has gained since is missing in the tables above."""
    both = {*STEPS_OF_SHIPPING, *OTHER_STEPS}
    sender = {*SENDER_STEPS, *SENDER_STEPS_OF_MAIL, *SENDER_STEPS_OF_CANCEL, *STEPS_OF_A_REPLICA, *both}
    receiver = {*RECEIVER_STEPS, *RECEIVER_STEPS_OF_MAIL, *RECEIVER_STEPS_OF_CANCEL, *both}

    assert pair.laptop.points.keys() <= set(around(*sender))
    assert pair.box2.points.keys() <= set(around(*receiver))
