"""The binary frames by which viewers follow terminals from an offset, at a host and at a gateway.

    kind (1) | terminal (4) | offset (8) | payload            numbers are big endian

    from a viewer   1 open {agent, after, run, columns, rows, types} · 2 input, bytes · 3 resize {columns, rows}
                    4 credit, the offset up to which it has shown the output · 5 close · 6 take · 7 ping
    to a viewer     16 snapshot, {columns, rows, run} and a newline, then bytes that rebuild the terminal at the offset
                    17 output from the offset on · 18 size {columns, rows} · 19 role {types} · 20 exited {status}
                    21 error {code, message, hint} · 22 lost · 23 pong

The viewer chooses the number of a terminal; a host has one, 0. Offsets count the bytes that the terminal has shown
since the start of its agent, and `run` names that start: an offset of another run is worth nothing. A second open of
the same terminal changes what the viewer wants, and with `after` null asks for another snapshot. A viewer drops output
below the offset of its last snapshot. A host that skips output says so by output without bytes at the offset where it
goes on.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, assert_never

from synapse.attach.frames import Exited, Resize, Role, Size, Take
from synapse.core.errors import InvalidRequest, SynapseError
from synapse.core.json_text import decode_object

HOST_TERMINAL: Final = 0
"""The number of the only terminal of a host."""
MAX_IN_FLIGHT: Final = 512 * 1024
"""How many bytes of output are sent beyond the last credit."""
MAX_OUTPUT: Final = 32 * 1024
"""The largest output frame, so that other terminals of the connection get their turn."""
MAX_INPUT: Final = 64 * 1024
MIN_COLUMNS: Final = 80
"""Programs that paint for a person fail in fewer columns, and a window of a browser may have any width."""
_MAX_SIDE: Final = 1000
_MAX_JSON: Final = 4096
_MAX_OFFSET: Final = 2**53 - 1
"""The largest number that a browser counts to."""
_HEADER: Final = struct.Struct(">BIQ")


class Kind(IntEnum):
    """What a frame is."""

    OPEN = 1
    INPUT = 2
    RESIZE = 3
    CREDIT = 4
    CLOSE = 5
    TAKE = 6
    PING = 7
    SNAPSHOT = 16
    OUTPUT = 17
    SIZE = 18
    ROLE = 19
    EXITED = 20
    ERROR = 21
    LOST = 22
    PONG = 23


class Frame(NamedTuple):
    """One frame as it travels."""

    kind: int
    terminal: int
    offset: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A viewer wants to see a terminal, from the offset `after` of `run` on if that is still kept."""

    agent: str
    after: int | None
    run: str
    columns: int
    rows: int
    types: bool


@dataclass(frozen=True, slots=True)
class Input:
    """Keys that the viewer typed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Credit:
    """The viewer has shown everything before the offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Close:
    """The viewer looks at the terminal no more."""


@dataclass(frozen=True, slots=True)
class Ping:
    """The viewer asks whether the connection works."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rebuilds the whole terminal as it was at the offset."""

    offset: int
    columns: int
    rows: int
    run: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Output:
    """What the terminal has shown from the offset on."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """The terminal cannot be shown; the viewer's frame was refused."""

    error: SynapseError


@dataclass(frozen=True, slots=True)
class Lost:
    """The agent's host is gone; a snapshot follows when it returns."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping."""


FromViewer = Open | Input | Resize | Credit | Close | Take | Ping
ToTerminalViewer = Snapshot | Output | Size | Role | Exited | Failed | Lost | Pong


def split(data: bytes | str) -> Frame:
    """Returns the parts of a frame. Raises InvalidRequest."""
    if isinstance(data, str) or len(data) < _HEADER.size:
        raise InvalidRequest("a frame of a terminal is binary and has a header of 13 bytes")
    kind, terminal, offset = _HEADER.unpack_from(data)
    return Frame(kind, terminal, offset, data[_HEADER.size :])


def decode_from_viewer(frame: Frame) -> FromViewer:  # noqa: C901, PLR0911 - one return for each kind
    """Returns what a viewer says. Raises InvalidRequest."""
    match frame.kind:
        case Kind.OPEN:
            return _decode_open(frame.payload)
        case Kind.INPUT:
            if len(frame.payload) > MAX_INPUT:
                raise InvalidRequest(f"an input frame has at most {MAX_INPUT} bytes")
            return Input(frame.payload)
        case Kind.RESIZE:
            return Resize(*_decode_size(_fields(frame.payload)))
        case Kind.CREDIT:
            return Credit(frame.offset)
        case Kind.CLOSE:
            return Close()
        case Kind.TAKE:
            return Take()
        case Kind.PING:
            return Ping()
        case _:
            raise InvalidRequest(f"no frame of a viewer has the kind {frame.kind}")


def encode_from_viewer(terminal: int, said: FromViewer) -> bytes:  # noqa: PLR0911 - one return for each kind
    """Returns the frame of a viewer."""
    match said:
        case Open():
            wanted = {
                "agent": said.agent,
                "after": said.after,
                "run": said.run,
                "columns": said.columns,
                "rows": said.rows,
                "types": said.types,
            }
            return _frame(Kind.OPEN, terminal, json.dumps(wanted).encode())
        case Input(data):
            return _frame(Kind.INPUT, terminal, data)
        case Resize(columns, rows):
            return _frame(Kind.RESIZE, terminal, json.dumps({"columns": columns, "rows": rows}).encode())
        case Credit(offset):
            return _frame(Kind.CREDIT, terminal, b"", offset)
        case Close():
            return _frame(Kind.CLOSE, terminal)
        case Take():
            return _frame(Kind.TAKE, terminal)
        case Ping():
            return _frame(Kind.PING, terminal)
        case _:
            assert_never(said)


def encode_to_viewer(terminal: int, said: ToTerminalViewer) -> bytes:  # noqa: PLR0911 - one return for each kind
    """Returns the frame to a viewer."""
    match said:
        case Snapshot(offset, columns, rows, run, data):
            head = json.dumps({"columns": columns, "rows": rows, "run": run}).encode()
            return _frame(Kind.SNAPSHOT, terminal, head + b"\n" + data, offset)
        case Output(offset, data):
            return _frame(Kind.OUTPUT, terminal, data, offset)
        case Size(columns, rows):
            return _frame(Kind.SIZE, terminal, json.dumps({"columns": columns, "rows": rows}).encode())
        case Role(types):
            return _frame(Kind.ROLE, terminal, json.dumps({"types": types}).encode())
        case Exited(status):
            return _frame(Kind.EXITED, terminal, json.dumps({"status": status}).encode())
        case Failed(error):
            shown = {"code": error.code, "message": str(error), "hint": error.hint}
            return _frame(Kind.ERROR, terminal, json.dumps(shown).encode())
        case Lost() | Pong():
            return _frame(Kind.LOST if isinstance(said, Lost) else Kind.PONG, terminal)
        case _:
            assert_never(said)


def decode_to_viewer(frame: Frame) -> Snapshot | Output | Size | Role | Exited | None:
    """Returns what a host says, or None if it is unknown: a newer host may say more. Raises InvalidRequest."""
    match frame.kind:
        case Kind.SNAPSHOT:
            head, _, data = frame.payload.partition(b"\n")
            fields = _fields(head)
            return Snapshot(frame.offset, *_decode_size(fields), _text(fields, "run"), data)
        case Kind.OUTPUT:
            return Output(frame.offset, frame.payload)
        case Kind.SIZE:
            return Size(*_decode_size(_fields(frame.payload)))
        case Kind.ROLE:
            return Role(types=_fields(frame.payload).get("types") is True)
        case Kind.EXITED:
            return Exited(_number(_fields(frame.payload), "status", -_MAX_SIDE, _MAX_OFFSET))
        case _:
            return None


def _frame(kind: Kind, terminal: int, payload: bytes = b"", offset: int = 0) -> bytes:
    return _HEADER.pack(kind, terminal, offset) + payload


def _decode_open(payload: bytes) -> Open:
    fields = _fields(payload)
    columns, rows = _decode_size(fields)
    after = fields.get("after")
    return Open(
        agent=_text(fields, "agent"),
        after=None if after is None else _number(fields, "after", 0, _MAX_OFFSET),
        run=_text(fields, "run") if "run" in fields else "",
        columns=columns,
        rows=rows,
        types=fields.get("types") is True,
    )


def _decode_size(fields: dict[str, object]) -> tuple[int, int]:
    return _number(fields, "columns", 1, _MAX_SIDE), _number(fields, "rows", 1, _MAX_SIDE)


def _fields(payload: bytes) -> dict[str, object]:
    if len(payload) > _MAX_JSON:
        raise InvalidRequest(f"the JSON of a frame has at most {_MAX_JSON} bytes")
    try:
        return dict(decode_object(payload))
    except ValueError as error:
        raise InvalidRequest("the payload of this frame is a JSON object") from error


def _number(fields: dict[str, object], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidRequest(f"'{name}' must be a number from {least} to {most}")
    return value


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"'{name}' must be a text")
    return value
