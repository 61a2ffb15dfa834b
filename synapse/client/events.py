"""Follows a stream of server-sent events from a host."""

from __future__ import annotations

from _socket import SHUT_RDWR
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from synapse.client.http import (
    READ_SIZE,
    Answer,
    ChunkDecoder,
    HostAddress,
    NoAnswer,
    as_object,
    compose,
    connect,
    header,
    read_head,
    status_of,
)

if TYPE_CHECKING:
    from _socket import socket


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of the stream; a reader resumes after its `id`."""

    id: str
    name: str
    data: str


class EventDecoder:
    """Decodes the bytes of an event stream, however they are split."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._id = ""
        self._name = ""
        self._data: list[str] = []

    def receive(self, data: bytes) -> list[ServerEvent]:
        """Returns the events that are complete so far."""
        self._rest += data
        if b"\n" not in data:
            return []  # a long line is put together once, not with every part of it
        *lines, self._rest = self._rest.split(b"\n")
        events = [self._receive_line(line.removesuffix(b"\r").decode("utf-8", "replace")) for line in lines]
        return [event for event in events if event is not None]

    def _receive_line(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._id, self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "id":
                self._id = value
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case _:
                pass  # a comment that keeps the connection open, or a field that we do not use
        return None


class EventStream:
    """An open stream of events from a host."""

    def __init__(self, connection: socket, monotonic: Callable[[], float]) -> None:
        self._connection = connection
        self._monotonic = monotonic
        self._chunks: ChunkDecoder | None = None
        self._decoder = EventDecoder()
        self._events: list[ServerEvent] = []

    def open(self, address: HostAddress, path: str, *, after: str, deadline: float) -> Answer | None:
        """Requests the stream, resumed after the event `after`; returns the answer if it is not a stream."""
        resumed = (f"Last-Event-ID: {after}",) if after else ()
        headers = ("Accept: text/event-stream", *resumed, *address.proof(self._connection))
        self._set_timeout(deadline)
        try:
            self._connection.sendall(compose(address, "GET", path, headers=headers))
            head, rest = read_head(self._connection)
        except TimeoutError:
            raise
        except OSError as error:
            raise NoAnswer(str(error), sent=True) from error
        if header(head, b"transfer-encoding").lower() == b"chunked":
            self._chunks = ChunkDecoder()
        if header(head, b"content-type").startswith(b"text/event-stream"):
            self._decode(rest)
            return None
        status = status_of(head)
        while data := self._read(deadline):
            rest += data
        return Answer(status, as_object(self._unchunked(rest)))

    def next(self, deadline: float) -> ServerEvent | None:
        """Returns the next event, or None at the end of the stream.

        Raises:
            TimeoutError: none arrived before `deadline`, by the clock given to the constructor.
            NoAnswer: the connection broke.
        """
        while not self._events:
            data = self._read(deadline)
            if not data:
                return None
            self._decode(data)
        return self._events.pop(0)

    def interrupt(self) -> None:
        """Ends a read in another thread; closing the connection would not wake it."""
        # A connection that is broken already wakes its reader by itself.
        with suppress(OSError):
            self._connection.shutdown(SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()

    def _read(self, deadline: float) -> bytes:
        self._set_timeout(deadline)
        try:
            return self._connection.recv(READ_SIZE)
        except TimeoutError:
            raise
        except OSError as error:
            raise NoAnswer(str(error), sent=True) from error

    def _decode(self, data: bytes) -> None:
        self._events += self._decoder.receive(self._unchunked(data))

    def _unchunked(self, data: bytes) -> bytes:
        if self._chunks is None:
            return data
        try:
            return self._chunks.receive(data)
        except ValueError as error:
            raise NoAnswer(str(error), sent=True) from error

    def _set_timeout(self, deadline: float) -> None:
        left = deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


def open_stream(
    address: HostAddress, path: str, *, after: str, deadline: float, monotonic: Callable[[], float]
) -> EventStream | Answer:
    """Opens the event stream `path` at `address`; returns the host's answer if it refuses.

    Raises:
        NoAnswer: the host cannot be reached.
        TimeoutError: it did not begin before `deadline`.
    """
    stream = EventStream(connect(address), monotonic)
    try:
        refusal = stream.open(address, path, after=after, deadline=deadline)
    except BaseException:
        stream.close()
        raise
    if refusal is None:
        return stream
    stream.close()
    return refusal
