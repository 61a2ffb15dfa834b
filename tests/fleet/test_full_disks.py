"""Messages that do not fit: a full disk at either end, or a message that is too large to be kept."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fleet.careful_client import closed_rows, end_in, insist, row_of, tasks_of, typed
from tests.fleet.world import Machine, World, open_world
from tests.integration.chaos.house import LINE_RULES, RunningHost
from tests.integration.recovery.small_disk import OwnDisk, small_disk

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@dataclass(slots=True)
class Pair:
    """`laptop` sends to bob on `box2`; the home of each is a small disk of its own."""

    world: World
    disks: dict[str, OwnDisk]
    bob: RunningHost

    @property
    def laptop(self) -> Machine:
        return self.world["laptop"]

    @property
    def box2(self) -> Machine:
        return self.world["box2"]

    def check_settled(self, nonce: str) -> None:
        [row] = closed_rows(self.laptop, [f"m-{nonce}"], bound=60)
        assert (row["state"], end_in(row)) == ("settled", "completed"), row
        assert typed(self.box2, "bob").count(nonce) == 1
        assert len(tasks_of(self.box2, f"m-{nonce}")) == 1


@pytest.fixture(scope="module")
def pair() -> Generator[Pair]:
    with open_world("hub", "laptop", "box2", namespaces=False) as world, ExitStack() as ending:
        disks: dict[str, OwnDisk] = {}
        for name in ("laptop", "box2"):
            disk = ending.enter_context(small_disk(world[name].home))
            if not isinstance(disk, OwnDisk):
                pytest.skip("this user may not mount a small disk")
            disks[name] = disk
        world.form()
        world["box2"].add_profile("bob", LINE_RULES, "line_recorder")
        bob = world["box2"].start("bob", name="bob")
        yield Pair(world, disks, bob)
        world.close()


def new_nonce() -> str:
    return uuid4().hex[:12]


def test_a_sender_whose_disk_is_full_is_told_and_nothing_is_sent(pair: Pair) -> None:
    refused, later = new_nonce(), new_nonce()
    with pair.disks["laptop"].full():
        told = [
            pair.laptop.synapse("send", "bob@box2", f"do <<{refused}>>", *options) for options in ((), ("--queue",))
        ]

    insist(pair.laptop, "bob@box2", f"do <<{later}>>", f"m-{later}")

    for ran in told:
        assert (ran.code, "no space left" in ran.err) == (1, True), ran
    pair.check_settled(later)
    assert refused not in typed(pair.box2, "bob")


def test_a_message_to_a_machine_whose_disk_is_full_waits_until_it_has_room(pair: Pair) -> None:
    nonce = new_nonce()
    with pair.disks["box2"].full():
        told = pair.laptop.synapse("send", "bob@box2", f"do <<{nonce}>>", "--message-id", f"m-{nonce}")
        state = row_of(pair.laptop, f"m-{nonce}").get("state")

    pair.check_settled(nonce)
    assert (told.code, "kept until box2 takes it" in told.err, state) == (0, True, "open"), told


def test_a_message_that_is_too_large_to_be_kept_is_refused_and_the_next_is_not(pair: Pair, tmp_path: Path) -> None:
    pair.box2.stop_link()
    large, small = tmp_path / "large", new_nonce()
    large.write_text("x" * 600_000, encoding="ascii")

    refused = pair.laptop.synapse("send", "bob@box2", "--queue", "--file", str(large))
    insist(pair.laptop, "bob@box2", f"do <<{small}>>", f"m-{small}")
    pair.box2.start_link()

    assert refused.code == 2, refused
    assert "one that is kept for a machine which may be away may have 512 kB" in refused.err
    pair.check_settled(small)
