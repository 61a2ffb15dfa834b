"""What a Synapse process gets from the system: its log file, ids, clock, event loop and limit of open files.

The log is a private file with a line of JSON per event; nothing is logged to the terminal, where a CLI draws. The limit
of open files is raised for hosts and gateways, where each connection takes one, but not for the programs they run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

from synapse.config.private_files import make_private
from synapse.core.override import override
from synapse.core.types import BootTime

_CONTROL_CHARACTERS: Final = re.compile(r"[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
MAX_LOG_BYTES: Final = 4 * 1024 * 1024
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_IDS_PER_CALL: Final = 256
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# CLOCK_BOOTTIME keeps running while the machine sleeps; only Linux has it, and a boot id.
_SINCE_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", None)
Result = TypeVar("Result")
FILES_WANTED: Final = 65_536
Limit = tuple[int, int]
"""The soft and the hard limit."""


def log_to(folder: Path, agent_id: str, name: str = "") -> Path:
    """Writes this process's log to a file in `folder` and returns its path.

    A link with the agent's given name points to it, so that it is found after the agent has left the registry.
    """
    make_private(folder)
    path = folder / f"{agent_id}.log"
    handler = _LogFile(path)
    handler.setFormatter(_JsonLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    level = os.environ.get("SYNAPSE_LOG_LEVEL", "INFO").strip().upper()
    root.setLevel(logging.getLevelNamesMapping().get(level, logging.INFO))
    # The server's routine messages are not events; our own say when it starts and stops.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    if name:
        link = path.with_name(f"{name}.log")
        link.unlink(missing_ok=True)
        link.symlink_to(path.name)
    return path


class _JsonLine(logging.Formatter):
    """Formats an event as JSON: its time, level, name, logger and fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        logger = record.name.removeprefix("synapse.")
        fields: dict[str, Any] = {
            "at": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": logger,
            "room": logger,  # the old name of the key, kept for one release
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(fields, ensure_ascii=False, default=str)
        # People read this in a terminal: also escape control characters that JSON leaves unescaped.
        return text if text.isprintable() else _CONTROL_CHARACTERS.sub(lambda found: json.dumps(found[0])[1:-1], text)


class _LogFile(logging.Handler):
    """Appends to a private file. When it exceeds MAX_LOG_BYTES, renames it to `.log.1`, replacing the previous one."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file = self._open()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._file.write(self.format(record) + "\n")
            self._file.flush()
            if self._file.tell() > MAX_LOG_BYTES:
                # Open the new one first: if that fails, keep writing to the old one.
                full, self._file = self._file, self._open()
                full.close()
        except OSError:
            pass  # disk full: the buffer is written later; logging would print the error where a CLI draws
        except Exception:  # noqa: BLE001 - logging never fails its caller
            self.handleError(record)

    @override
    def close(self) -> None:
        with suppress(OSError):  # a disk that is still full loses the rest
            self._file.close()
        super().close()

    def _open(self) -> TextIO:
        if self._path.exists() and self._path.stat().st_size > MAX_LOG_BYTES:
            self._path.replace(self._path.with_suffix(".log.1"))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")


def new_id() -> str:
    """Returns a new unique id, a UUID of version 4."""
    return next(_IDS)


def new_task_id() -> str:
    """Returns the id of a new task: a UUID of version 8 with random digits first and the time last.

    People type its beginning, which is therefore random. Its end sorts by time of creation.
    """
    noise = next(_IDS)
    return f"{noise[:14]}8{noise[15:24]}{_hex_time()}"


def new_context_id() -> str:
    """Returns the id of a new conversation: a UUID of version 7, which begins with the time.

    People do not type it, so its beginning need not be unique; and it sorts by time of creation.
    """
    now = _hex_time()
    return f"{now[:8]}-{now[8:]}-7{next(_IDS)[15:]}"


def _hex_time() -> str:
    """Returns the milliseconds since 1970 as twelve hexadecimal digits."""
    return f"{time.time_ns() // 1_000_000:012x}"


def _generate_ids() -> Iterator[str]:
    while True:
        # One system call for many ids: the call releases the GIL, and while the store writes, getting it back takes
        # fifty times as long as the call.
        noise = os.urandom(16 * _IDS_PER_CALL).hex()
        for start in range(0, len(noise), 32):
            digits = noise[start : start + 32]
            yield (f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}")


_IDS: Final = _generate_ids()


class SystemClock:
    """Implements `core.types.Clock` with the clocks of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boot_time(self) -> BootTime:
        if _SINCE_BOOT is None:
            return BootTime("", time.monotonic())
        return BootTime(_boot_id(), time.clock_gettime(_SINCE_BOOT))


@cache
def _boot_id() -> str:
    """Returns the id of this boot of the machine, read once; empty where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine on uvloop, as `asyncio.run` does on asyncio's own loop.

    Other threads wake asyncio's own loop through a socket, which a sandbox may forbid: the loop would never learn that
    the store has answered.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def new_loop() -> asyncio.AbstractEventLoop:
    """Returns a uvloop event loop: about twice as fast as asyncio's own for the work of a host."""
    import uvloop  # noqa: PLC0415 - loaded only when it is needed

    return uvloop.new_event_loop()


def raise_file_limit() -> Limit:
    """Raises this process's soft limit of open files towards the hard limit; returns the previous limits.

    A host calls this after it has started its program, so that the program keeps the user's limit: programs that close
    every possible file, or that use select(), are slow or wrong with a large one.
    """
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return before


def set_file_limit(limit: Limit) -> None:
    """Sets this process's limit of open files back to `limit`."""
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def give_file_limit(pid: int, limit: Limit) -> None:
    """Sets the limit of open files of a child that has just started, if the system supports it."""
    if sys.platform != "linux":
        return
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    except (OSError, ValueError):
        return  # it has ended already


def open_file_limit() -> int:
    """Returns how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft


def tune_gc() -> None:
    """Freezes the loaded objects, and collects less often: scanning them and the queue took a tenth of each POST."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def stop_signal(*more: signal.Signals) -> asyncio.Future[int]:
    """Returns a future that resolves to the number of the first stop signal, or of one of `more`."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *more):
        loop.add_signal_handler(number, stop, number)
    return stopped
