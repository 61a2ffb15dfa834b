"""The messages that links exchange about relayed messages, and their codec (MessagePack, written and read by msgspec).

    on `relay` subjects    request: RelayedMessage, FindMessage      answer: Receipt, Found, Problem
    on `mail` subjects     RelayedMessage, Receipt

A reader ignores fields that it does not know, so a newer version may add some. It refuses a type that it does not know
with a Problem, and a kind of relayed message that it does not know with a Receipt that says `refused`. Bodies are
opaque here: the link puts its own JSON into them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
"""A count or position that fits into SQLite, also when it goes up."""
HEARD_LIMIT: Final = 2**61
HeardCounter = Annotated[int, msgspec.Meta(ge=0, lt=HEARD_LIMIT)]
"""The counter of an incarnation that another machine tells us of: ours may go beyond it, and still be a Number."""


class Incarnation(NamedTuple):
    """One unbroken history of a machine's files. Numbers of relayed messages and of its log count within it.

    A machine takes a new one when its numbers could be used twice: at its first join, after a backup was restored, or
    when its store is another one. The higher counter is the newer; equal counters with different nonces are a fork.
    """

    counter: Number
    nonce: str

    @property
    def text(self) -> str:
        """The incarnation in ids and lists, as `3.9f2c…`."""
        return f"{self.counter}.{self.nonce}"


NO_INCARNATION: Final = Incarnation(0, "")
"""Stands for a machine whose incarnation is not known."""


class MessageKind(StrEnum):
    """The kinds of relayed messages."""

    SEND = "send"
    """A message for an agent: opens a task on the receiver's machine."""
    VOID = "void"
    """Cancels the message of the same number: its task, or the opening of one."""
    ENDED = "ended"
    """The task that a relayed `send` opened has ended. Goes from the receiver's machine to the sender's."""


class Outcome(StrEnum):
    """The receiver's answer to one relayed message.

    Final ones close the message at the sender. After the others the sender sends it again, numbered anew or not.
    """

    ACCEPTED = "accepted"
    """Final. The message has a task on the receiver's machine: `task_id`, and its `end` if it has ended already."""
    REFUSED = "refused"
    """Final. The host or the link refuses it; `error` says why. No task was opened and none will be."""
    VOID = "void"
    """Final. Nobody will get the message from now on. `end` is the final state of its task, which may also have
    completed before the cancel came."""
    DONE = "done"
    """Final. The receiver of an `ended` has recorded it."""
    LOST = "lost"
    """Final. An earlier incarnation of the receiver was sent the message, or has accepted it; the present files do not
    have its task. Nobody knows whether an agent got it."""
    MOVED = "moved"
    """The message names another incarnation of the receiver than `by`, and no host knows its id. See `lost`: the sender
    decides, because it knows whether an earlier copy went out."""
    LATER = "later"
    """An earlier message to the same target is still open and has not arrived, or this one is being handled."""
    BELOW = "below"
    """The sender has said that all messages below a higher number are closed: its file is a backup."""
    FORK = "fork"
    """Another message has used the number: the sender's file is a backup, or it has a twin."""
    STALE = "stale"
    """The receiver knows an incarnation of the sender that is newer than the message's: `counter`."""


class End(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The final state of a task, and its answer."""

    state: str
    """The value of a terminal TaskState, or `uncertain`."""
    reason: str = ""
    note: str = ""
    answer: bytes = b""
    """The link's JSON of the answer: its parts, `failed`, `inferred`."""


class RelayedMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message"):
    """A message on its way from one machine's outbox to another machine."""

    incarnation: Incarnation
    """Of the sender."""
    n: Number
    """Counts the messages of this incarnation to this machine, from 1."""
    kind: str
    """A MessageKind; a newer version may have others."""
    message_id: str
    floor: Number = 1
    """The lowest number that is still open at the sender: all below are closed."""
    prev: Number = 0
    """The last earlier message to the same target that was still open when this copy was made; 0 for none."""
    peer: Incarnation = NO_INCARNATION
    """The receiver's incarnation that the first copy was meant for."""
    target: str = ""
    """The agent, as the sender names it on the receiver's machine."""
    task_id: str = ""
    """The id of the task to open, chosen by the sender. For `ended`: of the task that has ended."""
    queue: bool = False
    """The sender wants it kept for a machine or an agent that is not running."""
    body: bytes = b""
    """The link's JSON of a `send`: parts, sender, metadata. For `void` without the parts and texts. For `ended`: who
    waits for it. A machine of an earlier version sends none with these two."""
    expires_in: float | None = None
    """For `send`: in how many seconds it expires at its sender, when this copy was made: before it lay in the mail."""
    end: End | None = None
    """For `ended`: the end of the task that the message `ends` opened."""
    ends: str = ""
    """For `ended`: the message id of the `send` whose task has ended."""
    expired: bool = False
    """For `void`: the message has expired; otherwise its sender has canceled it."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="receipt"):
    """The answer to one relayed message. Only this closes it, never an acknowledgement of the engine."""

    incarnation: Incarnation
    """Of the message's sender, as in the message."""
    n: Number
    message_id: str
    outcome: Outcome
    by: Incarnation
    """Of the receiver."""
    peer: Incarnation = NO_INCARNATION
    """As in the message."""
    task_id: str = ""
    end: End | None = None
    error: bytes = b""
    """For `refused`: the link's JSON of the error (`core.errors.to_wire`)."""
    counter: HeardCounter = 0
    """For `stale`: the counter of the sender's newest incarnation that the receiver knows."""


class FindMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="find"):
    """Asks what became of a message that the receiver has accepted."""

    message_id: str


class Found(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="found"):
    """The answer to FindMessage: the task that the message opened, or none."""

    message_id: str
    by: Incarnation
    task_id: str = ""
    """Empty when no host knows the message."""
    end: End | None = None
    """None while the task is open."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="problem"):
    """The answer to a request that cannot be read or cannot be answered now."""

    code: str
    text: str = ""


UNREADABLE: Final = "unreadable"
NOT_NOW: Final = "not_now"

RelayBody = RelayedMessage | Receipt | FindMessage | Found | Problem


class UnreadableBody(Exception):
    """The bytes are no message that this version knows. The text says why."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[RelayBody]] = msgspec.msgpack.Decoder(RelayBody)


def encode_relay(body: RelayBody) -> bytes:
    """Returns the bytes of a message between links."""
    return _encoder.encode(body)


def decode_relay(body: bytes) -> RelayBody:
    """Returns the message. Raises UnreadableBody for damaged bytes and for types of a newer version."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBody(str(error)) from error
