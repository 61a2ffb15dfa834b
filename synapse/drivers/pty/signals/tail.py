"""The end of a transcript: a file of JSON lines that its CLI goes on writing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from synapse.terminal.signals.report import Record

_LARGEST_READ: Final = 4 * 1024 * 1024
_GLANCE: Final = 16 * 1024


class Tail:
    """Reads what was added to a file since the last time."""

    def __init__(self, path: Path, begin: int = 0) -> None:
        self.path = path
        self._at = begin
        self._rest = b""

    def read(self) -> list[Record]:
        """Return the new whole lines that are JSON objects; none while there is no file."""
        try:
            size = self.path.stat().st_size
            if size < self._at:
                # It was written anew.
                self._at, self._rest = 0, b""
            if size == self._at:
                return []
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_LARGEST_READ)
        except OSError:
            return []
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [record for line in lines if (record := read_record(line)) is not None]


def size_of(path: Path) -> int:
    """How many bytes a file has; none while there is no file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def tail_from_now(path: Path) -> Tail:
    """A tail that leaves out what is there already."""
    return Tail(path, size_of(path))


def last_records(path: Path, glance: int = _GLANCE) -> list[Record]:
    """What was written last, in the last `glance` bytes."""
    return Tail(path, max(size_of(path) - glance, 0)).read()


def first_record(path: Path) -> Record:
    """The first line of a transcript, or nothing: in most of them it says whose it is."""
    try:
        with path.open("rb") as file:
            return read_record(file.readline(_LARGEST_READ)) or {}
    except OSError:
        return {}


def read_record(line: bytes) -> Record | None:
    """Return the JSON object that a line is, or None."""
    try:
        value: object = json.loads(line)
    except ValueError:
        return None
    return cast("Record", value) if isinstance(value, Mapping) else None
