"""Sees what physically happens in a simulated fleet, and judges it by the ten invariants of the design.

1. No message id is typed twice.
2. Every answered send ends settled, refused, void or uncertain.
3. Senders were told what hosts have; and a message of which they were told that it is kept is refused by hosts only.
4. A message whose sender was told "canceled" is not typed afterwards.
5. Order is kept for each pair of sender machine and target, and of sender machine and inbox, except over a restored
   file.
6. Nothing happens under another machine's name, or that of another sender than the message's.
7. A replica is a prefix of that incarnation's log, byte for byte, without what was pruned.
8. No floor passes an open message.
9. Once accidents end, everything settles and replicas are equal, in a bounded number of steps.
10. Wiping the engine at any step changes none of this: it is one of the accidents.

**A hosts' store that was restored** makes three of them impossible by nature, exactly so far:

- A task that is queued in the backup but was typed, or told as canceled, after it: the host types it (again). Excused
  from 1 and 4 is only a message whose task the restored file holds as queued.
- A task that the backup does not hold: its message is not delivered a second time, if the link notices the restored
  store: 1 holds in full. The link notices it when its own position in the log, the engine or a replica is beyond the
  backup; when none of them is, no file knows that the message ever came, and a copy that the sender still repeats is
  delivered. A link that does not notice it by its own position breaks 1 at its start, whatever follows. Excused from 1,
  3 and 4 are messages whose tasks were forgotten by a restore that went unnoticed until the link had connected.
- What waiters were told stands in the store: a restored one may not have it (2).
- Rows that were deleted by their age are there again until the next cleaning. A replica that has begun meanwhile does
  not have them (9).

If the sender's file, the receiver's file and the receiver's store are all backups, a message that all three have
forgotten may come a second time, also after a cancel: nobody knows of the first (1, 4). So may one that the receiver's
file never had, because its link died between the host's transaction and its own, if the sender's backup is of a time
before it was tried.

**A link's file that was restored** forgets which messages it had refused, and of its own messages, which were refused:
such a message may be delivered after all (3). It forgets what it told the waiter, who may hear two final states. It
forgets messages of its own that the backup does not hold; they are
excused from 2, and from nothing else. Order (5) is judged for pairs of messages that saw no restore of either side, and
were not sent under numbers that a restored file uses twice, until its link notices and takes a new incarnation.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from synapse.fleet.asks import without_text
from synapse.fleet.log import START, Batch, decode_batch
from synapse.fleet.outgoing import may_be_same_agent
from synapse.fleet.relay_io import (
    HandledRow,
    Identity,
    LinkRows,
    OutboxRow,
    OutboxState,
    PeerRow,
    StoreMark,
    Submitted,
    Write,
)
from synapse.fleet.wire import NO_INCARNATION, Incarnation, MessageKind, RelayedMessage, decode_relay
from tests.fleet.simulation.files import HostStore, Key, Row

if TYPE_CHECKING:
    from tests.fleet.simulation.engine import Mail
    from tests.fleet.simulation.machine import Machine
    from tests.fleet.simulation.world import World

ROGUE = "mallory"
"""A machine that repeats under its own name what it has seen of others."""


class Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number = number


@dataclass(slots=True)
class Sent:
    """A message that a person has sent."""

    message_id: str
    sender: str
    to: str
    target: str
    number: int
    body: bytes
    restores: tuple[int, int]
    """How often files of the sender and of the receiver had been restored when it was sent."""
    unordered: bool = False
    """It was sent while a restored file had not been noticed: numbers were used twice."""
    answered: bool = False


@dataclass(slots=True)
class _Restores:
    link: int = 0
    store: int = 0
    forgotten: set[Key] = field(default_factory=set[Key])
    """Messages whose tasks a restored store does not hold, as long as the link may still notice."""
    gone: set[Key] = field(default_factory=set[Key])
    """Messages whose tasks a restored store did not hold, noticed or not."""
    tainted: set[Incarnation] = field(default_factory=set[Incarnation])
    """Incarnations under which files were restored: numbers were used twice until the link noticed."""
    refused: set[Key] = field(default_factory=set[Key])
    is_unnoticed: bool = False
    incarnations: int = 0

    @property
    def number(self) -> int:
        return self.link + self.store


class Witness:
    """Remembers everything that happened, over all crashes and restores."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self._machines: dict[str, _Restores] = {}
        self._opened: dict[Key, tuple[str, int]] = {}
        self._typed: dict[Key, int] = {}
        self._reached: dict[Key, set[str]] = {}
        self._last_opened: dict[tuple[str, str, str], Sent] = {}
        self._canceled: set[Key] = set()
        self._refused: set[Key] = set()
        self._kept: set[Key] = set()
        """Messages of which the sender was told that they are kept."""
        self._written_refused: set[Key] = set()
        """Messages that a sender's file has had as refused, told or not: it may come back."""
        self._excused_opening: set[Key] = set()
        self._excused_typing: set[Key] = set()
        self._excused_refusal: set[Key] = set()
        self._written_handled: set[tuple[str, Key]] = set()
        """By receiver: the messages that its link has ever committed as handled."""
        self._untried_again: set[Key] = set()
        """Messages with a task, which a backup of the sender's file holds as never tried."""
        self._pruned: set[Row] = set()
        """Rows that a host has deleted. A backup brings them back, to be deleted again; nobody needs to ship them."""

    def machine(self, name: str) -> _Restores:
        return self._machines.setdefault(name, _Restores())

    # What happens

    def submitted(self, machine: str, event: Submitted, number: int) -> None:
        restores = (self.machine(machine).number, self.machine(event.to).number)
        self.sent[event.message_id] = Sent(
            event.message_id,
            machine,
            event.to,
            event.target,
            number,
            event.body,
            restores,
            self.machine(machine).is_unnoticed or self.machine(event.to).is_unnoticed,
        )

    def reported(self, machine: str, row: OutboxRow) -> None:
        self.sent[row.message_id].answered = True
        if row.state is OutboxState.OPEN:
            self._kept.add((machine, row.message_id))
        self._learned(machine, row)

    def told(self, machine: str, row: OutboxRow) -> None:
        self._learned(machine, row)

    def _learned(self, machine: str, row: OutboxRow) -> None:
        """The sender is told a final state."""
        key = (machine, row.message_id)
        reached = self._reached.get(key, set())
        match row.state:
            case OutboxState.VOID:
                self._canceled.add(key)
                if "canceled" not in reached:
                    raise Broken(3, f"{row.message_id} was told as void, but nothing was canceled")
            case OutboxState.REFUSED:
                self._learned_refusal(key, row.to)
            case OutboxState.SETTLED:
                if row.end is None or row.end.state not in reached:
                    raise Broken(3, f"{row.message_id} was told as {row.end}, hosts have {reached}")
            case _:
                pass

    def _learned_refusal(self, key: Key, receiver: str) -> None:
        self._refused.add(key)
        if key in self._opened and key not in self._excused_opening | self._excused_refusal:
            raise Broken(3, f"{key[1]} was told as refused, but a task was opened")
        if key in self._kept and key not in self.machine(receiver).refused | self._excused_refusal:
            raise Broken(3, f"{key[1]} was told as kept, then as refused, but no host has refused it")

    def pruned(self, rows: set[Row]) -> None:
        self._pruned |= rows

    def refused(self, machine: str, key: Key) -> None:
        self.machine(machine).refused.add(key)

    def opened(self, machine: str, key: Key, inbox: str) -> None:
        """A host opens a task for a message."""
        if key[0] == ROGUE:
            return
        sent = self.sent.get(key[1])
        if sent is None or (sent.sender, sent.to) != (key[0], machine):
            raise Broken(6, f"{key[1]} was opened on {machine} under the name {key[0]}")
        if key in self._opened and key not in self._excused_opening and not self._nobody_knows(machine, key):
            raise Broken(1, f"{key[1]} was opened twice")
        self._opened[key] = (machine, sent.number)
        for agent in (sent.target, inbox):
            self._check_order(machine, sent, agent)

    def claimed(self, machine: str, key: Key, body: bytes) -> None:
        """A host opens a task for a message that was canceled before it came."""
        if key[0] != ROGUE and body != without_text(self.sent[key[1]].body):
            raise Broken(6, f"{key[1]} was canceled on {machine} as the message of another sender")

    def _check_order(self, machine: str, sent: Sent, agent: str) -> None:
        now = (self.machine(sent.sender).number, self.machine(machine).number)
        if sent.restores != now or sent.unordered:
            return
        queue = (sent.sender, machine, agent)
        last = self._last_opened.get(queue)
        if last is not None and last.restores == now and last.number > sent.number:
            raise Broken(5, f"{sent.message_id} was opened after {last.message_id}")
        self._last_opened[queue] = sent

    def typed(self, machine: str, key: Key) -> None:
        """A host types a message."""
        if key[0] == ROGUE:
            return
        excused = self._excused_typing | self._excused_opening
        if self._nobody_knows(machine, key):
            excused |= {key}
        self._typed[key] = self._typed.get(key, 0) + 1
        if self._typed[key] > 1 and key not in excused:
            raise Broken(1, f"{key[1]} was typed twice")
        if key in self._canceled and key not in excused:
            raise Broken(4, f"{key[1]} was typed after its sender was told that it is canceled")
        if key in self._refused and key not in excused | self._excused_refusal:
            raise Broken(3, f"{key[1]} was typed after its sender was told that it is refused")

    def _nobody_knows(self, machine: str, key: Key) -> bool:
        """The sender's file, the receiver's file and the receiver's store have all forgotten the message."""
        receiver = self.machine(machine)
        has_never_known = (machine, key) not in self._written_handled and key in self._untried_again
        return key in receiver.gone and self.machine(key[0]).link > 0 and (receiver.link > 0 or has_never_known)

    def reached(self, key: Key, state: str) -> None:
        self._reached.setdefault(key, set()).add(state)

    def renewed(self, machine: str, why: str) -> None:
        """A machine has a new incarnation: its numbers are used once again."""
        restores = self.machine(machine)
        restores.is_unnoticed = False
        restores.incarnations += 1
        if restores.incarnations > 1 and not restores.number:
            raise Broken(3, f"{machine} has taken a new incarnation, and nothing was restored: {why}")

    def link_restored(self, machine: Machine) -> None:
        restores = self.machine(machine.name)
        restores.link += 1
        self._excused_refusal |= restores.refused
        self._excused_refusal |= {key for key in self._written_refused if key[0] == machine.name}
        # A link that had noticed a restored store, and whose own file is then a backup, has to notice it again.
        if restores.store:
            self._forget(machine, {key for _, key in machine.files.store.claims})
        self._taint(machine)

    def store_restored(self, machine: Machine, restored: HostStore) -> None:
        restores = self.machine(machine.name)
        restores.store += 1
        held = {key: restored.tasks[task_id] for (_, key), task_id in restored.claims.items()}
        self._forget(machine, held.keys())
        for key, task in held.items():
            if task.state == "queued" and (key in self._typed or "canceled" in self._reached.get(key, ())):
                self._excused_typing.add(key)
        self._taint(machine)

    def _forget(self, machine: Machine, held: Set[Key]) -> None:
        restores = self.machine(machine.name)
        known = {key for key in (*self._opened, *self._reached) if self._is_to(key, machine.name)}
        restores.forgotten = known - held
        restores.gone |= restores.forgotten

    def _is_to(self, key: Key, machine: str) -> bool:
        sent = self.sent.get(key[1])
        return key[0] != ROGUE and sent is not None and sent.to == machine

    def _taint(self, machine: Machine) -> None:
        identity = machine.files.link.identity
        if identity is not None:
            self.machine(machine.name).tainted.add(identity.incarnation)
        self.machine(machine.name).is_unnoticed = True

    def started(self, machine: str, incarnation: Incarnation, rows: LinkRows, mark: StoreMark) -> None:
        """A link has started: it must notice a store that its own position in the log shows to be restored."""
        is_shorter = mark.last_seq < rows.tail.seq
        is_other = bool(mark.mark and rows.tail.mark) and mark.mark != rows.tail.mark
        if rows.identity is not None and incarnation == rows.identity.incarnation and (is_shorter or is_other):
            raise Broken(1, f"{machine} goes on with a restored store, which does not have all it has handled")
        untried = {(machine, row.message_id) for row in rows.outbox if row.peer == NO_INCARNATION}
        self._untried_again |= untried & self._opened.keys()

    def connected(self, machine: str, incarnation: Incarnation) -> None:
        """The link has connected; a restored store that it has not noticed yet may deliver again what it forgot."""
        restores = self.machine(machine)
        if incarnation in restores.tainted:
            self._excused_opening |= restores.forgotten
            restores.forgotten.clear()

    def committed(self, world: World, machine: Machine, writes: tuple[Write, ...]) -> None:
        """A link has committed: no floor may pass an open message of its sender."""
        for write in writes:
            if isinstance(write, Identity) and write.incarnation not in self.machine(machine.name).tainted:
                # Not before: a link that dies has noticed nothing.
                self.machine(machine.name).forgotten.clear()
            if isinstance(write, OutboxRow) and write.state is OutboxState.REFUSED:
                self._written_refused.add((machine.name, write.message_id))
            if isinstance(write, HandledRow):
                self._written_handled.add((machine.name, (write.machine, write.message_id)))
            if isinstance(write, PeerRow) and write.machine in world.machines:
                self._check_floor(world, machine, write)

    def _check_floor(self, world: World, machine: Machine, peer: PeerRow) -> None:
        if peer.incarnation in self.machine(peer.machine).tainted:
            return
        for row in world.machines[peer.machine].files.link.outbox.values():
            is_counted = row.to == machine.name and row.incarnation == peer.incarnation
            if is_counted and row.state is OutboxState.OPEN and row.n < peer.floor:
                raise Broken(8, f"the floor {peer.floor} passes the open message {row.n} ({row.message_id})")

    def taken(self, machine: Machine, batch: Batch, origin: dict[int, bytes]) -> None:
        """A replica has taken a batch: all that it has must be what the maker of the batch had, byte for byte."""
        for seq, data in machine.files.replica.rows[batch.machine, batch.incarnation].items():
            if seq <= batch.last.seq and origin.get(seq, data) != data:
                raise Broken(7, f"{machine.name} has {data!r} at {seq} of {batch.machine}, which has {origin[seq]!r}")

    # The end

    def is_settled(self, world: World) -> bool:
        return not self.unsettled(world)

    def unsettled(self, world: World) -> str:
        """Returns what is not settled yet; empty once everything is."""
        for machine in world.machines.values():
            for row in machine.files.link.outbox.values():
                if not row.is_finished and row.to != ROGUE:
                    return f"{machine.name}: {row}"
            tail = machine.files.link.tail.seq
            if tail < machine.files.store.last_seq:
                return f"{machine.name} has read its log to {tail} of {machine.files.store.last_seq}"
            why = self._replica_difference(world, machine)
            if why and world.ships_log:
                return why
        return "there is mail left" if any(map(self._is_awaited, world.engine.mails.values())) else ""

    def _is_awaited(self, mail: Mail) -> bool:
        """Receipts are. A message whose sender has closed it may wait for one that never comes, until it expires."""
        return mail.to != ROGUE and not isinstance(decode_relay(mail.body), RelayedMessage)

    def _replica_difference(self, world: World, machine: Machine) -> str:
        identity = machine.files.link.identity
        store = machine.files.store
        for name in world.replicas:
            if name == machine.name or identity is None:
                continue
            replica = world.machines[name].files.replica
            head = replica.heads.get(machine.name)
            if head is None or head.incarnation != identity.incarnation:
                return f"{name} has no replica of {machine.name}'s incarnation"
            rows = replica.rows.get((machine.name, head.incarnation), {})
            if any(seq not in rows and row not in self._pruned for seq, row in store.log.items()):
                return f"{name} lacks rows of {machine.name}"
        return ""

    def judge_end(self, world: World) -> None:
        """Judges what can only be judged when everything has settled."""
        for machine in world.machines.values():
            self._judge_rows(world, machine)
            self._judge_replicas(world, machine)
            self._judge_engine(world, machine)

    def judge_mail(self, world: World, since: float) -> None:
        """Judges what machines that are never there at once have settled: what was to be kept has arrived.

        So have cancels of other messages. Not judged is what is of the last hours, or waits behind a plain message, or
        has waited for one until the last hours.
        """
        for machine in world.machines.values():
            excused: list[OutboxRow] = []
            for row in sorted(machine.files.link.outbox.values(), key=lambda row: row.created_at):
                is_open = row.state is OutboxState.OPEN
                is_new = row.changed_at - machine.skew > since + 3600.0
                if not is_open and not is_new:
                    continue
                is_plain = not row.queue and (is_new or row.kind == MessageKind.SEND)
                waits = row.target and any(
                    one.to == row.to and may_be_same_agent(one.target, row.target) for one in excused
                )
                if is_plain or waits or (is_open and is_new) or row.to == ROGUE:
                    excused.append(row)
                elif is_open:
                    raise Broken(9, f"{row.message_id} to {row.to} does not arrive by mail ({row.kind})")

    def _judge_engine(self, world: World, machine: Machine) -> None:
        """The stream of a log has no hole in it: what the engine lost was shipped again, maybe from the start."""
        identity = machine.files.link.identity
        batches = [decode_batch(body) for body in world.engine.logs.get(machine.name, [])]
        own = [batch for batch in batches if identity is not None and batch.incarnation == identity.incarnation]
        for before, after in pairwise(own):
            if after.prev not in (before.last, START):
                raise Broken(7, f"the engine's log of {machine.name} has a hole after {before.last.seq}")
        if own and own[0].prev != START and len(own) == len(batches):
            raise Broken(7, f"the engine's log of {machine.name} does not begin at its start")

    def _judge_rows(self, world: World, machine: Machine) -> None:
        restores = self.machine(machine.name)
        for sent in self.sent.values():
            row = machine.files.link.outbox.get(sent.message_id)
            if sent.sender != machine.name:
                continue
            if row is None and sent.answered and restores.link == 0:
                # A plain send is refused without a row while the machine is not connected.
                if (machine.name, sent.message_id) not in self._refused:
                    raise Broken(2, f"{sent.message_id} was answered, and is gone")
            elif row is not None and row.kind in (MessageKind.SEND, MessageKind.VOID):
                self._judge_row(world, machine, row)

    def _judge_row(self, world: World, machine: Machine, row: OutboxRow) -> None:
        restores = self.machine(machine.name)
        if not row.state.is_closed:
            raise Broken(2, f"{row.message_id} is {row.state}")
        told = machine.files.store.told.get(row.message_id)
        if restores.store == 0 and (told is None or (restores.link == 0 and told != row.state)):
            raise Broken(2, f"the waiter of {row.message_id} was not told that it is {row.state}")
        if row.state is OutboxState.UNCERTAIN:
            self._judge_uncertain(world, row)

    def _judge_uncertain(self, world: World, row: OutboxRow) -> None:
        """Uncertain is only what a machine may have lost, or has not confirmed for eight days."""
        identity = world.machines[row.to].files.link.identity
        if identity is None or row.peer != identity.incarnation or "eight days" in row.why:
            return
        if self.machine(row.to).store == 0 and not world.with_long_pauses:
            raise Broken(3, f"{row.message_id} is uncertain, but {row.to} has lost nothing")

    def _judge_replicas(self, world: World, machine: Machine) -> None:
        store = machine.files.store
        for name in world.replicas:
            if name == machine.name:
                continue
            replica = world.machines[name].files.replica
            head = replica.heads.get(machine.name)
            if head is None:
                continue
            for seq, data in replica.rows.get((machine.name, head.incarnation), {}).items():
                row = store.log.get(seq)
                if row is not None and row.data != data:
                    raise Broken(7, f"{name} has {data!r} at {seq} of {machine.name}, which has {row.data!r}")
                if row is None and (seq > store.last_seq or not world.with_long_pauses):
                    raise Broken(7, f"{name} has a row {seq} of {machine.name} that never was there")
            open_incarnations = {inc for who, inc in replica.rows if who == machine.name} - {
                inc for who, inc in replica.closed if who == machine.name
            }
            if open_incarnations - {head.incarnation}:
                raise Broken(7, f"{name} has not closed all earlier incarnations of {machine.name}")
