"""The receiver's half of the relay: handles each message of another machine once, and gives its receipt every time.

    n below the floor ─→ below          known number, other id ─→ fork          handled ─→ the same receipt again
    earlier message to the same target open and not here ─→ later               else ─→ the host, then the commit,
                                                                                then the receipt, then the engine's ack

A crash before the commit repeats the question to the host, which is harmless: the host has claimed the message id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from synapse.core.errors import Forbidden, SynapseError, UnsupportedOperation, to_wire
from synapse.core.task import TaskState
from synapse.fleet.outgoing import Outgoing
from synapse.fleet.relay_context import RelayContext, forget_below
from synapse.fleet.relay_io import (
    Acknowledge,
    Answer,
    Arrived,
    AskHost,
    FindTask,
    HandledRow,
    HostAbsent,
    HostAccepted,
    HostAnswered,
    HostCall,
    HostOutcome,
    HostRefused,
    HostTold,
    HostVoided,
    KeepMail,
    MailKept,
    Notify,
    OpenTask,
    OutboxRow,
    OutboxState,
    Postpone,
    TellEnd,
    VoidTask,
    Way,
)
from synapse.fleet.wire import (
    NO_INCARNATION,
    NOT_NOW,
    UNREADABLE,
    End,
    FindMessage,
    Found,
    MessageKind,
    Outcome,
    Problem,
    Receipt,
    RelayedMessage,
    UnreadableBody,
    decode_relay,
    encode_relay,
)

MAIL_LATER: Final = 2.0
"""Seconds until a mail comes again that could not be handled yet."""
MOST_IN_WORK: Final = 64 * 1024 * 1024
LEAST_WEIGHT: Final = 128 * 1024
"""A machine has so many bytes in work here at most, and each of its messages counts as LEAST_WEIGHT or more: 512 small
ones. What comes above that comes again, after a longer pause each time: its sender repeats a request, the engine a
mail that was postponed."""


@dataclass(slots=True)
class _Work:
    """A message that a host is asked about, and the arrivals that wait for its receipt."""

    message: RelayedMessage
    arrivals: list[Arrived]
    held: list[tuple[Arrived, RelayedMessage]] = field(default_factory=list[tuple[Arrived, RelayedMessage]])
    """Messages to the same target that follow this one."""


class Incoming:
    """The messages from other machines to this one. `Relay` gives it the events."""

    def __init__(
        self,
        context: RelayContext,
        outgoing: Outgoing,
        handled: tuple[HandledRow, ...],
        see: Callable[[str, RelayedMessage], None],
    ) -> None:
        """Loads the rows. `see` is told when a message shows a newer incarnation of its machine."""
        self._context = context
        self._outgoing = outgoing
        self._see = see
        self._handled: dict[str, dict[int, HandledRow]] = {}
        self._works: dict[tuple[str, int], _Work] = {}
        self._weights = Counter[str]()
        """How much of each machine is in work."""
        self._mails = 0
        for row in handled:
            if row.incarnation == context.peer(row.machine).incarnation:
                self._handled.setdefault(row.machine, {})[row.n] = row

    def arrived(self, event: Arrived) -> None:
        """Takes whatever another machine has sent."""
        try:
            body = decode_relay(event.body)
        except UnreadableBody as error:
            self._unreadable(event, str(error))
            return
        match body:
            case RelayedMessage():
                self._message(event, body)
            case Receipt() if event.way is Way.MAIL:
                self._outgoing.receipt(event.machine, body)
                self._context.then(Acknowledge(token=event.token))
            case FindMessage() if event.way is Way.RELAY:
                self._find(event, body)
            case _:
                self._unreadable(event, "this type of message is not expected here")

    def forget(self, machine: str) -> None:
        """Forgets what was handled of a machine that has a new incarnation: its numbers start again."""
        self._handled.pop(machine, None)

    def _unreadable(self, event: Arrived, why: str) -> None:
        self._context.then(Notify(text=f"a message of {event.machine} cannot be read: {why}", machine=event.machine))
        if event.way is Way.MAIL:
            self._context.then(Acknowledge(token=event.token))
        else:
            self._context.then(Answer(token=event.token, body=encode_relay(Problem(code=UNREADABLE, text=why))))

    # One message

    def _message(self, event: Arrived, message: RelayedMessage) -> None:
        """Answers a message at once where that is possible; otherwise works on it."""
        known = self._context.peer(event.machine).incarnation
        if message.incarnation != known:
            if message.incarnation.counter <= known.counter:
                self._answer(event, self._receipt(message, Outcome.STALE, counter=known.counter))
                return
            self._see(event.machine, message)
        outcome = self._judge(event.machine, message)
        if isinstance(outcome, Receipt):
            self._answer(event, outcome)
        else:
            self._work(event, message)

    def _judge(self, machine: str, message: RelayedMessage) -> Receipt | None:
        """Returns the receipt of a message that needs no work, or that must not be worked on."""
        if message.n < self._context.peer(machine).floor:
            return self._receipt(message, Outcome.BELOW)
        handled = self._handled.get(machine, {}).get(message.n)
        if handled is None:
            return None
        if not self._is_same(handled, message):
            return self._receipt(message, Outcome.FORK)
        if handled.kind == MessageKind.SEND and message.kind == MessageKind.VOID:
            return None
        receipt = decode_relay(handled.receipt)
        if not isinstance(receipt, Receipt) or (
            receipt.by != self._context.incarnation and receipt.outcome in _IN_STORE and handled.kind == message.kind
        ):
            return None
        # `by` may have changed since, and `peer` is what this copy says.
        return msgspec.structs.replace(receipt, by=self._context.incarnation, peer=message.peer)

    def _is_same(self, handled: HandledRow, message: RelayedMessage) -> bool:
        """Decides whether two messages with one number are the same."""
        return handled.message_id == message.message_id

    def _work(self, event: Arrived, message: RelayedMessage) -> None:
        key = (event.machine, message.n)
        if self._has_enough(event.machine):
            self._answer(event, self._receipt(message, Outcome.LATER))
            return
        busy = self._works.get(key)
        if busy is not None:
            if busy.message.message_id == message.message_id and busy.message.kind == message.kind:
                self._weights[event.machine] += _weight(event)
                busy.arrivals.append(event)
            else:
                self._answer(event, self._receipt(message, Outcome.LATER))
            return
        if self._must_wait(event.machine, message):
            before = self._works.get((event.machine, message.prev))
            if before is not None:
                self._weights[event.machine] += _weight(event)
                before.held.append((event, message))
            else:
                self._answer(event, self._receipt(message, Outcome.LATER))
            return
        self._weights[event.machine] += _weight(event)
        self._begin(key, _Work(message, [event]))

    def _has_enough(self, machine: str) -> bool:
        """Decides whether a machine has so much in work here that no more is taken now."""
        return self._weights[machine] >= MOST_IN_WORK

    def _must_wait(self, machine: str, message: RelayedMessage) -> bool:
        """Decides whether an earlier message to the same target is still to come.

        A message that is only looked up, because it was meant for an earlier incarnation of ours, need not wait: its
        sender may have closed the earlier one.
        """
        if message.kind == MessageKind.SEND and message.peer != self._context.incarnation:
            return False
        floor = max(self._context.peer(machine).floor, message.floor)
        return message.prev >= floor and message.prev not in self._handled.get(machine, {})

    def _begin(self, key: tuple[str, int], work: _Work) -> None:
        machine, message = key[0], work.message
        match message.kind:
            case MessageKind.SEND if message.peer == self._context.incarnation and not self._is_known(key):
                call: HostCall = OpenTask(
                    machine=machine,
                    message_id=message.message_id,
                    target=message.target,
                    task_id=message.task_id,
                    queue=message.queue,
                    body=message.body,
                    expires_in=message.expires_in,
                )
            case MessageKind.SEND:
                call = FindTask(machine=machine, message_id=message.message_id)
            case MessageKind.VOID:
                call = VoidTask(
                    machine=machine,
                    message_id=message.message_id,
                    target=message.target,
                    task_id=message.task_id,
                    expired=message.expired,
                    body=message.body,
                )
            case MessageKind.ENDED if message.end is not None:
                self._end(key, work, message.end)
                return
            case _:
                self._works[key] = work
                kind = UnsupportedOperation(f"this machine's Synapse does not know messages of the kind {message.kind}")
                self._finish(key, work, self._receipt(message, Outcome.REFUSED, error=_error(kind)))
                return
        self._ask(key, work, call)

    def _ask(self, key: tuple[str, int], work: _Work, call: HostCall) -> None:
        self._works[key] = work
        ask = AskHost(token=self._context.token(partial(self._host_answered, key)), call=call)
        if work.message.prev:
            # That one may be refused a moment ago. If this is not durable, a copy of it could be opened after this one.
            self._context.then(ask)
        else:
            self._context.at_once(ask)

    def _host_answered(self, key: tuple[str, int], event: HostAnswered) -> None:
        work = self._works[key]
        receipt = self._outcome(key, work.message, event.outcome)
        if receipt is not None and receipt.incarnation != self._context.peer(key[0]).incarnation:
            counter = self._context.peer(key[0]).incarnation.counter
            receipt = self._receipt(work.message, Outcome.STALE, counter=counter)
            self._drop(key, work, receipt)
        elif receipt is None or receipt.outcome is Outcome.MOVED:
            self._drop(key, work, receipt or self._receipt(work.message, Outcome.LATER))
        else:
            self._finish(key, work, receipt)

    def _outcome(self, key: tuple[str, int], message: RelayedMessage, outcome: HostOutcome) -> Receipt | None:
        """Returns the receipt that the host's answer leads to; None if the host must be asked again."""
        match outcome:
            case HostAccepted(task_id=task_id, end=end):
                return self._receipt(message, Outcome.ACCEPTED, task_id=task_id, end=end)
            case HostRefused(error=error):
                return self._receipt(message, Outcome.REFUSED, error=error)
            case HostVoided():
                return self._voided(key, message, outcome)
            case HostAbsent():
                return self._receipt(message, Outcome.LOST if self._is_known(key) else Outcome.MOVED)
            case HostTold():
                return self._receipt(message, Outcome.DONE)
            case _:
                return None

    def _voided(self, key: tuple[str, int], message: RelayedMessage, voided: HostVoided) -> Receipt:
        """A cancel that finds nothing is sure only if nothing can have been lost."""
        is_sure = message.peer in (NO_INCARNATION, self._context.incarnation) and not self._had_task(key)
        if voided.known or is_sure:
            return self._receipt(message, Outcome.VOID, task_id=voided.task_id, end=voided.end)
        return self._receipt(message, Outcome.LOST)

    def _is_known(self, key: tuple[str, int]) -> bool:
        """Decides whether the message was handled before, and is worked on again because our store was restored."""
        return key[1] in self._handled.get(key[0], {})

    def _had_task(self, key: tuple[str, int]) -> bool:
        """Decides whether the message once had, or may have had, a task that was not canceled."""
        handled = self._handled.get(key[0], {}).get(key[1])
        receipt = decode_relay(handled.receipt) if handled is not None else None
        if not isinstance(receipt, Receipt) or receipt.outcome not in (Outcome.ACCEPTED, Outcome.VOID, Outcome.LOST):
            return False
        return receipt.end is None or receipt.end.state != TaskState.CANCELED

    def _end(self, key: tuple[str, int], work: _Work, end: End) -> None:
        """Records the end of a message of ours. If the outbox does not have it any more, the waiter is told first."""
        message = work.message
        self._works[key] = work
        receiver = self._outgoing.receiver(message.ends)
        if receiver == key[0]:
            self._outgoing.settle(message.ends, end)
            self._finish(key, work, self._receipt(message, Outcome.DONE))
            return
        if receiver:
            error = _error(Forbidden("the message was sent to another machine"))
            self._finish(key, work, self._receipt(message, Outcome.REFUSED, error=error))
            return
        now = self._context.now
        row = OutboxRow(
            message_id=message.ends,
            to=key[0],
            incarnation=NO_INCARNATION,
            n=0,
            kind=MessageKind.SEND,
            target="",
            task_id=message.task_id,
            body=message.body,
            queue=False,
            state=OutboxState.SETTLED,
            created_at=now,
            expires_at=now,
            changed_at=now,
            end=end,
        )
        self._ask(key, work, TellEnd(row=row))

    # Receipts

    def _finish(self, key: tuple[str, int], work: _Work, receipt: Receipt) -> None:
        """Commits that the message is handled, and up to where the sender is done; then gives the receipt."""
        context, message = self._context, work.message
        machine = key[0]
        row = HandledRow(
            machine=machine,
            incarnation=message.incarnation,
            n=message.n,
            message_id=message.message_id,
            kind=message.kind,
            receipt=encode_relay(receipt),
        )
        handled = self._handled.setdefault(machine, {})
        handled[message.n] = row
        context.write(row)
        self._raise_floor(machine, message.floor)
        self._drop(key, work, receipt)

    def _raise_floor(self, machine: str, floor: int) -> None:
        peer = self._context.peer(machine)
        if floor <= peer.floor:
            return
        peer = replace(peer, floor=floor)
        self._context.write_peer(peer)
        self._context.write(forget_below(peer))
        handled = self._handled.get(machine, {})
        for n in [n for n in handled if n < floor]:
            del handled[n]

    def _drop(self, key: tuple[str, int], work: _Work, receipt: Receipt) -> None:
        """Answers all copies that wait, then takes those that waited for this message."""
        del self._works[key]
        for event in (*work.arrivals, *(event for event, _ in work.held)):
            self._weights[key[0]] -= _weight(event)
        for event in work.arrivals:
            self._answer(event, receipt)
        for event, message in work.held:
            self._message(event, message)

    def _answer(self, event: Arrived, receipt: Receipt) -> None:
        """Answers a request with its receipt; a mail is acknowledged once the engine has its receipt."""
        context = self._context
        if event.way is Way.RELAY:
            context.then(Answer(token=event.token, body=encode_relay(receipt)))
        elif receipt.outcome is Outcome.LATER:
            context.then(Postpone(token=event.token, seconds=MAIL_LATER))
        else:
            self._mails += 1
            context.then(
                KeepMail(
                    token=context.token(partial(self._receipt_kept, event.token)),
                    machine=event.machine,
                    body=encode_relay(receipt),
                    once=f"receipt.{receipt.incarnation.text}.{context.machine}.{context.session}.{self._mails}",
                )
            )

    def _receipt_kept(self, token: int, event: MailKept) -> None:
        self._context.then(Acknowledge(token=token) if event.kept else Postpone(token=token, seconds=MAIL_LATER))

    def _receipt(
        self,
        message: RelayedMessage,
        outcome: Outcome,
        *,
        task_id: str = "",
        end: End | None = None,
        error: bytes = b"",
        counter: int = 0,
    ) -> Receipt:
        return Receipt(
            incarnation=message.incarnation,
            n=message.n,
            message_id=message.message_id,
            outcome=outcome,
            by=self._context.incarnation,
            peer=message.peer,
            task_id=task_id,
            end=end,
            error=error,
            counter=counter,
        )

    # Questions

    def _find(self, event: Arrived, question: FindMessage) -> None:
        if self._has_enough(event.machine):
            self._context.then(Answer(token=event.token, body=encode_relay(Problem(code=NOT_NOW))))
            return
        self._weights[event.machine] += _weight(event)
        call = FindTask(machine=event.machine, message_id=question.message_id)
        token = self._context.token(partial(self._found, event, question.message_id))
        self._context.at_once(AskHost(token=token, call=call))

    def _found(self, asked: Arrived, message_id: str, event: HostAnswered) -> None:
        self._weights[asked.machine] -= _weight(asked)
        by = self._context.incarnation
        match event.outcome:
            case HostAccepted(task_id=task_id, end=end):
                body: Found | Problem = Found(message_id=message_id, by=by, task_id=task_id, end=end)
            case HostAbsent():
                body = Found(message_id=message_id, by=by)
            case _:
                body = Problem(code=NOT_NOW)
        self._context.then(Answer(token=asked.token, body=encode_relay(body)))


def _weight(event: Arrived) -> int:
    return max(len(event.body), LEAST_WEIGHT)


_IN_STORE: Final = (Outcome.ACCEPTED, Outcome.VOID, Outcome.DONE)
"""What a store knows. It may have been restored since an earlier incarnation said so: hosts are asked again."""


def _error(error: SynapseError) -> bytes:
    return msgspec.json.encode(to_wire(error))
