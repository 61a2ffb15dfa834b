"""Wrong relays, shippers, replicas and hosts. The simulator must find each: one that it misses proves nothing.

They reach into the classes that they change: a mutant is a small wrong version of the inside.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from synapse.fleet import log, relay
from synapse.fleet.incoming import Incoming
from synapse.fleet.log import KeepBatch, LogEffect, LogRow, RowsRead, Shipper, encode_batch
from synapse.fleet.outgoing import Outgoing, _Sending, may_be_same_agent
from synapse.fleet.relay_context import RelayContext
from synapse.fleet.relay_io import (
    Arrived,
    Effect,
    HandledRow,
    HostCall,
    LinkRows,
    MailKept,
    OpenTask,
    OutboxRow,
    OutboxState,
    Store,
    StoreMark,
    Tailed,
)
from synapse.fleet.wire import MessageKind, Outcome, Receipt, RelayedMessage
from tests.fleet.simulation.files import Key, SimTask
from tests.fleet.simulation.hosts import Hosts
from tests.fleet.simulation.machine import Machine, SimLink
from tests.fleet.simulation.world import World


class Change(NamedTuple):
    """What a mutant does: another value for an attribute of a class or a module."""

    owner: Any
    name: str
    value: Any


@contextmanager
def mutated(name: str) -> Generator[None]:
    """Runs the block with a mutant; an empty name changes nothing."""
    change = MUTANTS[name] if name else None
    kept = getattr(change.owner, change.name) if change is not None else None
    if change is not None:
        setattr(change.owner, change.name, change.value)
    try:
        yield
    finally:
        if change is not None:
            setattr(change.owner, change.name, kept)


# The sender's half


def _no_prev(_self: Outgoing, _row: OutboxRow) -> int:
    return 0


def _never_held(_self: Outgoing, _row: OutboxRow) -> bool:
    return False


def _held_by_any_namesake(self: Outgoing, row: OutboxRow) -> bool:
    before: set[str] = set()
    for n in reversed(self._open[row.to]):
        target = self._sending[self._open[row.to][n]].row.target
        if n >= row.n or not may_be_same_agent(target, row.target):
            continue
        if target == row.target:
            return False
        before.add(target)
    return "@" not in row.target and len(before) > 1


def _highest_open(self: Outgoing, machine: str) -> int:
    return next(reversed(self._open[machine]))


def _same_once(_self: Outgoing, sending: Any) -> str:
    row: OutboxRow = sending.row
    return f"{row.incarnation.text}.{row.to}.{row.n}"


def _closed_by_engine(self: Outgoing, message_id: str, _kind: str, event: MailKept) -> None:
    sending = self._sending.get(message_id)
    if sending is not None and event.kept and sending.row.state is OutboxState.OPEN:
        self._leave_open(sending.row)
        sending.row = replace(sending.row, state=OutboxState.ACCEPTED)
        self._context.write(sending.row)


_copy = Outgoing._message


def _void_of_nobody(self: Outgoing, row: OutboxRow) -> RelayedMessage:
    copy = _copy(self, row)
    return copy if copy.kind != MessageKind.VOID else msgspec.structs.replace(copy, body=b"")


_take_receipt = Outgoing._take_receipt


def _deaf_to_forks(self: Outgoing, machine: str, receipt: Receipt, *, first: bool) -> None:
    if receipt.outcome not in (Outcome.FORK, Outcome.BELOW, Outcome.STALE):
        _take_receipt(self, machine, receipt, first=first)


def _receipt_of_anybody(_self: Outgoing, receipt: Receipt, _machine: str, row: OutboxRow) -> bool:
    return row.state is OutboxState.OPEN and row.n == receipt.n and row.incarnation == receipt.incarnation


def _never_asked(self: Outgoing, sending: Any) -> None:
    self._schedule(sending, self._context.now + 600.0)


_nobody_there = Outgoing._nobody_there


def _refused_though_sent(self: Outgoing, sending: Any) -> None:
    sending.fresh = True
    _nobody_there(self, sending)


def _refused_while_fresh(self: _Sending) -> bool:
    return self.fresh and not self.row.queue and self.row.kind == MessageKind.SEND


# The receiver's half

_judge = Incoming._judge


def _silent_below(self: Incoming, machine: str, message: RelayedMessage) -> Receipt | None:
    receipt = _judge(self, machine, message)
    if receipt is not None and receipt.outcome is Outcome.BELOW:
        return msgspec.structs.replace(receipt, outcome=Outcome.LATER)
    return receipt


def _any_id(_self: Incoming, _handled: HandledRow, _message: RelayedMessage) -> bool:
    return True


_message_of_peer = Incoming._message


def _any_incarnation(self: Incoming, event: Arrived, message: RelayedMessage) -> None:
    _message_of_peer(self, event, msgspec.structs.replace(message, peer=self._context.incarnation))


_ask = Incoming._ask


def _asked_as_another(self: Incoming, key: tuple[str, int], work: Any, call: HostCall) -> None:
    _ask(self, key, work, replace(call, machine="b") if isinstance(call, OpenTask) else call)


def _early(self: RelayContext) -> list[Effect]:
    effects: list[Effect] = [*self._at_once, *self._after]
    if self._writes:
        self._token += 1
        effects.append(Store(token=self._token, writes=tuple(self._writes)))
    self._writes, self._at_once, self._after = [], [], []
    return effects


def _any_store(rows: LinkRows, _mark: StoreMark) -> str:
    return "this machine has joined" if rows.identity is None else ""


# The log


def _unchained(_prev: bytes, rows: Iterable[LogRow]) -> bytes:
    return log.data_digest(repr(list(rows)).encode())


_cut = Shipper._cut


def _published_first(self: Shipper, event: RowsRead) -> list[LogEffect]:
    effects = _cut(self, event)
    if self._storing is None or self._batch is None:
        return effects
    early = KeepBatch(token=0, body=encode_batch(self._batch))
    return [early, *effects]


def _resumed_by_memory(self: Shipper, _last: bytes | None) -> list[LogEffect]:
    if self._engine is not None:
        return []
    self._current, self._batch, self._engine = 0, None, self.shipped
    return self._next()


# The hosts and the shell


def _looks_in_one_inbox(_self: Hosts, machine: Machine, key: Key, target: str) -> SimTask | None:
    return machine.files.store.find(key, machine.inboxes[target])


def _position_before_ends(self: World, link: SimLink) -> None:
    store = link.machine.files.store
    if link.tail >= store.last_seq:
        return
    ended = store.ended(link.tail, store.last_seq)
    link.tail = store.last_seq
    tailed = Tailed(seq=link.tail, mark=store.mark(link.tail))
    self.give(link, tailed)
    self.pending.append((link, self._tail_committed, (link, link.tail)))
    self.pending.append((link, self.give, (link, replace(tailed, ended=ended))))


MUTANTS: dict[str, Change] = {
    "no_prev": Change(Outgoing, "_prev", _no_prev),
    "bare_name_not_held": Change(Outgoing, "_follows_several", _never_held),
    "waits_for_a_refused_one": Change(Outgoing, "_follows_several", _held_by_any_namesake),
    "ids_not_compared": Change(Incoming, "_is_same", _any_id),
    "silent_below": Change(Incoming, "_judge", _silent_below),
    "void_without_claim": Change(Hosts, "claims_voids", False),
    "void_of_nobody": Change(Outgoing, "_message", _void_of_nobody),
    "closed_by_engine": Change(Outgoing, "_mail_ended", _closed_by_engine),
    "no_claim": Change(Hosts, "claims_ids", False),
    "floor_passes_open": Change(Outgoing, "_floor", _highest_open),
    "receipt_before_commit": Change(RelayContext, "flush", _early),
    "forks_ignored": Change(Outgoing, "_take_receipt", _deaf_to_forks),
    "receipts_of_anybody": Change(Outgoing, "_is_for", _receipt_of_anybody),
    "accepted_never_asked": Change(Outgoing, "_find", _never_asked),
    "refused_though_sent": Change(Outgoing, "_nobody_there", _refused_though_sent),
    "refused_though_told_as_kept": Change(_Sending, "may_be_refused_here", property(_refused_while_fresh)),
    "same_once_id": Change(Outgoing, "_once", _same_once),
    "any_incarnation": Change(Incoming, "_message", _any_incarnation),
    "opened_as_another": Change(Incoming, "_ask", _asked_as_another),
    "store_not_compared": Change(relay, "_why_new", _any_store),
    "digest_not_chained": Change(log, "chained", _unchained),
    "batch_before_mark": Change(Shipper, "_cut", _published_first),
    "log_resumed_by_memory": Change(Shipper, "_resume", _resumed_by_memory),
    "one_inbox": Change(Hosts, "find_claim", _looks_in_one_inbox),
    "position_before_ends": Change(World, "read_tail", _position_before_ends),
}
