"""Faults of restored and absent machines in an order that chance seldom makes, played by hand in the simulator."""

from __future__ import annotations

import pytest

from synapse.fleet.relay_io import OutboxState, Submitted
from tests.fleet.simulation.files import HostStore, LinkDb
from tests.fleet.simulation.machine import Machine
from tests.fleet.simulation.world import World


class Pair:
    """Two simulated machines without accidents, `a` and `b`."""

    def __init__(self, *, ships_log: bool = False) -> None:
        self.world = world = World(3)
        world.is_calm = True
        world.names, world.targets, world.replicas = ("a", "b"), ("x",), ("b",) if ships_log else ()
        world.machines = {name: world.machines[name] for name in world.names}
        world.ships_log = ships_log
        self.a, self.b = world.machines["a"], world.machines["b"]

    def start(self, machine: Machine) -> None:
        self.world.start(machine)
        self.world.connect(machine)

    def settle(self, times: int = 4) -> None:
        for _ in range(times):
            self.world.settle_down()

    def submit(self, *, queue: bool) -> str:
        """Lets a person send a message from `a` to `b`; returns its id."""
        link, number = self.a.link, len(self.world.witness.sent)
        assert link is not None
        event = Submitted(
            token=link.new_token(),
            to="b",
            message_id=f"m{number}",
            target="x",
            task_id=f"t{number}",
            body=b"hello",
            queue=queue,
        )
        self.world.witness.submitted("a", event, number)
        self.world.give(link, event)
        return event.message_id

    def send(self, *, queue: bool) -> str:
        """Sends a message from `a` to `b`, and lets everything happen that needs no time; returns its id."""
        message_id = self.submit(queue=queue)
        self.world.empty_pending()
        return message_id

    def take_turns(self, times: int) -> None:
        """Lets the machines be there by turns, `b` first, each for an hour."""
        for machine, other in ((self.b, self.a), (self.a, self.b)) * times:
            self.world.accidents.cut_off(other)
            machine.is_cut_off = False
            self.world.connect(machine)
            assert machine.link is not None
            for _ in range(6):
                self.settle(1)
                self.world.deliver_mail(machine.link)
            self.settle(1)
            self.world.now += 3600.0

    def state(self, message_id: str) -> OutboxState:
        return self.a.files.link.outbox[message_id].state

    def restore_link(self, machine: Machine, saved: LinkDb) -> None:
        self.world.stop(machine)
        self.world.witness.link_restored(machine)
        machine.files.link = saved.copy()
        self.start(machine)

    def restore_store(self, machine: Machine, saved: HostStore) -> None:
        self.world.stop(machine)
        self.world.witness.store_restored(machine, saved)
        machine.files.store = saved.copy()
        self.start(machine)


def test_mail_behind_a_plain_message_without_an_answer_arrives_though_the_machines_never_meet() -> None:
    pair = Pair()
    for machine in (pair.a, pair.b):
        machine.skew = 0.0
        pair.start(machine)
    pair.settle()
    plain = pair.submit(queue=False)
    assert pair.a.link is not None
    while not pair.a.link.requests:
        pair.world.take_pending()
    pair.world.accidents.cut_off(pair.b)  # the copy is lost on the way
    pair.settle()
    assert pair.state(plain) is OutboxState.OPEN
    pair.take_turns(6)
    kept = pair.send(queue=True)

    pair.take_turns(12)

    assert (pair.state(plain), pair.state(kept)) == (OutboxState.VOID, OutboxState.SETTLED)


@pytest.mark.parametrize("ships_log", [False, True])
def test_a_first_message_is_uncertain_after_the_senders_file_and_the_receivers_store_were_restored(
    ships_log: bool,
) -> None:
    pair = Pair(ships_log=ships_log)
    pair.start(pair.a)
    pair.world.start(pair.b)  # `a` has never heard of it
    sent = pair.send(queue=True)
    link, store = pair.a.files.link.copy(), pair.b.files.store.copy()
    pair.world.connect(pair.b)
    pair.settle()
    assert pair.state(sent) is OutboxState.SETTLED

    pair.restore_store(pair.b, store)
    pair.settle(1)
    pair.restore_link(pair.a, link)
    pair.settle(8)

    assert pair.state(sent) is OutboxState.UNCERTAIN
