"""What goes into the relay and comes out of it: its stored rows, events and effects. `relay.Relay` is the machine.

The shell (`synapse.link`) calls `relay.step(now, event)` for everything that happens, one call at a time, and carries
out the effects that it returns, in any order and at once. `now` is the wall clock in seconds.

**Start.** Read the tables into `LinkRows`, look at the store (`StoreMark`), and call `Relay.load`. It returns the relay
and its first effects. No event may be given before those of them that are Stores are committed (give their `Stored`).
When the engine is reachable: give `PeerSeen` for all machines, also this one, let the shipper read it (`EngineRead` of
`fleet.log`), give `Connected`, then subscribe. A relay that knows this since it was loaded need not wait for it again.

**Stores.** Commit the writes of one Store in one transaction, durably (`synchronous=FULL`), in the order in which the
Stores were returned; several may share a transaction. Then give `Stored(token)`. The relay holds back everything that
must not happen before the commit, and returns it from that call. If a commit fails, throw the relay away, treat every
token as lost, and load again, as after a crash.

**Tokens.** A token that the relay makes (Store, RequestPeer, KeepMail, AskHost) is answered by exactly one event with
the same token, whatever happens: silence is `PeerAnswered(reply=None)`, an error of the engine is
`MailKept(kept=False)`, a host that cannot be reached or whose outcome is unknown is `HostAnswered(HostUnknown())`. A
token that the shell makes (Arrived, Submitted, Recalled) is answered by at most one Answer, Acknowledge, Postpone or
Report. After a restart all tokens of before are void.

**Tables.** `outbox` by `message_id`; `handled` by `(machine, incarnation, n)`; `peers` by `machine`; `identity` and
`tail` have one row. Writes are upserts of whole rows, except ForgetHandled. The shell may delete outbox rows that are
closed and told (`OutboxRow.is_finished`) after a while in which people want to see them; `LinkRows` need not hold them.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Final

from synapse.core.types import frozen
from synapse.fleet.wire import NO_INCARNATION, End, Incarnation

DEFAULT_EXPIRY: Final = 24 * 3600.0
"""Seconds after which a message that nobody has accepted becomes void, unless its sender says otherwise."""
LONGEST_EXPIRY: Final = 7 * 24 * 3600.0
"""Hosts keep the ids of messages from other machines for fifteen days (`RELAYED_DAYS`); no copy of a message may live
longer. An engine that does not know `KeepMail.ttl` has one for seven days after the last attempt."""


@frozen
class OutboxLimits:
    """How much the outbox holds at most. A message that would exceed it is refused before anything is promised."""

    messages: int = 1000
    """Messages to one machine that it has not accepted yet, cancels that it has yet to confirm included."""
    total_bytes: int = 256 * 1024 * 1024
    """Bodies of all messages whose tasks have not ended; 0 means no limit."""


DEFAULT_LIMITS: Final = OutboxLimits()


@frozen
class OutboxLoad:
    """How full the outbox is."""

    most: int = 0
    """Messages that wait for the machine with the most of them."""
    machine: str = ""
    """That machine; empty if no message waits."""
    held_bytes: int = 0
    """Bodies of all messages whose tasks have not ended."""
    limits: OutboxLimits = DEFAULT_LIMITS


class OutboxState(StrEnum):
    """Where a message of this machine's outbox is.

    OPEN ─→ ACCEPTED ─→ SETTLED
      ├──→ REFUSED, VOID, SETTLED
      └──→ UNCERTAIN ←── ACCEPTED
    """

    OPEN = "open"
    """No receipt yet: the link sends it again and again. With the kind `void`, the cancel is on its way."""
    ACCEPTED = "accepted"
    """The other machine has opened its task."""
    SETTLED = "settled"
    """Its task has ended: `end`. An `ended` message is settled when its receiver has recorded it."""
    REFUSED = "refused"
    """The other machine refused it, or was away and the message was not to be kept: `error`, `why`."""
    VOID = "void"
    """Canceled or expired; the other machine confirms that no agent will get it."""
    UNCERTAIN = "uncertain"
    """The other machine has lost the files that knew, or has not been there for long. A person decides whether to send
    it again."""

    @property
    def is_closed(self) -> bool:
        return self not in _NOT_CLOSED


_NOT_CLOSED: Final = frozenset({OutboxState.OPEN, OutboxState.ACCEPTED})


@frozen
class OutboxRow:
    """One message of this machine to another, from its submission until long after its end."""

    message_id: str
    """Of the caller; for the kind `ended` the link's own. Unique in the outbox."""
    to: str
    """The machine."""
    incarnation: Incarnation
    """Ours, under which `n` counts. A new incarnation numbers the open rows anew."""
    n: int
    kind: str
    """A MessageKind. A recalled or expired `send` becomes `void`."""
    target: str
    task_id: str
    """Of the task on the other machine, chosen here when the message is submitted."""
    body: bytes
    queue: bool
    state: OutboxState
    created_at: float
    expires_at: float
    changed_at: float
    """For ACCEPTED also when the other machine was last asked for it and answered, to the day."""
    peer: Incarnation = NO_INCARNATION
    """The incarnation of the other machine that the first copy was meant for, and that has accepted it."""
    why: str = ""
    """A sentence for people about the state; empty when the state says all."""
    error: bytes = b""
    """For REFUSED: the JSON of the error."""
    end: End | None = None
    """For SETTLED and VOID: how the task ended. For the kind `ended`: what is sent."""
    ends: str = ""
    """For the kind `ended`: the message id of the `send` whose task has ended."""
    told: bool = False
    """The waiter on this machine has been told the end (`TellEnd`). Always True for the kind `ended`."""
    attempts: int = 0
    """How often it was sent. Kept for people: written only when something else changes."""

    @property
    def is_finished(self) -> bool:
        """Nothing is left to do for it: the row may be deleted."""
        return self.state.is_closed and self.told


@frozen
class HandledRow:
    """A message of another machine that this one has handled, and the receipt to give for each further copy."""

    machine: str
    incarnation: Incarnation
    n: int
    message_id: str
    kind: str
    receipt: bytes
    """An encoded Receipt."""


@frozen
class PeerRow:
    """What this machine knows about another one."""

    machine: str
    incarnation: Incarnation = NO_INCARNATION
    """Its newest incarnation that we have heard of."""
    floor: int = 1
    """All its messages below this number are closed there. Counts within its incarnation."""
    next_n: int = 1
    """The number of our next message to it. Counts within our incarnation."""


@frozen
class Identity:
    """This machine's own incarnation, and the store that it belongs to."""

    incarnation: Incarnation
    store_id: str
    heard: int = 0
    """The highest counter of an incarnation of ours that anybody has told us of."""


@frozen
class TailRow:
    """How far the link has read the store's log for ends of tasks; written with the `ended` messages made of it."""

    seq: int = 0
    mark: str = ""
    """A digest of the log's row at `seq`, by which a restored store is recognised; see StoreMark."""


@frozen
class ForgetHandled:
    """Delete the rows of `handled` of this machine that are of another incarnation, or whose number is below `n`."""

    machine: str
    incarnation: Incarnation
    n: int


Write = OutboxRow | HandledRow | PeerRow | Identity | TailRow | ForgetHandled


@frozen
class LinkRows:
    """The rows of link.db, for `Relay.load`."""

    identity: Identity | None = None
    """None at the first start."""
    tail: TailRow = field(default_factory=TailRow)
    outbox: tuple[OutboxRow, ...] = ()
    """At least all rows that are not finished."""
    handled: tuple[HandledRow, ...] = ()
    peers: tuple[PeerRow, ...] = ()


@frozen
class StoreMark:
    """The machine's store as the link finds it at its start; tells whether it is still the one that link.db knows."""

    store_id: str
    last_seq: int
    """The highest seq that was ever used (SQLite's sequence), also if its row was pruned."""
    mark: str
    """The digest of the row at `TailRow.seq`, made like TailRow.mark; empty if there is no such row (pruned)."""


# Events


@frozen
class Connected:
    """The engine is reachable. Everything open is sent again.

    Give PeerSeen for the incarnations in SYN_INCARNATION, also our own, and the shipper's EngineRead before this, and
    subscribe to relay and mail after it: a machine that was restored must not handle a message before it has noticed.
    """


@frozen
class Disconnected:
    """The engine is not reachable any more."""


class Way(StrEnum):
    """How a message of another machine came."""

    RELAY = "relay"
    """A request, which waits for an Answer."""
    MAIL = "mail"
    """From the stream; it comes again until it is acknowledged."""


@frozen
class Arrived:
    """Another machine has sent something. The subject proves `machine`."""

    token: int
    way: Way
    machine: str
    body: bytes


@frozen
class PeerAnswered:
    """A RequestPeer has ended."""

    token: int
    reply: bytes | None = None
    """None if no reply came."""
    nobody: bool = False
    """The engine says that the machine does not listen, so the request was surely not handled (NobodyThere)."""


@frozen
class MailKept:
    """A KeepMail has ended. `kept` is False when the engine refused it or nobody knows."""

    token: int
    kept: bool


@frozen
class HostAccepted:
    """The message has a task: opened now, or known by its id. `end` if that task has ended already."""

    task_id: str
    end: End | None = None


@frozen
class HostRefused:
    """The host refuses the message, or there is no such agent. No task was opened."""

    error: bytes
    """The JSON of the error."""


@frozen
class HostVoided:
    """The message id is claimed, and its task has ended: `end`."""

    task_id: str
    end: End
    known: bool
    """A message has opened the task. If False, this cancel or an earlier one has claimed the id."""


@frozen
class HostAbsent:
    """No host knows the message id. All inboxes were looked at."""


@frozen
class HostTold:
    """The waiter has the end durably, or nobody waits."""


@frozen
class HostUnknown:
    """Nobody knows whether the host did it, or it cannot be reached now. It will be asked again."""


HostOutcome = HostAccepted | HostRefused | HostVoided | HostAbsent | HostTold | HostUnknown


@frozen
class HostAnswered:
    """An AskHost has ended."""

    token: int
    outcome: HostOutcome


@frozen
class Stored:
    """A Store is committed."""

    token: int


@frozen
class Submitted:
    """A caller on this machine sends a message to an agent on another one.

    One Report answers it: when the receiver has accepted or refused it, when the machine is away, or when it has not
    answered; in the last case the row is still open, and the link goes on. With `queue`, a machine that is away gets
    mail, and the row is open as well. Once a caller was told that it is open, only its receiver refuses it.

    An id that the outbox holds already is not sent twice. It is reported as it stands, or together with the first
    caller's while that one waits; the shell looks in its table first for ids of finished rows, which the relay does not
    remember.
    """

    token: int
    to: str
    message_id: str
    target: str
    task_id: str
    body: bytes
    queue: bool = False
    expires_in: float = DEFAULT_EXPIRY
    """In seconds; at most LONGEST_EXPIRY."""


@frozen
class Recalled:
    """A caller cancels a message. One Report answers it, with the row after it.

    An open one becomes `void`, which the other machine must confirm. One that is accepted stays as it is: its task is
    canceled over there, by a request of the link.
    """

    token: int
    message_id: str


@frozen
class PeerSeen:
    """A machine has shown its incarnation (presence, SYN_INCARNATION), also this machine itself.

    Give it when a machine appears, and when its incarnation changes; not for every sign of life.
    """

    machine: str
    incarnation: Incarnation


@frozen
class Outdated:
    """Somebody knows more of this machine's log than its own files do: they are a backup. It takes a new incarnation.

    It does so at once the first time, and later on not more often than every few minutes.
    """

    why: str
    """A sentence for people."""
    counter: int
    """The highest counter of our incarnations that was heard of: at least that of the one which is outdated."""


@frozen
class EndedTask:
    """A task in this machine's log that a message of another machine has opened or continued, and that has ended now.

    A task with several messages is named once for each of them.
    """

    machine: str
    """The machine in its scope, `machine:NAME`."""
    message_id: str
    task_id: str
    end: End
    waiter: bytes = b""
    """The link's JSON of who waits for the end, for a sender whose outbox has lost the message."""


@frozen
class Tailed:
    """The link has read the log up to `seq`: these tasks have ended since the last Tailed.

    Each is a commit, so give one for many rows. After a restart it may repeat ends that were sent before.
    """

    seq: int
    mark: str
    ended: tuple[EndedTask, ...] = ()


@frozen
class Tick:
    """It is the time that WakeAt named, or later."""


Event = (
    Connected
    | Disconnected
    | Arrived
    | PeerAnswered
    | MailKept
    | HostAnswered
    | Stored
    | Submitted
    | Recalled
    | PeerSeen
    | Outdated
    | Tailed
    | Tick
)


# Effects


@frozen
class Store:
    """Commit the writes, then give Stored."""

    token: int
    writes: tuple[Write, ...]


@frozen
class RequestPeer:
    """Send a request on the machine's relay subject, then give PeerAnswered."""

    token: int
    machine: str
    body: bytes


@frozen
class KeepMail:
    """Keep a message in the machine's mail, under the id `once`, then give MailKept."""

    token: int
    machine: str
    body: bytes
    once: str
    ttl: float | None = None
    """After how many seconds the mail goes away; None: when the engine's own time is over."""


@frozen
class Acknowledge:
    """Remove the mail from the stream."""

    token: int


@frozen
class Postpone:
    """Let the mail come again after a while."""

    token: int
    seconds: float


@frozen
class Answer:
    """Answer the request of another machine."""

    token: int
    body: bytes


@frozen
class Report:
    """Answer the caller on this machine with the outbox row as it is now; None if the outbox does not have it."""

    token: int
    row: OutboxRow | None


@frozen
class OpenTask:
    """Deliver a message of another machine, or find out that it was delivered.

    First look the message id up in all inboxes, under the scope `machine:NAME`: the name may mean another agent by now.
    Only if no inbox has it, resolve `target` and let its host claim the id in the transaction that opens the task.
    Outcomes: HostAccepted, HostRefused, HostUnknown.
    """

    machine: str
    message_id: str
    target: str
    task_id: str
    queue: bool
    body: bytes
    expires_in: float | None = None
    """In how many seconds the message expires at its sender; None from a machine of an earlier version."""


@frozen
class VoidTask:
    """Cancel the task that has claimed the message id, or claim the id with a canceled task.

    Outcomes: HostVoided, HostUnknown.
    """

    machine: str
    message_id: str
    target: str
    task_id: str
    expired: bool = False
    """The message has expired; otherwise its sender has canceled it."""
    body: bytes = b""
    """That of the message without its text, for the task that claims the id; empty from an earlier version."""


@frozen
class FindTask:
    """Look the message id up in all inboxes. Outcomes: HostAccepted, HostAbsent, HostUnknown."""

    machine: str
    message_id: str


@frozen
class TellEnd:
    """Tell the waiter on this machine that the message is closed. Repeats are harmless.

    Only a waiter for an agent of the machine `row.to` is told: if `row.body` is empty, that machine is all we know.

    `row.state` says how: `settled` and `void` with `row.end`, `refused` with `row.error`, `uncertain`. If link.db was
    restored to a time before the message, `row.target` is empty, and `row.body` says who waits, if the machine knows.
    Outcomes: HostTold, HostUnknown.
    """

    row: OutboxRow


HostCall = OpenTask | VoidTask | FindTask | TellEnd


@frozen
class AskHost:
    """Ask a host of this machine, then give HostAnswered."""

    token: int
    call: HostCall


@frozen
class Announce:
    """This machine has a new incarnation: put it into SYN_INCARNATION and presence, and start the shipped log anew."""

    incarnation: Incarnation
    why: str
    """A sentence for the log and for `fleet status`."""


@frozen
class Notify:
    """Something happened that an operator should be able to see. `text` is a sentence."""

    text: str
    machine: str = ""


@frozen
class WakeAt:
    """Give Tick at this time. The newest WakeAt counts alone."""

    at: float


Effect = (
    Store | RequestPeer | KeepMail | Acknowledge | Postpone | Answer | Report | AskHost | Announce | Notify | WakeAt
)
