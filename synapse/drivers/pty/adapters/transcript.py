"""Follows the transcript of a CLI: the file of JSON lines in which it keeps its conversation.

Finds the file, by a session name that we choose (`name_session`) or by the files that the CLI has open (`open_files`),
and reads the lines that are added. Files do not announce that they have grown, so `Ticker` looks again and again: the
event loop reads the file, and a thread scans for another one (decision 0024 has the figures).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeVar, cast

from synapse.core.usage import UsageReport
from synapse.drivers.pty.adapters.adapter import LaunchContext, knows_flag
from synapse.terminal.signals.report import Record, SignalKind, SignalReport, text_at
from synapse.terminal.signals.usage import UsageReader

_BUSY_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 0.5
_TICKS_PER_SEARCH: Final = 10
_QUIET_SECONDS: Final = 2.0
"""A program that has printed nothing for this long writes nothing that matters; its file is read less often."""
_MAX_WHOLE_BYTES: Final = 1024 * 1024
"""A longer transcript is an old conversation that goes on: only new lines matter."""
_MAX_READ_BYTES: Final = 4 * 1024 * 1024
_LAST_BYTES: Final = 16 * 1024
_PROC: Final = Path("/proc")
_MAX_PROCESSES: Final = 64
_SESSION_FLAG: Final = "--session-id"

S = TypeVar("S")


class TranscriptFollower(Generic[S]):
    """Calls `take` for each record of the file that is found; another file means another conversation.

    `scan` searches folders or `/proc`; ticks run it in a thread, so it must not change anything. `choose` returns the
    file of the conversation by what the scan found. It runs in the event loop, as `take` does.
    """

    def __init__(
        self,
        scan: Callable[[], S],
        choose: Callable[[S], Path | None],
        take: Callable[[Record], None],
        quiet_for: Callable[[], float],
    ) -> None:
        self._scan = scan
        self._choose = choose
        self._take = take
        self._quiet_for = quiet_for
        self._tail: Tail | None = None
        self._tails: dict[Path, Tail] = {}
        """One for each conversation so far: going back to one reads only what is new."""
        self._ticks = 0
        self._ticker = Ticker(_BUSY_SECONDS, self._tick)
        self._scanning: asyncio.Future[S] | None = None
        """The scan in a thread whose result counts."""

    def start(self) -> None:
        self._ticker.start()

    def stop(self) -> None:
        self._ticker.stop()
        self._scanning = None

    def look(self) -> None:
        """Finds the file and reads what is there now, without a thread, and reads often for a while."""
        # What a scan in a thread finds is older than what this one finds.
        self._scanning = None
        self._follow(self._choose(self._scan()))
        self._read()
        self._ticker.start()

    def _tick(self) -> float | None:
        self._ticks += 1
        if self._quiet_for() > _QUIET_SECONDS:
            self._read()
            return _IDLE_SECONDS
        if self._ticks % _TICKS_PER_SEARCH == 0 and self._scanning is None:
            self._scanning = asyncio.get_running_loop().run_in_executor(None, self._scan)
            self._scanning.add_done_callback(self._scanned)
        self._read()
        return _BUSY_SECONDS

    def _scanned(self, scanning: asyncio.Future[S]) -> None:
        if scanning is not self._scanning:
            return
        self._scanning = None
        self._follow(self._choose(scanning.result()))
        self._read()

    def _follow(self, path: Path | None) -> None:
        if path is None or (self._tail is not None and self._tail.path == path):
            return
        if path not in self._tails:
            self._tails[path] = Tail(path) if size_of(path) < _MAX_WHOLE_BYTES else tail_from_now(path)
        self._tail = self._tails[path]

    def _read(self) -> None:
        if self._tail is not None:
            for record in self._tail.read():
                self._take(record)


class UsageTail:
    """Reads what the requests of one launch cost from its transcripts, beside whatever else reads these.

    Records from before `started` tell of earlier launches, and are not passed on.
    """

    def __init__(
        self, new_reader: Callable[[], UsageReader], started: str, note_usage: Callable[[UsageReport], None]
    ) -> None:
        self._new_reader = new_reader
        self._started = started
        self._note_usage = note_usage
        self._files: dict[Path, tuple[Tail, UsageReader]] = {}

    def follow(self, path: Path) -> None:
        """Follows one more transcript; of a long one only the end, where the new records are."""
        if path not in self._files:
            begin = max(0, size_of(path) - _MAX_WHOLE_BYTES)
            self._files[path] = (Tail(path, begin), self._new_reader())

    def follow_folders(self, pattern: str) -> None:
        """Follows also what matches the pattern in the folder that has the name of a followed transcript."""
        for path in [*self._files]:
            for found in path.with_suffix("").glob(pattern):
                self.follow(found)

    def read(self) -> None:
        """Passes on what was written since the last call."""
        for tail, reader in self._files.values():
            for record in tail.read():
                used = reader.read(record)
                if used is not None and (used.at is None or text_at(record, "timestamp") >= self._started):
                    self._note_usage(used)


class Ticker:
    """Calls `act` after `seconds` once started, and again after as many seconds as it returns, until that is None."""

    def __init__(self, seconds: float, act: Callable[[], float | None]) -> None:
        self._seconds = seconds
        self._act = act
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts, or restarts with the first interval."""
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


class Tail:
    """Reads the lines that were added to a file since the last read."""

    def __init__(self, path: Path, begin: int = 0) -> None:
        self.path = path
        self._at = begin
        self._rest = b""

    def read(self) -> list[Record]:
        """Returns the new whole lines that are JSON objects; none while there is no file."""
        try:
            size = self.path.stat().st_size
            if size < self._at:
                # The file was written anew.
                self._at, self._rest = 0, b""
            if size == self._at:
                return []
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_MAX_READ_BYTES)
        except OSError:
            return []
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [record for line in lines if (record := read_record(line)) is not None]


def tail_from_now(path: Path) -> Tail:
    """Returns a tail that skips what is in the file already."""
    return Tail(path, size_of(path))


def last_records(path: Path, max_bytes: int = _LAST_BYTES) -> list[Record]:
    """Returns the records in the last `max_bytes` of a file."""
    return Tail(path, max(size_of(path) - max_bytes, 0)).read()


def all_records(path: Path) -> Iterator[Record]:
    """Yields all records of a file; none while there is no file."""
    with suppress(OSError), path.open("rb") as file:
        yield from (record for line in file if (record := read_record(line)) is not None)


def prompts_in(path: Path, read: Callable[[Record], SignalReport | None]) -> Iterator[str]:
    """Yields the prompts of a transcript whose records `read` turns into reports."""
    reports = map(read, all_records(path))
    return (report.text for report in reports if report is not None and report.kind is SignalKind.SUBMITTED)


def first_records(path: Path, max_bytes: int = _LAST_BYTES) -> list[Record]:
    """Returns the records in the first `max_bytes` of a file."""
    try:
        with path.open("rb") as file:
            lines = file.read(max_bytes).split(b"\n")
    except OSError:
        return []
    return [record for line in lines if (record := read_record(line)) is not None]


def first_record(path: Path) -> Record:
    """Returns the first record of a transcript, or an empty one; in most transcripts it names the session."""
    try:
        with path.open("rb") as file:
            return read_record(file.readline(_MAX_READ_BYTES)) or {}
    except OSError:
        return {}


def read_record(line: bytes) -> Record | None:
    """Returns the JSON object in a line, or None."""
    try:
        value: object = json.loads(line)
    except ValueError:
        return None
    return cast("Record", value) if isinstance(value, Mapping) else None


def size_of(path: Path) -> int:
    """Returns the size of a file in bytes; 0 while there is no file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def name_session(
    arguments: tuple[str, ...], launch: LaunchContext, continuing: tuple[str, ...]
) -> tuple[tuple[str, ...], str]:
    """Returns the arguments with a session name, and the name, by which its transcript is found among all others.

    A name that the person gave is kept. Without one, our name is added, unless the person goes on with an old session
    (by one of the flags in `continuing`) or the CLI's version has no such flag: then the name is empty.
    """
    for index, argument in enumerate(arguments):
        if argument == _SESSION_FLAG and index + 1 < len(arguments):
            return arguments, arguments[index + 1]
        if argument.startswith(_SESSION_FLAG + "="):
            return arguments, argument.partition("=")[2]
    is_old = any(argument.partition("=")[0] in continuing for argument in arguments)
    if is_old or not knows_flag(_SESSION_FLAG, launch):
        return arguments, ""
    return (_SESSION_FLAG, launch.new_session, *arguments), launch.new_session


def one_file(path: Path | None) -> Path | None:
    """Returns `path`: the choice of a follower whose scan finds one file, or none."""
    return path


def shows_open_files() -> bool:
    """Returns whether this system shows the open files of a process (Linux)."""
    return (_PROC / "self" / "fd").is_dir()


def open_files(pid: int) -> Iterator[Path]:
    """Yields the files that a process and its descendants have open: the surest way to tell whose transcript it is.

    Yields nothing where the system does not show open files.
    """
    for process in _process_tree(pid):
        try:
            links = list((_PROC / str(process) / "fd").iterdir())
        except OSError:
            continue
        for link in links:
            try:
                yield link.readlink()
            except OSError:
                continue


def _process_tree(pid: int) -> list[int]:
    found = [pid]
    for process in found:
        if len(found) > _MAX_PROCESSES:
            break
        try:
            children = (_PROC / str(process) / "task" / str(process) / "children").read_text(encoding="ascii")
        except OSError:
            continue
        found += [int(child) for child in children.split()]
    return found
