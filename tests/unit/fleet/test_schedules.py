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

    def send(self, target: str = "x", *, queue: bool) -> str:
        """Sends a message from `a` to `b`; returns its id."""
        link, number = self.a.link, len(self.world.witness.sent)
        assert link is not None
        event = Submitted(
            token=link.new_token(),
            to="b",
            message_id=f"m{number}",
            target=target,
            task_id=f"t{number}",
            body=b"hello",
            queue=queue,
        )
        self.world.witness.submitted("a", event, number)
        self.world.give(link, event)
        self.world.empty_pending()
        return event.message_id

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
