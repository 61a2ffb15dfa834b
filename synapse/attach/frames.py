"""The words of an attach connection. Bytes of the terminal travel as binary frames, these as text frames.

    to the host      hello {columns, rows, types, take} · resize {columns, rows} · take
    to the viewer    role {types} · size {columns, rows} · exited {status}

`types` says whether this viewer's keys reach the program.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, cast

_MOST_CELLS = 10_000


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of a viewer: its size, whether it wishes to type, and whether it takes that from another."""

    columns: int
    rows: int
    types: bool = True
    take: bool = False


@dataclass(frozen=True, slots=True)
class Resize:
    """The viewer's terminal has another size."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Take:
    """The viewer wants to type, whoever does so now."""


@dataclass(frozen=True, slots=True)
class Role:
    """Whether the viewer's keys reach the program."""

    types: bool


@dataclass(frozen=True, slots=True)
class Size:
    """The size that the program paints for."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Exited:
    """The program has ended."""

    status: int


ToHost = Hello | Resize | Take
ToViewer = Role | Size | Exited


def encode(frame: ToHost | ToViewer) -> str:
    return json.dumps({"type": type(frame).__name__.lower(), **asdict(frame)})


def decode_to_host(text: str) -> ToHost | None:
    """Return the frame, or None for one that is not known: a newer viewer may say more."""
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
    """Return the frame, or None for one that is not known: a newer host may say more."""
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
    return 0 < columns < _MOST_CELLS and 0 < rows < _MOST_CELLS
