"""What goes wrong in a simulated fleet: links die, machines are cut off, files come from backups, and one lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synapse.fleet.relay_io import Arrived, Way
from synapse.fleet.wire import (
    End,
    Incarnation,
    MessageKind,
    Outcome,
    Receipt,
    RelayedMessage,
    decode_relay,
    encode_relay,
)
from tests.fleet.simulation.files import LinkDb
from tests.fleet.simulation.invariants import ROGUE
from tests.fleet.simulation.machine import Machine

if TYPE_CHECKING:
    from tests.fleet.simulation.world import World

PROFILES = (
    # crash, restart, cut off, heal, save, restore, disk, engine, rename, forge, agents
    (9, 12, 3, 6, 6, 5, 0.5, 1.5, 6, 4, 3),
    (3, 12, 2, 6, 20, 16, 1, 0.5, 2, 1, 3),  # files come and go
    (20, 25, 2, 6, 2, 1, 0.2, 1, 10, 1, 1),  # links die
    (3, 6, 14, 12, 4, 4, 0.5, 3, 3, 1, 1),  # machines are seldom there together
    (2, 12, 1, 8, 12, 2, 8, 2, 1, 1, 1),  # the disk that has the engine's files too comes from a backup
)


class Accidents:
    """Causes accidents, some more often than others: each run has a profile."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._witness = world.witness
        self._weights = self._random.choice(PROFILES)

    def cause(self) -> None:
        machine = self._world.any_machine()
        act = self._random.choices(
            (
                self._crash,
                self._restart_links,
                self.cut_off,
                self.heal,
                self.save,
                self._restore,
                self.restore_disk,
                self._engine_fails,
                self._rename,
                self._forge,
                self._start_or_stop_agent,
            ),
            self._weights,
        )[0]
        act(machine)

    def _crash(self, machine: Machine) -> None:
        self._world.counts["crashes"] += machine.link is not None
        self._world.stop(machine)

    def _restart_links(self, machine: Machine) -> None:
        for one in self._world.machines.values():
            if one.link is None and self._random.random() < 0.6:
                self._world.start(one)
            self._world.connect(one)

    def cut_off(self, machine: Machine) -> None:
        machine.is_cut_off = True
        self._world.disconnect(machine)

    def heal(self, machine: Machine) -> None:
        for one in self._world.machines.values():
            one.is_cut_off = False
            self._world.connect(one)

    def save(self, machine: Machine) -> None:
        machine.saved.append(machine.files.copy())

    def _restore(self, machine: Machine) -> None:
        """Puts old files back: those of the link, of the hosts, or both; or loses the link's. Both may be of a twin."""
        if not machine.saved:
            return
        self._world.counts["restores"] += 1
        self._world.stop(machine)
        files = (machine.saved[-1] if self._random.random() < 0.6 else self._random.choice(machine.saved)).copy()
        if self._random.random() < 0.5:
            machine.saved.append(machine.files.copy())  # the twin's files, that come back later
        which = self._random.random()
        if which < 0.5:
            self._witness.link_restored(machine)
            machine.files.link, machine.files.replica = files.link, files.replica
        elif which < 0.65:
            self._witness.store_restored(machine, files.store)
            machine.files.store = files.store
        elif which < 0.93:
            self._witness.link_restored(machine)
            self._witness.store_restored(machine, files.store)
            machine.files = files
        else:
            self._witness.link_restored(machine)
            machine.files.link = LinkDb()

    def restore_disk(self, machine: Machine) -> None:
        """Puts back a whole disk, which has the engine's files as well; the engine was empty then."""
        if machine.saved:
            self._world.counts["restores"] += 1
            self._world.stop(machine)
            files = machine.saved[-1].copy()
            lost = machine.files.store.last_seq - files.store.last_seq
            self._witness.link_restored(machine)
            self._witness.store_restored(machine, files.store)
            machine.files = files
            self._world.engine.wipe()
            for _ in range(lost):  # hosts work before the link is back
                self._world.hosts.work(machine)
            for one in self._world.machines.values():
                self._world.disconnect(one)
                if self._random.random() < 0.5:
                    self._world.stop(one)

    def _engine_fails(self, machine: Machine) -> None:
        self._world.counts["wipes"] += 1
        match self._random.randrange(3):
            case 0:
                self._world.counts["lost"] += len(self._world.engine.mails)
                self._world.engine.wipe()
            case 1:
                self._world.counts["lost"] += self._world.engine.lose_tail(self._random)
            case _:
                self._world.engine.restore(self._random)
        for one in self._world.machines.values():
            self._world.disconnect(one)
            if self._random.random() < 0.7:
                self._world.connect(one)

    def _rename(self, machine: Machine) -> None:
        """Lets a name without a folder resolve to another inbox."""
        target = self._random.choice([target for target in self._world.targets if "@" not in target])
        machine.inboxes[target] = f"{target}-{self._random.randint(1, 2)}"

    def _start_or_stop_agent(self, machine: Machine) -> None:
        target = self._random.choice(self._world.targets)
        machine.away ^= {target}

    def _forge(self, machine: Machine) -> None:
        """A machine sends, under its own name, what others have sent, or false receipts and ends for it."""
        if not self._world.wire:
            return
        sender, to, body = self._random.choice(self._world.wire)
        message = decode_relay(body)
        kind = self._random.randrange(3)
        if kind and isinstance(message, RelayedMessage) and message.kind == MessageKind.SEND:
            to, body = sender, encode_relay(self._lie(message) if kind == 1 else self._false_end(message))
        link = self._world.machines[to].link if to in self._world.machines else None
        if link is None or not link.connected:
            return
        own = link.new_token()
        link.arrivals[own] = (None, 0)
        way = Way.MAIL if kind == 1 or self._random.random() < 0.5 else Way.RELAY
        self._world.give(link, Arrived(token=own, way=way, machine=ROGUE, body=body))

    def _lie(self, message: RelayedMessage) -> Receipt:
        return Receipt(
            incarnation=message.incarnation,
            n=message.n,
            message_id=message.message_id,
            outcome=self._random.choice((Outcome.REFUSED, Outcome.VOID, Outcome.LOST)),
            by=message.peer,
            peer=message.peer,
        )

    def _false_end(self, message: RelayedMessage) -> RelayedMessage:
        self._world.salt += 1
        return RelayedMessage(
            incarnation=Incarnation(1, "f" * 16),
            n=self._world.salt,
            kind=MessageKind.ENDED,
            message_id=f"false-{self._world.salt}",
            task_id=message.task_id,
            end=End(state="lied"),
            ends=message.message_id,
        )
