"""The sender's half of the relay: sends the messages of the outbox until their receivers have closed them.

A message is tried at once, again after 1, 2, 4 … 30 seconds, and whenever the engine or the machine comes back. Only a
receipt closes it. Messages that were accepted are asked for now and then, in case their end was lost with a file; when
their machine has not been there for thirty days, they are uncertain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from typing import Final

import msgspec

from synapse.core.errors import LinkDown, MachineAway, QueueFull, QuotaExceeded, to_wire
from synapse.core.task import TaskState
from synapse.fleet.asks import without_text
from synapse.fleet.relay_context import RelayContext
from synapse.fleet.relay_io import (
    LONGEST_EXPIRY,
    AskHost,
    EndedTask,
    HostAnswered,
    HostTold,
    KeepMail,
    MailKept,
    OutboxLimits,
    OutboxLoad,
    OutboxRow,
    OutboxState,
    PeerAnswered,
    Recalled,
    Report,
    RequestPeer,
    Submitted,
    TellEnd,
)
from synapse.fleet.wire import (
    NO_INCARNATION,
    End,
    FindMessage,
    Found,
    Incarnation,
    MessageKind,
    Outcome,
    Receipt,
    RelayedMessage,
    UnreadableBody,
    decode_relay,
    encode_relay,
)

LONGEST_PAUSE: Final = 30.0
SHORT_PAUSE: Final = 0.25
"""The first after `later`: an earlier message to the same agent has not arrived yet."""
MAIL_PAUSE: Final = 60.0
LONGEST_MAIL_PAUSE: Final = 3600.0
"""The engine keeps a mail for days, and direct requests go on: a second copy is for an engine that lost the first."""
FIND_EVERY: Final = 600.0
REPORT_AFTER: Final = 5.0
"""A caller is not kept waiting longer for a message that must wait for an earlier one."""
GIVE_UP_AFTER: Final = 8 * 24 * 3600.0
"""An `ended` or a `void` that nobody takes: the engine holds no copy any more of what was sent before it (7 days)."""
GONE_AFTER: Final = 30 * 24 * 3600.0
"""A message that was accepted, and whose machine has given no sign of it for so long, is not asked for any more."""
GONE_AT_LEAST: Final = 3600.0
"""How long the engine must have said so in one run of the link: all machines may have been switched off till now."""
HEARD_EVERY: Final = 24 * 3600.0
"""How often it is written that the machine of an accepted message was there."""
MOST_IN_FLIGHT: Final = 64
"""Requests to one machine at once."""
ENOUGH_IN_FLIGHT: Final = 512 * 1024
"""Bytes of these requests from which on no further one starts: on a slow line all receipts would come too late."""


@dataclass(slots=True)
class _Sending:
    """An outbox row with something left to do."""

    row: OutboxRow
    fresh: bool = False
    """No copy of it has left this machine before the one that is in flight."""
    tries: int = 0
    due: float = 0.0
    busy: bool = False
    """A request or a question about it is under way."""
    mails: int = 0
    mail_due: float = 0.0
    gone_since: float | None = None
    """Since when the engine says that the machine which has accepted the message is away."""
    callers: list[int] = field(default_factory=list[int])
    """Those who have yet to be told what becomes of it."""
    report_at: float = 0.0

    @property
    def may_be_refused_here(self) -> bool:
        """Whether it ends if its machine is away: it is not to be kept, no copy can have arrived, and callers wait.

        One whose callers have been answered is kept: they were told so, and would not hear of its end.
        """
        return self.fresh and bool(self.callers) and not self.row.queue and self.row.kind == MessageKind.SEND


class Outgoing:
    """The messages from this machine to others. `Relay` gives it the events."""

    def __init__(
        self,
        context: RelayContext,
        rows: Iterable[OutboxRow],
        contradicted: Callable[[str, str, int], None],
        limits: OutboxLimits,
    ) -> None:
        """Loads the rows.

        `contradicted` takes a new incarnation if it may: it gets the machine whose receipt demands one, a sentence, and
        the highest counter heard. Without one the message is sent again later.
        """
        self._context = context
        self._contradicted = contradicted
        self._limits = limits
        self._connected = False
        self._due: list[tuple[float, str]] = []
        self._sending: dict[str, _Sending] = {}
        self._open: dict[str, dict[int, str]] = {}
        """The open messages to each machine: number to message id, in order of the numbers."""
        self._held_bytes = 0
        """Bodies of the messages in `_sending`."""
        self._in_flight = Counter[str]()
        """Requests under way to each machine."""
        self._bytes_in_flight = Counter[str]()
        for row in sorted(rows, key=lambda row: (row.to, row.n)):
            if not row.is_finished:
                self._keep(_Sending(row))

    # What the shell and the receiving half say

    def connected(self) -> None:
        """Tries everything again: the engine is back."""
        self._connected = True
        self._try_all()

    def disconnected(self) -> None:
        """Stops sending."""
        self._connected = False

    def submitted(self, event: Submitted) -> None:
        """Puts a message into the outbox and sends it."""
        context = self._context
        known = self._sending.get(event.message_id)
        if known is not None:
            if known.callers:
                known.callers.append(event.token)
            else:
                context.then(Report(token=event.token, row=known.row))
            return
        row = self._new_row(event)
        if not self._connected and not event.queue:
            refused = self._closed(row, OutboxState.REFUSED, error=_NO_CONNECTION, why="this machine is not connected")
            context.then(Report(token=event.token, row=refused))
            return
        if full := self._objection(event):
            # Nothing is written: a sender that goes on and on must not fill the disk with its refusals either.
            error = msgspec.json.encode(to_wire(full))
            refused = self._closed(row, OutboxState.REFUSED, error=error, why=str(full))
            context.then(Report(token=event.token, row=refused))
            return
        sending = _Sending(self._number(row), fresh=True, callers=[event.token])
        sending.report_at = context.now + REPORT_AFTER
        context.write(sending.row)
        self._keep(sending)
        if self._connected:
            self._try(sending)
        else:
            self._report(sending)

    def recalled(self, event: Recalled) -> None:
        """Turns an open message into a cancel of it."""
        sending = self._sending.get(event.message_id)
        if sending is not None and _is_unsettled_send(sending.row):
            self._void(sending, "canceled")
        self._context.then(Report(token=event.token, row=sending.row if sending is not None else None))

    def tailed(self, ended: Iterable[EndedTask]) -> None:
        """Sends the ends of tasks to the machines whose messages opened them."""
        now = self._context.now
        for one in ended:
            message_id = f"ended-{one.task_id}.{one.message_id}"
            if message_id in self._sending:
                continue
            row = OutboxRow(
                message_id=message_id,
                to=one.machine,
                incarnation=NO_INCARNATION,
                n=0,
                kind=MessageKind.ENDED,
                target="",
                task_id=one.task_id,
                body=one.waiter,
                queue=True,
                state=OutboxState.OPEN,
                created_at=now,
                expires_at=now + GIVE_UP_AFTER,
                changed_at=now,
                end=one.end,
                ends=one.message_id,
                told=True,
            )
            sending = _Sending(self._number(row))
            self._context.write(sending.row)
            self._keep(sending)
            if self._connected:
                self._try(sending)

    def machine_seen(self, machine: str) -> None:
        """Tries everything to a machine again: it has appeared, or has a new incarnation."""
        for sending in self._sending.values():
            if sending.row.to == machine and not sending.busy:
                self._schedule(sending, self._context.now)

    def receipt(self, machine: str, receipt: Receipt) -> None:
        """Takes a receipt that came by mail."""
        self._take_receipt(machine, receipt, first=False)

    def receiver(self, message_id: str) -> str:
        """Returns the machine that a message went to; empty if nothing is left to do for it, or it is not known."""
        sending = self._sending.get(message_id)
        return sending.row.to if sending is not None else ""

    def settle(self, message_id: str, end: End) -> None:
        """Records the end of the task that a message has opened."""
        sending = self._sending[message_id]
        if not sending.row.state.is_closed:
            self._close_by_end(sending, end)

    def renumber(self) -> None:
        """Numbers the open messages anew, under the new incarnation and their old message ids."""
        rows = [self._sending[one] for numbers in self._open.values() for one in numbers.values()]
        self._open.clear()
        for sending in rows:
            row = sending.row
            # In the history that was lost, the receiver may have named its incarnation and handled the message.
            sending.row = self._number(replace(row, peer=row.peer if row.peer != NO_INCARNATION else LOST_INCARNATION))
            sending.fresh = False
            self._context.write(sending.row)
            self._open.setdefault(sending.row.to, {})[sending.row.n] = sending.row.message_id
        self._try_all()

    def tick(self) -> None:
        """Does what is due by now."""
        while self._due and self._due[0][0] <= self._context.now:
            at, message_id = heappop(self._due)
            sending = self._sending.get(message_id)
            if sending is not None and sending.due == at:
                self._act(sending)

    def clock_set_back(self) -> None:
        """Forgets the times of the next tries: they lie too far ahead."""
        self._try_all()

    def measure(self) -> OutboxLoad:
        """Returns how full the outbox is."""
        waiting = {machine: self._waiting_for(machine) for machine in self._open}
        machine = max(waiting, key=lambda one: (waiting[one], one), default="")
        most = waiting.get(machine, 0)
        return OutboxLoad(most=most, machine=machine if most else "", held_bytes=self._held_bytes, limits=self._limits)

    def next_due(self) -> float | None:
        """Returns when `tick` is needed next."""
        while self._due:
            at, message_id = self._due[0]
            sending = self._sending.get(message_id)
            if sending is not None and sending.due == at:
                return at
            heappop(self._due)
        return None

    # What is due

    def _act(self, sending: _Sending) -> None:
        row = sending.row
        if row.state.is_closed:
            self._tell(sending)
            return
        if sending.callers and sending.report_at <= self._context.now:
            self._report(sending)
        if row.state is OutboxState.OPEN and row.expires_at <= self._context.now:
            self._expire(sending)
        elif sending.busy or not self._connected:
            self._schedule(sending, self._context.now + LONGEST_PAUSE)
        elif row.state is OutboxState.ACCEPTED:
            self._find(sending)
        else:
            self._try(sending)

    def _expire(self, sending: _Sending) -> None:
        match sending.row.kind:
            case MessageKind.SEND:
                self._void(sending, EXPIRED)
            case MessageKind.ENDED:
                self._close(sending, OutboxState.VOID, why="the machine did not take it for eight days")
            case _:
                why = "the machine did not confirm the cancel for eight days"
                self._close(sending, OutboxState.UNCERTAIN, why=why)

    def _void(self, sending: _Sending, why: str) -> None:
        now = self._context.now
        row = replace(
            sending.row, kind=MessageKind.VOID, why=why, changed_at=now, expires_at=now + GIVE_UP_AFTER, told=False
        )
        sending.row, sending.fresh, sending.tries, sending.mails, sending.mail_due = row, False, 0, 0, 0.0
        self._context.write(row)
        self._report(sending)
        if self._connected:
            self._try(sending)
        else:
            self._schedule(sending, now + LONGEST_PAUSE)

    # Sending

    def _try(self, sending: _Sending) -> None:
        """Sends a copy by a direct request, unless too many are under way."""
        row, context = sending.row, self._context
        if self._has_enough(row.to):
            self._schedule(sending, context.now + SHORT_PAUSE)
            return
        if self._follows_several(row):
            self._schedule(sending, context.now + LONGEST_PAUSE)
            return
        sending.tries += 1
        sending.row = replace(row, attempts=row.attempts + 1)
        self._request(sending, self._message(row), self._request_ended)

    def _request(
        self,
        sending: _Sending,
        body: RelayedMessage | FindMessage,
        then: Callable[[_Sending, PeerAnswered], None],
    ) -> None:
        row, context = sending.row, self._context
        sending.busy = True
        encoded = encode_relay(body)
        size = len(encoded)
        self._in_flight[row.to] += 1
        self._bytes_in_flight[row.to] += size
        token = context.token(partial(self._peer_answered, row.message_id, row.to, size, then))
        context.then(RequestPeer(token=token, machine=row.to, body=encoded))
        self._schedule(sending, context.now + LONGEST_PAUSE)

    def _has_enough(self, machine: str) -> bool:
        """Decides whether so much is under way to a machine that a further request has to wait."""
        return self._in_flight[machine] >= MOST_IN_FLIGHT or self._bytes_in_flight[machine] >= ENOUGH_IN_FLIGHT

    def _peer_answered(
        self,
        message_id: str,
        machine: str,
        size: int,
        then: Callable[[_Sending, PeerAnswered], None],
        event: PeerAnswered,
    ) -> None:
        self._in_flight[machine] -= 1
        self._bytes_in_flight[machine] -= size
        sending = self._sending.get(message_id)
        if sending is not None:
            sending.busy = False
            then(sending, event)

    def _message(self, row: OutboxRow) -> RelayedMessage:
        """Returns a copy of a row as it goes to its machine now."""
        is_void = row.kind == MessageKind.VOID
        return RelayedMessage(
            incarnation=row.incarnation,
            n=row.n,
            kind=row.kind,
            message_id=row.message_id,
            floor=self._floor(row.to),
            prev=self._prev(row) if row.target else 0,
            peer=row.peer,
            target=row.target,
            task_id=row.task_id,
            queue=row.queue,
            # A cancel may come first: the task that it leaves is of the one who sent the message.
            body=without_text(row.body) if is_void else row.body,
            expires_in=max(0.0, row.expires_at - self._context.now) if row.kind == MessageKind.SEND else None,
            end=row.end,
            ends=row.ends,
            expired=is_void and row.why == EXPIRED,
        )

    def _floor(self, machine: str) -> int:
        """Returns the lowest number that is open; only called when there is one."""
        return next(iter(self._open[machine]))

    def _prev(self, row: OutboxRow) -> int:
        """Returns the number of the last earlier message to the same agent that is still open, or 0."""
        for n in reversed(self._open[row.to]):
            if n < row.n and may_be_same_agent(self._sending[self._open[row.to][n]].row.target, row.target):
                return n
        return 0

    def _follows_several(self, row: OutboxRow) -> bool:
        """Decides whether a message must stay here: it follows messages to several agents, and can name only one.

        `_leave_open` lets it go. An earlier one to the same name waits for all before itself, so the search ends there,
        unless that one may end here and now: its receiver would never have seen that it has ended.
        """
        if not row.target or "@" in row.target:
            return False
        before: set[str] = set()
        for n in reversed(self._open[row.to]):
            sending = self._sending[self._open[row.to][n]]
            target = sending.row.target
            if n >= row.n or not may_be_same_agent(target, row.target):
                continue
            if target == row.target and not sending.may_be_refused_here:
                return False
            before.add(target)
            if len(before) > 1:
                return True
        return False

    def _request_ended(self, sending: _Sending, event: PeerAnswered) -> None:
        if event.nobody:
            self._nobody_there(sending)
            return
        receipt = _decoded(event.reply)
        if not isinstance(receipt, Receipt):
            sending.fresh = False
            self._pause(sending)
            self._report(sending)
            return
        first, sending.fresh = sending.fresh, False
        self._pause(sending, first=SHORT_PAUSE if receipt.outcome is Outcome.LATER else 1.0)
        self._take_receipt(sending.row.to, receipt, first=first)

    def _nobody_there(self, sending: _Sending) -> None:
        row = sending.row
        if row.state is not OutboxState.OPEN:
            return
        if sending.may_be_refused_here:
            self._close(sending, OutboxState.REFUSED, error=_away(row.to), why="the machine is away")
            return
        sending.fresh = False
        self._pause(sending)
        # Later messages may be kept behind the cancel of a message that was not to be kept.
        if (row.queue or row.kind == MessageKind.VOID) and sending.mail_due <= self._context.now:
            self._mail(sending)
        self._report(sending)

    def _mail(self, sending: _Sending) -> None:
        """Keeps a copy in the engine for a machine that is away. The engine's acknowledgement closes nothing."""
        row, context = sending.row, self._context
        sending.mails += 1
        pause = min(MAIL_PAUSE * 2 ** (sending.mails - 1), LONGEST_MAIL_PAUSE)
        sending.mail_due = context.now + pause
        context.then(
            KeepMail(
                token=context.token(partial(self._mail_ended, row.message_id, row.kind)),
                machine=row.to,
                body=encode_relay(self._message(row)),
                once=self._once(sending),
                # A cancel and an end hold for ever, and no engine needs to know this machine's clock.
                ttl=row.expires_at - context.now if row.kind == MessageKind.SEND else None,
            )
        )

    def _once(self, sending: _Sending) -> str:
        """Returns an id that the engine has never seen: it would swallow a second copy under the same one."""
        row = sending.row
        return f"{row.incarnation.text}.{row.to}.{row.n}.{row.kind}.{self._context.session}.{sending.mails}"

    def _mail_ended(self, message_id: str, kind: str, event: MailKept) -> None:
        sending = self._sending.get(message_id)
        if sending is not None and not event.kept and sending.row.kind == kind:
            sending.mail_due = 0.0

    # Receipts

    def _take_receipt(self, machine: str, receipt: Receipt, *, first: bool) -> None:  # noqa: C901 - one case for each
        """Applies a receipt to its open row; one that is not for the row as it stands changes nothing.

        `first`: it answers the first copy that has left this machine.
        """
        sending = self._sending.get(receipt.message_id)
        if sending is None or not self._is_for(receipt, machine, sending.row):
            return
        match receipt.outcome:
            case Outcome.ACCEPTED | Outcome.REFUSED:
                self._answered(sending, receipt)
            case Outcome.VOID:
                self._close_by_end(sending, receipt.end or End(state=TaskState.CANCELED))
            case Outcome.DONE:
                self._close(sending, OutboxState.SETTLED)
            case Outcome.LOST:
                self._close(sending, OutboxState.UNCERTAIN, why=LOST)
            case Outcome.MOVED:
                self._moved(sending, receipt, first=first)
            case Outcome.LATER:
                pass
            case Outcome.BELOW | Outcome.FORK | Outcome.STALE:
                why = f"{machine} knows later messages of this machine than its own files"
                self._contradicted(machine, why, receipt.counter)

    def _is_for(self, receipt: Receipt, machine: str, row: OutboxRow) -> bool:
        return (
            row.state is OutboxState.OPEN
            and row.to == machine
            and row.n == receipt.n
            and row.incarnation == receipt.incarnation
        )

    def _answered(self, sending: _Sending, receipt: Receipt) -> None:
        row = sending.row
        if row.kind == MessageKind.VOID:
            return  # of the copy before the cancel: the receipt of the cancel tells what became of it
        if receipt.outcome is Outcome.REFUSED:
            self._close(sending, OutboxState.REFUSED, error=receipt.error)
            return
        sending.row = replace(row, peer=receipt.by, task_id=receipt.task_id or row.task_id)
        if receipt.end is not None:
            self._close_by_end(sending, receipt.end)
            return
        self._leave_open(row)
        sending.row = replace(sending.row, state=OutboxState.ACCEPTED, changed_at=self._context.now)
        self._context.write(sending.row)
        self._report(sending)
        self._schedule(sending, self._context.now + FIND_EVERY)

    def _moved(self, sending: _Sending, receipt: Receipt, *, first: bool) -> None:
        row = sending.row
        if receipt.peer != row.peer or row.kind != MessageKind.SEND:
            return
        if not first and receipt.peer != NO_INCARNATION:
            self._close(sending, OutboxState.UNCERTAIN, why=LOST)
            return
        # No copy of it can have been handled: a receiver handles only copies that name its incarnation.
        sending.row = replace(row, peer=receipt.by)
        self._context.write(sending.row)
        if self._connected and not sending.busy:
            self._try(sending)

    # Messages that were accepted

    def _find(self, sending: _Sending) -> None:
        if self._has_enough(sending.row.to):
            self._schedule(sending, self._context.now + SHORT_PAUSE)
            return
        self._request(sending, FindMessage(message_id=sending.row.message_id), self._find_ended)

    def _find_ended(self, sending: _Sending, event: PeerAnswered) -> None:
        if sending.row.state is not OutboxState.ACCEPTED:
            return
        self._schedule(sending, self._context.now + FIND_EVERY)
        if event.nobody:
            self._close_if_gone(sending)
            return
        sending.gone_since = None
        found = _decoded(event.reply)
        if not isinstance(found, Found):
            return
        now, row = self._context.now, sending.row
        if not found.task_id:
            self._close(sending, OutboxState.UNCERTAIN, why=LOST)
        elif found.end is not None:
            self._close_by_end(sending, found.end)
        elif found.by != row.peer or now - row.changed_at >= HEARD_EVERY:
            sending.row = replace(row, peer=found.by, changed_at=now)
            self._context.write(sending.row)

    def _close_if_gone(self, sending: _Sending) -> None:
        """Closes a message whose machine does not come back: its end could be waited for without an end."""
        now = self._context.now
        if sending.gone_since is None or sending.gone_since > now:
            sending.gone_since = now
        if now - sending.gone_since >= GONE_AT_LEAST and now - sending.row.changed_at >= GONE_AFTER:
            self._close(sending, OutboxState.UNCERTAIN, why=GONE)

    # Closing

    def _close_by_end(self, sending: _Sending, end: End) -> None:
        """Closes a message whose task has ended; a cancel or an expiry that came in time leaves it void."""
        is_untouched = end.state == TaskState.CANCELED or end.reason == EXPIRED
        is_void = sending.row.kind == MessageKind.VOID and is_untouched
        self._close(sending, OutboxState.VOID if is_void else OutboxState.SETTLED, end=end)

    def _close(
        self, sending: _Sending, state: OutboxState, *, end: End | None = None, error: bytes = b"", why: str = ""
    ) -> None:
        self._leave_open(sending.row)
        sending.row = self._closed(sending.row, state, end=end, error=error, why=why)
        self._context.write(sending.row)
        self._report(sending)
        if sending.row.is_finished:
            self._forget(sending.row)
        else:
            self._tell(sending)

    def _closed(
        self, row: OutboxRow, state: OutboxState, *, end: End | None = None, error: bytes = b"", why: str = ""
    ) -> OutboxRow:
        return replace(
            row, state=state, end=end or row.end, error=error, why=why or row.why, changed_at=self._context.now
        )

    def _tell(self, sending: _Sending) -> None:
        """Tells the waiter on this machine the end of its message."""
        context = self._context
        sending.tries = 0 if not sending.row.state.is_closed else sending.tries + 1
        token = context.token(partial(self._told, sending.row.message_id))
        context.then(AskHost(token=token, call=TellEnd(row=sending.row)))
        self._schedule(sending, context.now + LONGEST_PAUSE)

    def _told(self, message_id: str, event: HostAnswered) -> None:
        sending = self._sending.get(message_id)
        if sending is None:
            return
        if not isinstance(event.outcome, HostTold):
            self._pause(sending)
            return
        self._context.write(replace(sending.row, told=True))
        self._forget(sending.row)

    def _report(self, sending: _Sending) -> None:
        """Answers the callers who wait for the message, with its row as it is now."""
        for token in sending.callers:
            self._context.then(Report(token=token, row=sending.row))
        sending.callers.clear()

    # Rows, numbers and times

    def _new_row(self, event: Submitted) -> OutboxRow:
        now = self._context.now
        return OutboxRow(
            message_id=event.message_id,
            to=event.to,
            incarnation=NO_INCARNATION,
            n=0,
            kind=MessageKind.SEND,
            target=event.target,
            task_id=event.task_id,
            body=event.body,
            queue=event.queue,
            state=OutboxState.OPEN,
            created_at=now,
            expires_at=now + min(event.expires_in, LONGEST_EXPIRY),
            changed_at=now,
            peer=self._peer_incarnation(event.to),
        )

    def _objection(self, event: Submitted) -> QueueFull | None:
        """Returns why a new message does not fit into the outbox; None if it does.

        Ends of tasks always do: they are as many as the messages that this machine has accepted.
        """
        limits = self._limits
        waiting = self._waiting_for(event.to)
        if waiting >= limits.messages:
            return QueueFull(
                f"{waiting} messages to {event.to} wait on this machine already",
                hint="`synapse fleet outbox` shows them; the setting `outbox_limit` allows more",
            )
        if limits.total_bytes and self._held_bytes + len(event.body) > limits.total_bytes:
            return QuotaExceeded(
                f"messages to other machines hold {self._held_bytes // 1024} kB on this machine, "
                f"and may hold {limits.total_bytes // 1024} kB",
                hint="`synapse fleet outbox` shows them; the setting `outbox_quota_bytes` allows more",
            )
        return None

    def _waiting_for(self, machine: str) -> int:
        """Returns how many messages and cancels a machine has yet to take."""
        waiting = self._open.get(machine, {})
        return sum(self._sending[one].row.kind != MessageKind.ENDED for one in waiting.values())

    def _peer_incarnation(self, machine: str) -> Incarnation:
        return self._context.peer(machine).incarnation

    def _number(self, row: OutboxRow) -> OutboxRow:
        """Returns the row with the next number to its machine."""
        peer = self._context.peer(row.to)
        self._context.write_peer(replace(peer, next_n=peer.next_n + 1))
        return replace(row, incarnation=self._context.incarnation, n=peer.next_n)

    def _keep(self, sending: _Sending) -> None:
        row = sending.row
        self._sending[row.message_id] = sending
        self._held_bytes += _held(row)
        if row.state is OutboxState.OPEN:
            self._open.setdefault(row.to, {})[row.n] = row.message_id
        self._schedule(sending, self._context.now)

    def _forget(self, row: OutboxRow) -> None:
        """Forgets a message for which nothing is left to do."""
        del self._sending[row.message_id]
        self._held_bytes -= _held(row)

    def _leave_open(self, row: OutboxRow) -> None:
        """Notes that a message is not open any more. The next one to each agent it may be for need not wait for it."""
        numbers = self._open.get(row.to, {})
        if numbers.get(row.n) != row.message_id:
            return
        del numbers[row.n]
        if not row.target:
            return
        released: set[str] = set()
        for n, message_id in numbers.items():
            following = self._sending[message_id]
            target = following.row.target
            if n < row.n or target in released or not may_be_same_agent(target, row.target):
                continue
            if not following.busy:
                self._schedule(following, self._context.now)
            if target == row.target if "@" in target else not following.may_be_refused_here:
                return  # all that come later wait for this one
            released.add(target)

    def _pause(self, sending: _Sending, first: float = 1.0) -> None:
        pause = min(first * 2.0 ** min(max(sending.tries - 1, 0), 20), LONGEST_PAUSE)
        self._schedule(sending, self._context.now + pause)

    def _schedule(self, sending: _Sending, at: float) -> None:
        row = sending.row
        if row.state is OutboxState.OPEN:
            at = min(at, max(row.expires_at, self._context.now))
        if sending.callers:
            at = min(at, max(sending.report_at, self._context.now))
        sending.due = at
        heappush(self._due, (at, row.message_id))

    def _try_all(self) -> None:
        self._due.clear()
        for sending in self._sending.values():
            sending.tries = 0
            self._schedule(sending, self._context.now)


EXPIRED: Final = "expired"
"""Why a message that nobody has accepted in time becomes void."""
LOST_INCARNATION: Final = Incarnation(0, "lost")
"""Stands for the receiver's incarnation in a message that a restored file holds: it is not known any more."""
GONE: Final = "the other machine has not been there for thirty days"
LOST: Final = "the other machine has lost the files that knew whether an agent got the message"


def may_be_same_agent(one: str, other: str) -> bool:
    """Decides whether two targets may name one agent.

    A target is an inbox, `codex@FOLDER`, or `codex` as long as its machine is away: then its folder is not known.
    """
    (name, folder, _), (other_name, other_folder, _) = one.partition("@"), other.partition("@")
    return one == other or (name == other_name and not (folder and other_folder))


def _is_unsettled_send(row: OutboxRow) -> bool:
    return row.state is OutboxState.OPEN and row.kind == MessageKind.SEND


_NO_CONNECTION: Final = msgspec.json.encode(to_wire(LinkDown("this machine has no connection to the fleet")))


def _away(machine: str) -> bytes:
    return msgspec.json.encode(to_wire(MachineAway(machine)))


def _decoded(reply: bytes | None) -> object:
    """Returns the answer of another machine; None if there is none that this version can read."""
    if reply is None:
        return None
    try:
        return decode_relay(reply)
    except UnreadableBody:
        return None


def _held(row: OutboxRow) -> int:
    """Returns how much a row counts for the limit in bytes; the ends of other machines' tasks do not."""
    return 0 if row.kind == MessageKind.ENDED else len(row.body)
