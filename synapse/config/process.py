"""The log of a host or a gateway: a line of JSON for each event, in a private file; never where a CLI draws.

Where ids come from.

The real time.

The event loop of hosts, and of commands that read the store.

The limit of open files: raised for hosts and gateways, where each connection is one, and not for their programs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import resource
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

_UNSEEN: Final = re.compile(r"[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
LARGEST_LOG: Final = 4 * 1024 * 1024
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class _JsonLine(logging.Formatter):
    """An event with its name, its time and the fields that it was given."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "room": record.name.removeprefix("synapse."),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(fields, ensure_ascii=False, default=str)
        # A person reads this in a terminal: what JSON leaves as it is and a terminal obeys is escaped too.
        return text if text.isprintable() else _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


class _LogFile(logging.Handler):
    """Appends to a private file; one that has grown large is set aside, in the place of the one before it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file = self._opened()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._file.write(self.format(record) + "\n")
            self._file.flush()
            if self._file.tell() > LARGEST_LOG:
                # The new one first: where it cannot be made, the old one goes on.
                full, self._file = self._file, self._opened()
                full.close()
        except OSError:
            pass  # a full disk: what fits in the buffer is written later; logging would say so where a CLI draws
        except Exception:  # noqa: BLE001 - nobody who logs something fails because of it
            self.handleError(record)

    @override
    def close(self) -> None:
        with suppress(OSError):  # what the disk has no room for even now is lost
            self._file.close()
        super().close()

    def _opened(self) -> TextIO:
        if self._path.exists() and self._path.stat().st_size > LARGEST_LOG:
            self._path.replace(self._path.with_suffix(".log.1"))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")


def log_to(folder: Path, agent_id: str, name: str = "") -> Path:
    """Write this process's log to `folder`. Return its path.

    It can be found by the agent's given name too, also when the agent has left the registry.
    """
    make_private(folder)
    path = folder / f"{agent_id}.log"
    handler = _LogFile(path)
    handler.setFormatter(_JsonLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_level(os.environ.get("SYNAPSE_LOG_LEVEL", "INFO")))
    # The server's everyday words are no events; ours say when it starts and ends.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    if name:
        _call(path, name)
    return path


def _level(name: str) -> int:
    """The level of that name; of none at all, the usual one."""
    return logging.getLevelNamesMapping().get(name.strip().upper(), logging.INFO)


def _call(path: Path, name: str) -> None:
    """Let `name` mean this log, whoever had the name before."""
    link = path.with_name(f"{name}.log")
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)


_AT_ONCE: Final = 256
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_id() -> str:
    """Return an id that nothing else has: of a message, or whatever else. A UUID of version 4."""
    return next(_IDS)


def new_task_id() -> str:
    """Return the id of a new task: a UUID of version 8, which begins at random and ends with the time.

    People type its beginning. And what is kept in the order of its end is kept in the order in which it came.
    """
    noise = next(_IDS)
    return f"{noise[:14]}8{noise[15:24]}{_now()}"


def new_context_id() -> str:
    """Return the id of a new conversation: a UUID of version 7, which begins with the time.

    Nobody types one, so its beginning need not be its own; and what is kept in the order of its id is then kept in the
    order in which it came.
    """
    when = _now()
    return f"{when[:8]}-{when[8:]}-7{next(_IDS)[15:]}"


def _now() -> str:
    """Milliseconds since 1970."""
    return f"{time.time_ns() // 1_000_000:012x}"


def _mint() -> Iterator[str]:
    while True:
        # One call for many ids. Asking the system lets go of the interpreter, and while the store writes it takes
        # fifty times as long to get it back as the call takes.
        noise = os.urandom(16 * _AT_ONCE).hex()
        for start in range(0, len(noise), 32):
            digits = noise[start : start + 32]
            yield (f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}")


_IDS: Final = _mint()


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# CLOCK_BOOTTIME goes on while the machine sleeps; only Linux has it, and a boot id beside it.
_SINCE_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """Implements core.clock.Clock with the machine's clocks."""

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
    """The boot's own id, read once."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine, as `asyncio.run` does.

    The standard loop is woken from other threads by a socket, on which a sandbox may forbid to send: it would never
    learn that the store has answered.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop: about twice as fast as the standard one for what a host does."""
    import uvloop  # noqa: PLC0415 - only those who need it pay for it

    return uvloop.new_event_loop()


FILES_WANTED: Final = 65_536

Limit = tuple[int, int]
"""The soft and the hard limit."""


def raise_file_limit() -> Limit:
    """Raise this process's soft limit towards its hard one, and return the limit as it was.

    A host does this after its program was started, so that the program has the limit that its user gave it: programs
    that close every possible file, or that use select(), are slow or wrong with a large one.
    """
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return before


def set_file_limit(limit: Limit) -> None:
    """Give this process the limit that it began with."""
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def give_file_limit(pid: int, limit: Limit) -> None:
    """Give a child that has just been started the limit that this process began with, where the system can do that."""
    if sys.platform != "linux":
        return
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    except (OSError, ValueError):
        return  # it has ended already


def open_file_limit() -> int:
    """How many files this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft
