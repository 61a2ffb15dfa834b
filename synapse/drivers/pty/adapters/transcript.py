"""The end of a transcript: a file of JSON lines that its CLI goes on writing.

Follows the transcript that a CLI writes while it runs, from its first line to its last.

Does something again and again, as long as that is worth it: files tell nobody that they have grown.

Which files a program and its children have open: the surest way to tell whose transcript it is.

A conversation whose name is chosen by us, so that its transcript is known among all others of the folder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from synapse.drivers.pty.adapters.adapter import LaunchContext, knows_flag
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


_BUSY_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 0.5
_TICKS_PER_SEARCH: Final = 10
_QUIET_SECONDS: Final = 2.0
"""A program that is silent for so long writes nothing that matters; its file is looked at less often."""
_LARGEST_WHOLE: Final = 1024 * 1024
"""A longer transcript is an old conversation that goes on: only what is added is of interest."""


class TranscriptFollower:
    """Calls `take` for each record of the file that `find` names; another file there means another conversation."""

    def __init__(
        self, find: Callable[[], Path | None], take: Callable[[Record], None], quiet_for: Callable[[], float]
    ) -> None:
        self._find = find
        self._take = take
        self._quiet_for = quiet_for
        self._tail: Tail | None = None
        self._tails: dict[Path, Tail] = {}
        """One for each conversation so far: going back to one reads only what is new."""
        self._ticks = 0
        self._ticker = Ticker(_BUSY_SECONDS, self._tick)

    def start(self) -> None:
        self._ticker.start()

    def stop(self) -> None:
        self._ticker.stop()

    def look(self) -> None:
        """Read what is there now, and keep a close eye on it for a while."""
        self._search()
        self._read()
        self._ticker.start()

    def _tick(self) -> float | None:
        self._ticks += 1
        if self._quiet_for() > _QUIET_SECONDS:
            self._read()
            return _IDLE_SECONDS
        if self._ticks % _TICKS_PER_SEARCH == 0:
            self._search()
        self._read()
        return _BUSY_SECONDS

    def _search(self) -> None:
        path = self._find()
        if path is None or (self._tail is not None and self._tail.path == path):
            return
        if path not in self._tails:
            self._tails[path] = Tail(path) if size_of(path) < _LARGEST_WHOLE else tail_from_now(path)
        self._tail = self._tails[path]

    def _read(self) -> None:
        if self._tail is not None:
            for record in self._tail.read():
                self._take(record)


class Ticker:
    """Calls `act` after `seconds` once started, and again after as many seconds as it returns; None ends it."""

    def __init__(self, seconds: float, act: Callable[[], float | None]) -> None:
        self._seconds = seconds
        self._act = act
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, or go on sooner."""
        self.stop()
        self._plan(self._seconds)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        seconds = self._act()
        if seconds is not None and self._timer is None:
            self._plan(seconds)


_PROC: Final = Path("/proc")
_MOST_PROCESSES: Final = 64


def can_tell() -> bool:
    """True where the system shows open files (Linux)."""
    return (_PROC / "self" / "fd").is_dir()


def open_files(pid: int) -> Iterator[Path]:
    """Yield what the process and its descendants have open; nothing where that cannot be told."""
    for process in _tree(pid):
        try:
            links = list((_PROC / str(process) / "fd").iterdir())
        except OSError:
            continue
        for link in links:
            try:
                yield link.readlink()
            except OSError:
                continue


def _tree(pid: int) -> list[int]:
    found = [pid]
    for process in found:
        if len(found) > _MOST_PROCESSES:
            break
        try:
            children = (_PROC / str(process) / "task" / str(process) / "children").read_text(encoding="ascii")
        except OSError:
            continue
        found += [int(child) for child in children.split()]
    return found


_FLAG: Final = "--session-id"


def name_session(
    arguments: tuple[str, ...], around: LaunchContext, others: tuple[str, ...]
) -> tuple[tuple[str, ...], str]:
    """Return the arguments with our name for the conversation, and the name.

    A person's own name for it is kept. There is none, and nothing is added, when they go on with an old conversation
    (by one of `others`) or when the version has no such flag.
    """
    for index, argument in enumerate(arguments):
        if argument == _FLAG and index + 1 < len(arguments):
            return arguments, arguments[index + 1]
        if argument.startswith(_FLAG + "="):
            return arguments, argument.partition("=")[2]
    if any(argument.partition("=")[0] in others for argument in arguments) or not knows_flag(_FLAG, around):
        return arguments, ""
    return (_FLAG, around.new_session, *arguments), around.new_session
