"""The port to the messaging engine between machines. `link.nats_bus` implements it; so does the simulator's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

KEY_REFUSED: Final = "refuses the key of this machine"
"""In the text of a NotConnected: to try again does not help."""
NO_CONNECTION: Final = "there is no connection to the fleet's server: "
"""Before the reason, in the text of a NotConnected."""
CUT_OFF: Final = "this machine has no connection to the fleet: "
"""Before the reason, in the sentence that callers on this machine are told."""


class BusError(Exception):
    """The engine did not do what was asked, or nobody knows whether it did. The text is for people."""


class NotConnected(BusError):
    """There is no connection to the engine: nothing was sent."""


class NobodyThere(BusError):
    """No machine listens on the subject: the request was not handled."""


class NoReply(BusError):
    """The request may have been handled; no reply came in time, or the connection was lost."""


class NotAllowed(BusError):
    """The engine refuses this machine the subject."""


class TooLarge(BusError):
    """The message is larger than the engine takes."""


class MailboxFull(BusError):
    """The engine keeps as many messages on this subject as it may, or has no space left. This one was not kept."""


class NotLast(BusError):
    """The subject's last message is another than expected: somebody else writes it too. This one was not kept."""


class NoStream(BusError):
    """The engine has no stream for the subject: nothing was kept."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message from another machine. `subject` proves its sender: see `names.sender_machine`."""

    subject: str
    body: bytes
    reply_to: str = ""
    """Where the sender expects an answer; empty when it expects none."""
    mail: int = 0
    """For mail: the number by which `Bus.acknowledge` names it; 0 otherwise."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Bus(Protocol):
    """Carries messages between machines. It reconnects by itself; `connected` tells.

    Every method raises BusError or one of its kinds; the iterators raise only NotAllowed, and go on over everything
    else. A message comes only from the machine that its subject names: the implementation drops all others.
    """

    @property
    def connected(self) -> bool: ...

    @property
    def problem(self) -> str:
        """Why there is no connection, in words for people; empty while there is one."""
        ...

    def changes(self) -> AsyncGenerator[bool, None]:
        """Yields whether there is a connection, now and after each change."""
        ...

    @property
    def max_payload(self) -> int:
        """The size of the largest message in bytes."""
        ...

    async def request(self, subject: str, body: bytes, seconds: float) -> bytes:
        """Sends a request and returns its answer. Raises NobodyThere, NoReply, NotAllowed or TooLarge."""
        ...

    async def publish(self, subject: str, body: bytes) -> None:
        """Sends a message, or the answer to an arrival with `reply_to`. It may be lost, but not while unconnected."""
        ...

    async def keep(
        self, subject: str, body: bytes, *, once: str, expected_last: int | None = None, ttl: float | None = None
    ) -> int:
        """Stores a message in its stream; returns its number there. `once` is its id: the engine drops a repeat.

        With `expected_last`, it is refused (NotLast) unless that is the number of the subject's last message (0: none).
        With `ttl`, the engine deletes it after so many seconds, a second at least, if it can. Raises MailboxFull and
        NoStream too.
        """
        ...

    async def acknowledge(self, arrival: Arrival) -> None:
        """Removes a mail from the stream. If that is lost on the way, the mail comes again."""
        ...

    async def postpone(self, arrival: Arrival, seconds: float) -> None:
        """Lets a mail come again after a while. One that is postponed again and again may take longer each time."""
        ...

    def arrivals(self, subject: str) -> AsyncGenerator[Arrival, None]:
        """Yields the messages on a subject, which may have wildcards, from now on and over reconnections."""
        ...

    def mails(self, machine: str) -> AsyncGenerator[Arrival, None]:
        """Yields the mails to `machine`, also those that came while it was away."""
        ...

    async def discard_mails(self, members: Callable[[], Collection[str]]) -> None:
        """Deletes the mails from and to machines that are no members; for the machine that runs the server."""
        ...

    async def last_kept(self, subject: str) -> tuple[int, bytes] | None:
        """Returns the number and body of the subject's last message in its stream, or None."""
        ...

    async def put(self, bucket: str, key: str, value: bytes) -> None: ...

    async def get(self, bucket: str, key: str) -> bytes | None: ...

    async def is_deleted(self, bucket: str, key: str) -> bool:
        """Decides whether a key was deleted; False also for one that was never there, or that the engine has lost."""
        ...

    async def keys(self, bucket: str) -> list[str]:
        """Returns the keys that have a value, or had one that was deleted or expired a short time ago."""
        ...

    async def delete(self, bucket: str, key: str) -> None: ...

    def watch(self, bucket: str) -> AsyncGenerator[tuple[str, bytes | None], None]:
        """Yields all keys and values of the bucket, then each change; None for a key that was deleted or expired.

        The pair ("", None) marks the end of what was there at the start.
        """
        ...
