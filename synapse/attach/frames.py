"""The text frames of an attach connection; the bytes of the terminal travel as binary frames.

    to the host      hello {columns, rows, types, take} · resize {columns, rows} · take
    to the viewer    role {types} · size {columns, rows} · exited {status}

`types` says whether this viewer's keys reach the program.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, cast

_MAX_SIDE = 10_000


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of a viewer: its size, and whether it wants to type or takes the keyboard at once.

    A viewer that repeats it gets the whole screen again.
    """

    columns: int
    rows: int
    types: bool = True
    take: bool = False


@dataclass(frozen=True, slots=True)
class Resize:
    """The size of the viewer's terminal has changed."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Take:
    """The viewer takes the keyboard."""


@dataclass(frozen=True, slots=True)
class Role:
    """Whether the viewer's keys reach the program."""

    types: bool


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the program's terminal."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Exited:
    """The program has ended."""

    status: int


ToHost = Hello | Resize | Take
ToViewer = Role | Size | Exited


def encode(frame: ToHost | ToViewer) -> str:
    """Returns the frame as JSON text."""
    return json.dumps({"type": type(frame).__name__.lower(), **asdict(frame)})


def decode_to_host(text: str) -> ToHost | None:
    """Returns the frame, or None if it is unknown: a newer viewer may send more."""
    fields = _fields(text)
    match fields:
        case {"type": "hello", "columns": int() as columns, "rows": int() as rows} if _is_size(columns, rows):
            return Hello(columns, rows, fields.get("types") is not False, fields.get("take") is True)
        case {"type": "resize", "columns": int() as columns, "rows": int() as rows} if _is_size(columns, rows):
            return Resize(columns, rows)
        case {"type": "take"}:
            return Take()
        case _:
            return None


def decode_to_viewer(text: str) -> ToViewer | None:
    """Returns the frame, or None if it is unknown: a newer host may send more."""
    match _fields(text):
        case {"type": "role", "types": bool() as types}:
            return Role(types)
        case {"type": "size", "columns": int() as columns, "rows": int() as rows}:
            return Size(columns, rows)
        case {"type": "exited", "status": int() as status}:
            return Exited(status)
        case _:
            return None


def _fields(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _is_size(columns: int, rows: int) -> bool:
    return 0 < columns < _MAX_SIDE and 0 < rows < _MAX_SIDE
