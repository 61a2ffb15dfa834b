"""The relay: carries messages between the agents of machines, without losing one or delivering one twice.

A step machine without I/O: `step` takes an event and returns effects; see `relay_io` for what a shell does with them.

    outgoing.py   the sender's half: outbox, copies, receipts, cancel, expiry, ends
    incoming.py   the receiver's half: order, hosts, receipts
    here          the machine's own incarnation, the incarnations of others, and which half gets which event
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from synapse.fleet.incoming import Incoming
from synapse.fleet.outgoing import Outgoing
from synapse.fleet.relay_context import RelayContext, forget_below
from synapse.fleet.relay_io import (
    DEFAULT_LIMITS,
    Announce,
    Arrived,
    Connected,
    Disconnected,
    Effect,
    Event,
    HostAnswered,
    Identity,
    LinkRows,
    MailKept,
    Notify,
    OutboxLimits,
    OutboxLoad,
    Outdated,
    PeerAnswered,
    PeerSeen,
    Recalled,
    Stored,
    StoreMark,
    Submitted,
    Tailed,
    TailRow,
    Tick,
    WakeAt,
)
from synapse.fleet.wire import HEARD_LIMIT, NO_INCARNATION, Incarnation, RelayedMessage


class Relay:
    """The relay of one machine. `load` makes it of its stored rows."""

    def __init__(
        self, machine: str, identity: Identity, rows: LinkRows, new_nonce: Callable[[], str], limits: OutboxLimits
    ) -> None:
        """For `load`."""
        self._new_nonce = new_nonce
        self._context = RelayContext(machine, identity, rows.peers, session=new_nonce())
        self._outgoing = Outgoing(self._context, rows.outbox, self._contradicted, limits)
        self._incoming = Incoming(self._context, self._outgoing, rows.handled, self._message_shows)
        self._renewed: dict[str, float] = {}
        """When this machine last took a new incarnation because of another machine, or of its log (LOG)."""
        self._outdated: Outdated | None = None
        """What is said of the log, and waits until this machine may take a new incarnation because of it."""
        self._wake_at: float | None = None

    @classmethod
    def load(
        cls,
        now: float,
        machine: str,
        rows: LinkRows,
        mark: StoreMark,
        new_nonce: Callable[[], str],
        limits: OutboxLimits = DEFAULT_LIMITS,
    ) -> tuple[Relay, list[Effect]]:
        """Returns the relay of `machine` and its first effects.

        It has a new incarnation if it never had one, or if the store is not the one that the rows belong to. What was
        handled stays known: only hosts must be asked again.
        `new_nonce` returns a random text of 16 hexadecimal digits; `limits` bound the outbox.
        """
        why = _why_new(rows, mark)
        identity = rows.identity or Identity(incarnation=NO_INCARNATION, store_id=mark.store_id)
        relay = cls(machine, identity, rows, new_nonce, limits)
        relay._context.now = now
        if why:
            relay._context.identity = replace(identity, store_id=mark.store_id)
            relay._context.write(TailRow())
            relay._renew(why, 0)
        return relay, relay._flush()

    @property
    def incarnation(self) -> Incarnation:
        """This machine's incarnation."""
        return self._context.incarnation

    @property
    def outbox_load(self) -> OutboxLoad:
        """How full the outbox is."""
        return self._outgoing.measure()

    def step(self, now: float, event: Event) -> list[Effect]:
        """Takes an event; returns what to do."""
        if now < self._context.now:
            self._context.now = now
            self._outgoing.clock_set_back()
        self._context.now = now
        self._take(event)
        return self._flush()

    def _take(self, event: Event) -> None:  # noqa: C901, PLR0912 - one case for each event
        match event:
            case Stored(token=token):
                self._context.stored(token)
            case Arrived():
                self._incoming.arrived(event)
            case PeerAnswered() | MailKept() | HostAnswered():
                self._context.answered(event)
            case Submitted():
                self._outgoing.submitted(event)
            case Recalled():
                self._outgoing.recalled(event)
            case Tailed(seq=seq, mark=mark, ended=ended):
                self._context.write(TailRow(seq=seq, mark=mark))
                self._outgoing.tailed(ended)
            case Connected():
                self._outgoing.connected()
            case Disconnected():
                self._outgoing.disconnected()
            case PeerSeen(machine=machine, incarnation=incarnation):
                self._seen(machine, incarnation)
            case Outdated(counter=counter):
                # One that would not be believed must not stand in the way of others.
                if counter < HEARD_LIMIT and (self._outdated is None or counter >= self._outdated.counter):
                    self._outdated = event
            case Tick():
                self._wake_at = None

    def _flush(self) -> list[Effect]:
        self._renew_for_log()
        self._outgoing.tick()
        effects = self._context.flush()
        at = self._next_due()
        if at is not None and at != self._wake_at:
            self._wake_at = at
            effects.append(WakeAt(at=at))
        return effects

    def _seen(self, machine: str, incarnation: Incarnation) -> None:
        """Notes the incarnation that a machine shows. An older one than we know is of a file that will find out."""
        if machine == self._context.machine:
            self._own_seen(incarnation)
            return
        if incarnation.counter > self._context.peer(machine).incarnation.counter:
            self._note(machine, incarnation)
        self._outgoing.machine_seen(machine)

    def _own_seen(self, incarnation: Incarnation) -> None:
        if incarnation != self.incarnation and incarnation.counter >= self.incarnation.counter:
            self._renew("this machine has had a later incarnation than its own files know", incarnation.counter)

    def _message_shows(self, machine: str, message: RelayedMessage) -> None:
        self._note(machine, message.incarnation)

    def _note(self, machine: str, incarnation: Incarnation) -> None:
        """Begins to count the messages of a machine anew, under its new incarnation."""
        known = self._context.peer(machine)
        peer = replace(known, incarnation=incarnation, floor=1)
        self._context.write_peer(peer)
        self._context.write(forget_below(peer))
        self._incoming.forget(machine)
        self._outgoing.machine_seen(machine)
        if known.incarnation != NO_INCARNATION:
            self._context.then(Notify(text=f"{machine} has a new incarnation", machine=machine))

    def _contradicted(self, machine: str, why: str, heard: int) -> None:
        """Takes a new incarnation because of a receipt. A machine that goes on to contradict us has to wait."""
        if self._may_renew(machine):
            self._renewed[machine] = self._context.now
            self._renew(why, heard)

    def _renew_for_log(self) -> None:
        """Takes a new incarnation if the log needs one, unless there is a newer one than the log knew."""
        outdated = self._outdated
        if outdated is None or not self._may_renew(LOG):
            return
        self._outdated = None
        if outdated.counter >= self.incarnation.counter:
            self._renewed[LOG] = self._context.now
            self._renew(outdated.why, outdated.counter)

    def _may_renew(self, because_of: str) -> bool:
        last = self._renewed.get(because_of)
        return last is None or not 0 <= self._context.now - last < RENEW_PAUSE

    def _next_due(self) -> float | None:
        times = [self._outgoing.next_due(), self._renewed[LOG] + RENEW_PAUSE if self._outdated is not None else None]
        return min((at for at in times if at is not None), default=None)

    def _renew(self, why: str, heard: int) -> None:
        """Takes a new incarnation: its counter is above all that were heard of.

        One that nobody can have reached is not believed: with a counter beyond it, no machine could read us any more.
        """
        if heard >= HEARD_LIMIT:
            return
        context = self._context
        heard = max(heard, context.identity.heard, context.incarnation.counter)
        context.identity = replace(
            context.identity, incarnation=Incarnation(heard + 1, self._new_nonce()), heard=heard + 1
        )
        context.write(context.identity)
        for peer in context.peers():
            context.write_peer(replace(peer, next_n=1))
        self._outgoing.renumber()
        context.then(Announce(incarnation=context.incarnation, why=why))


RENEW_PAUSE: Final = 300.0
"""The least time between two new incarnations because of one machine, or of the log. One is enough after a backup."""
LOG: Final = ""
"""Stands for the log among the machines."""
JOINED: Final = "this machine has joined"
"""Why a machine has its first incarnation."""


def _why_new(rows: LinkRows, mark: StoreMark) -> str:
    """Returns why the machine needs a new incarnation at its start; empty if it does not."""
    if rows.identity is None:
        return JOINED
    if rows.identity.store_id != mark.store_id:
        return "this machine's store is another one"
    if mark.last_seq < rows.tail.seq or (mark.mark and rows.tail.mark and mark.mark != rows.tail.mark):
        return "this machine's store was restored from a backup"
    return ""
