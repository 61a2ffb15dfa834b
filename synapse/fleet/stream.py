"""One end of a stream between two machines: numbered packets, credit both ways, and how a stream ends.

    kind (1) | number (8) | payload                       the number is big endian

    1 text, 2 binary     a whole frame, or the last piece of one; `number` counts the pieces, from 0
    3 text, 4 binary     a piece of a frame, more of which follows; numbered as well
    5 credit             `number` is the cost of all pieces that the reader has taken so far
    6 beat               every BEAT_SECONDS; `number` is that of the next piece, the payload is the credit (8)
    7 close              `number` is that of the next piece, the payload says why

The engine may lose a piece and never repeats one. The end that misses a piece, or hears nothing for SILENCE_SECONDS,
closes the stream; a beat and a close count the pieces, so that a lost last piece is missed too. Nothing is sent again:
a viewer opens another stream, which begins with a snapshot of the terminal. A writer sends at most WINDOW beyond the
credit, so the reader's memory is bounded however slow its viewer is.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import Final

WINDOW: Final = 512 * 1024
"""The cost of the pieces that may be on their way beyond the last credit."""
PIECE_COST: Final = 64
"""What a piece costs beside its bytes: many small pieces take memory too."""
MAX_PIECE: Final = 64 * 1024
"""The largest piece, so that streams take turns."""
MAX_FRAME: Final = 32 * 1024 * 1024
"""The largest frame: a snapshot with its scrollback is the largest that there is."""
BEAT_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 5.0
HEADER: Final = struct.Struct(">BQ")
_NUMBER: Final = struct.Struct(">Q")
_STREAM_ID: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
_CREDIT_STEP: Final = WINDOW // 4


class Kind(IntEnum):
    """What a packet is."""

    TEXT = 1
    BINARY = 2
    TEXT_PIECE = 3
    BINARY_PIECE = 4
    CREDIT = 5
    BEAT = 6
    CLOSE = 7


class Reason(Enum):
    """Why a stream ended, by its name on the wire."""

    LEFT = "left"
    """One end closed it in order: nothing is missing."""
    HOLE = "hole"
    SILENCE = "silence"
    UNKNOWN = "unknown"
    """The other end does not know the stream: its link was restarted."""
    ENGINE = "engine"
    """This end could not send."""
    BROKEN = "broken"
    """The other end broke the rules of this module."""
    FORBIDDEN = "forbidden"
    """The machine that serves the terminal no longer allows it."""

    @property
    def is_loss(self) -> bool:
        """Whether another stream may do better: the connection failed, and nobody ended it."""
        return self in (Reason.HOLE, Reason.SILENCE, Reason.UNKNOWN, Reason.ENGINE)

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES: Final = {
    Reason.LEFT: "the other side has closed the connection",
    Reason.HOLE: "a part of the connection between the machines was lost",
    Reason.SILENCE: "the other machine is silent",
    Reason.UNKNOWN: "the link of the other machine was restarted",
    Reason.ENGINE: "this machine is not connected to the fleet",
    Reason.BROKEN: "the other machine sent what cannot be understood",
    Reason.FORBIDDEN: "the other machine no longer allows it",
}


def is_stream_id(text: str) -> bool:
    """Decides whether `text` can name a stream; it is a part of a subject."""
    return _STREAM_ID.fullmatch(text) is not None


def next_stream_id(lost: str) -> str:
    """Returns the id of a stream in the place of a lost one: `ID_1`, then `ID_2` and so on."""
    viewer, _, number = lost.rpartition("_")
    return f"{viewer}_{int(number) + 1}" if viewer and number.isdecimal() else f"{lost}_1"


def viewer_of(stream_id: str) -> str:
    """Returns what the ids of all streams of one viewer have in common."""
    return stream_id.rpartition("_")[0] or stream_id


def cut(data: bytes | str, most: int) -> Iterator[tuple[Kind, bytes]]:
    """Yields the pieces of a frame, each of at most `most` bytes."""
    is_text = isinstance(data, str)
    whole = memoryview(data.encode() if isinstance(data, str) else data)
    begin = 0
    while len(whole) - begin > most:
        yield (Kind.TEXT_PIECE if is_text else Kind.BINARY_PIECE), bytes(whole[begin : begin + most])
        begin += most
    yield (Kind.TEXT if is_text else Kind.BINARY), bytes(whole[begin:])


def close_packet(reason: Reason, number: int = 0) -> bytes:
    """Returns the packet that ends a stream."""
    return HEADER.pack(Kind.CLOSE, number) + reason.value.encode()


def is_close(packet: bytes) -> bool:
    """Decides whether a packet ends its stream: it must never be answered."""
    return packet[:1] == bytes((Kind.CLOSE,))


class StreamEnd:
    """One end. The caller carries packets; the times that it gives are of one monotonic clock.

    After a loss, frames that came whole before it can still be taken.
    """

    def __init__(self, now: float, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._silence_seconds = silence_seconds
        self.ended: Reason | None = None
        """Why the stream ended; None while it is open."""
        self._heard_at = now
        self._sent = 0
        self._spent = 0
        """The cost of all pieces that this end has sent."""
        self._credit = 0
        self._expected = 0
        self._pieces: deque[tuple[Kind, bytes]] = deque()
        self._waiting_cost = 0
        self._taken = 0
        """The cost of all pieces that the reader of this end has taken."""
        self._told = 0
        self._frame: list[bytes] = []
        self._frame_size = 0

    @property
    def waiting_cost(self) -> int:
        """The cost of the pieces that have arrived and were not taken."""
        return self._waiting_cost

    def has_room(self, payload: bytes) -> bool:
        """Decides whether the credit is enough for one more piece."""
        return self._spent + _cost(payload) - self._credit <= WINDOW

    def piece(self, kind: Kind, payload: bytes) -> bytes:
        """Returns the packet of the next piece; there must be room for it."""
        packet = HEADER.pack(kind, self._sent) + payload
        self._sent += 1
        self._spent += _cost(payload)
        return packet

    def receive(self, packet: bytes, now: float) -> None:
        """Takes a packet of the other end. It may end the stream."""
        if self.ended is not None:
            return
        self._heard_at = now
        if len(packet) < HEADER.size:
            self.end(Reason.BROKEN)
            return
        kind, number = HEADER.unpack_from(packet)
        payload = packet[HEADER.size :]
        match kind:
            case Kind.TEXT | Kind.BINARY | Kind.TEXT_PIECE | Kind.BINARY_PIECE:
                self._receive_piece(Kind(kind), number, payload)
            case Kind.CREDIT:
                self._receive_credit(number)
            case Kind.BEAT if number > self._expected:
                self.end(Reason.HOLE)
            case Kind.BEAT if len(payload) >= _NUMBER.size:
                self._receive_credit(_NUMBER.unpack_from(payload)[0])
            case Kind.CLOSE:
                self.end(Reason.HOLE if number > self._expected else _reason(payload))
            case _:
                return  # a newer version may say more

    def take(self) -> bytes | str | None:
        """Returns the next whole frame, or None if there is none yet, or no more."""
        while self._pieces:
            kind, payload = self._pieces.popleft()
            self._waiting_cost -= _cost(payload)
            self._taken += _cost(payload)
            self._frame.append(payload)
            self._frame_size += len(payload)
            if self._frame_size > MAX_FRAME:
                self._pieces.clear()
                self._waiting_cost = 0
                self.end(Reason.BROKEN)
                return None
            if kind in (Kind.TEXT, Kind.BINARY):
                return self._whole_frame(kind)
        return None

    def due_credit(self) -> bytes | None:
        """Returns the packet that gives the writer credit, if it is time for one."""
        if self._taken - self._told < _CREDIT_STEP:
            return None
        self._told = self._taken
        return HEADER.pack(Kind.CREDIT, self._taken)

    def beat(self, now: float) -> bytes | None:
        """Returns the packet that shows that this end is alive; None if the stream has ended, as by silence now."""
        if self.ended is None and now - self._heard_at > self._silence_seconds:
            self.end(Reason.SILENCE)
        if self.ended is not None:
            return None
        self._told = self._taken
        return HEADER.pack(Kind.BEAT, self._sent) + _NUMBER.pack(self._taken)

    def close(self, reason: Reason = Reason.LEFT) -> bytes:
        """Ends the stream, if it has not ended yet; returns the packet that tells the other end."""
        self.end(reason)
        return close_packet(self.ended or reason, self._sent)

    def end(self, reason: Reason) -> None:
        """Ends the stream; the first reason counts."""
        self.ended = self.ended or reason

    def _receive_piece(self, kind: Kind, number: int, payload: bytes) -> None:
        if number != self._expected:
            self.end(Reason.HOLE)
        elif self._waiting_cost + _cost(payload) > WINDOW:
            # A writer that keeps to its credit cannot do that: the credit covers what the reader has taken.
            self.end(Reason.BROKEN)
        else:
            self._expected += 1
            self._pieces.append((kind, payload))
            self._waiting_cost += _cost(payload)

    def _receive_credit(self, credit: int) -> None:
        if credit > self._spent:
            self.end(Reason.BROKEN)
        # A credit may come late, after a beat with a higher one.
        self._credit = max(self._credit, credit)

    def _whole_frame(self, kind: Kind) -> bytes | str | None:
        data = self._frame[0] if len(self._frame) == 1 else b"".join(self._frame)
        self._frame, self._frame_size = [], 0
        if kind is Kind.BINARY:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            self._pieces.clear()
            self._waiting_cost = 0
            self.end(Reason.BROKEN)
            return None


def _cost(payload: bytes) -> int:
    return len(payload) + PIECE_COST


def _reason(payload: bytes) -> Reason:
    """Returns why the other end closed; a newer version may know more reasons, and has left by them."""
    try:
        return Reason(payload.decode("ascii", errors="replace"))
    except ValueError:
        return Reason.LEFT
