"""The clocks of three machines are hours apart: messages pass both ways, and `fleet join` says so."""

from __future__ import annotations

from collections.abc import Generator
from uuid import uuid4

import pytest

from tests.fleet.careful_client import closed_rows, end_in, insist, typed
from tests.fleet.shifted_clock import give_own_clock, set_clock
from tests.fleet.waiting import until
from tests.fleet.world import World, open_world
from tests.integration.chaos.house import LINE_RULES

pytestmark = pytest.mark.integration
HOUR = 3600.0
JOINED: dict[str, str] = {}
"""What `fleet join` told each machine."""


@pytest.fixture(scope="module")
def world() -> Generator[World]:
    with open_world("hub", "laptop", "box2", namespaces=False) as made:
        give_own_clock(made["laptop"], 26 * HOUR)
        give_own_clock(made["box2"], -5 * HOUR)
        made.hub.run("fleet", "create", "--name", "hub", "--listen", made.address)
        for machine, agent in (("laptop", "ada"), ("box2", "bob")):
            invitation = made.hub.read("fleet", "invite", machine)["invitation"]
            joined = made[machine].synapse("fleet", "join", invitation)
            assert joined.code == 0, joined
            JOINED[machine] = joined.err
            made[machine].add_profile(agent, LINE_RULES, "line_recorder")
            made[machine].start(agent, name=agent)
            made[machine].wait_connected()
        yield made


def test_a_machine_whose_clock_is_off_by_a_day_is_told_when_it_joins(world: World) -> None:
    assert "The clock of this machine is 26 hours ahead of that of the fleet's server." in JOINED["laptop"]
    assert "The clock of this machine is 5 hours behind that of the fleet's server." in JOINED["box2"]
    assert "timedatectl set-ntp true" in world["laptop"].synapse("fleet", "doctor").out


@pytest.mark.parametrize(("sender", "target"), [("laptop", "bob@box2"), ("box2", "ada@laptop")])
def test_messages_with_a_deadline_pass_between_clocks_that_are_a_day_apart(
    world: World, sender: str, target: str
) -> None:
    agent, _, receiver = target.partition("@")

    asked = world[sender].run("send", target, "hello", "--response", "--timeout", "20")
    sent = [send(world, sender, target, ttl=60) for _ in range(3)]
    world[receiver].stop_link()
    kept = [send(world, sender, target, ttl=60) for _ in range(3)]
    world[receiver].start_link()

    rows = closed_rows(world[sender], [f"m-{nonce}" for nonce in (*sent, *kept)])
    assert asked
    assert {(row["state"], end_in(row)) for row in rows} == {("settled", "completed")}
    assert [nonce for nonce in typed(world[receiver], agent) if nonce in (*sent, *kept)] == [*sent, *kept]


def test_a_clock_that_is_set_while_messages_wait_loses_none(world: World) -> None:
    world["box2"].stop_link()
    kept = [send(world, "laptop", "bob@box2")]
    set_clock(world["laptop"], -3 * HOUR)
    kept.append(send(world, "laptop", "bob@box2"))
    set_clock(world["laptop"], 5 * HOUR)
    kept.append(send(world, "laptop", "bob@box2"))
    world["box2"].start_link()

    rows = closed_rows(world["laptop"], [f"m-{nonce}" for nonce in kept])

    assert {(row["state"], end_in(row)) for row in rows} == {("settled", "completed")}
    until(lambda: [one for one in typed(world["box2"], "bob") if one in kept] == kept, "all of them, in order")


def send(world: World, sender: str, target: str, **metadata: object) -> str:
    nonce = uuid4().hex[:12]
    insist(world[sender], target, f"do <<{nonce}>>", f"m-{nonce}", **metadata)
    return nonce
