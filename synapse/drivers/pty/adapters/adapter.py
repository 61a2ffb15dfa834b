"""What listens to one CLI's own signals, as the driver and the runtime see it.

Which flags a CLI's version knows: asked once for each version, because a flag that it does not know ends it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, cast

from synapse.config.private_files import make_folders, write_private
from synapse.core.message import Json
from synapse.core.question import Choice
from synapse.drivers.pty.process import locate
from synapse.terminal.evidence import Source
from synapse.terminal.screen import Picture
from synapse.terminal.signals.report import Record, Saying, SignalReport


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """What an adapter may use of one launch."""

    folder: Path
    """Private to the launch. Whoever writes into it makes it and removes it."""
    url: str
    """Where hooks report to, over HTTP on loopback."""
    secret_header: str
    secret: str
    """Proves that a report comes from this launch; it is in private files only, never in a process list."""
    command: str
    """The CLI."""
    env: Mapping[str, str]
    """What it is started with."""
    working_dir: Path
    flags_file: Path
    """Where it is remembered which flags the CLI knows."""
    new_session: str
    """A name for its conversation: a UUID that nobody else has."""
    start_command: str
    """How a person starts such an agent again, as `synapse codex --name reviewer`."""
    started: str
    """When it is started, as transcripts write times: `2026-01-31T10:30:00.000Z`."""

    @property
    def home(self) -> Path:
        """The person's home, as the CLI sees it."""
        return Path(self.env.get("HOME", "~")).expanduser()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """How the CLI is to be started so that it tells what it does."""

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class NotTaken(Exception):
    """The CLI has certainly not taken a message: it may be typed, or tried again."""


class Sender(Protocol):
    """Hands messages over by the CLI's API instead of typing them."""

    async def send(self, text: str) -> str:
        """Hand one over; return what proves that it was taken.

        Raises NotTaken; any other failure leaves doubt.
        """
        ...


class Listener(Protocol):
    """Takes what a CLI says. The driver is one."""

    def quiet_for(self) -> float:
        """Seconds since the CLI last printed anything."""
        ...

    def typed(self) -> str:
        """The message that was typed last, whole; empty before the first."""
        ...

    def picture(self) -> Picture | None:
        """What its terminal shows now; None before it has shown anything."""
        ...

    def seems_ready(self) -> bool:
        """True if its terminal, by title and screen, shows that it is ready, whatever it said of itself."""
        ...

    def asks(self, question_id: str) -> bool:
        """True while the question that was reported under this id is asked, as far as its terminal shows."""
        ...

    def report(self, report: SignalReport) -> None: ...

    def say(self, saying: Saying) -> None:
        """Take what it has said so far in its turn."""
        ...

    def expect(self, source: Source, detail: str) -> None:
        """From now on `source` should say something; `detail` stands in its place until it does."""
        ...

    def mark_missing(self, source: Source, detail: str) -> None:
        """Nothing will come from `source`; `detail` says why, and `--explain` shows it."""
        ...


class Adapter(Protocol):
    """Listens to one CLI. Everything but `prepare` is called in the loop's thread."""

    def prepare(self, arguments: tuple[str, ...]) -> Prepared: ...

    def start(self, listener: Listener, pid: int, /) -> None:
        """The CLI runs, as this process."""
        ...

    def look(self) -> None:
        """Report what can be known by now; what it has written meanwhile may not have been read yet."""
        ...

    def receive(self, payload: Record) -> asyncio.Future[Json] | None:
        """One of its hooks reported; what the hook is answered, where it waits for that.

        Whoever waits for it may leave, and then cancels it.
        """
        ...

    async def answer(self, question_id: str, choice: Choice, /) -> bool:
        """Answer a question of its; True when the CLI took it its own way, False when it has none for this one.

        Raises QuestionGone when it was answered meanwhile, OSError, EOFError or ValueError when it may have been told.
        """
        ...

    def sender(self) -> Sender | None:
        """What hands messages over without typing, where and while the CLI has that."""
        ...

    def correction(self, shown: str, /) -> str:
        """What a person has to know whom the CLI's last words mislead; empty when they do not.

        `shown` is the end of what its terminal showed, without line breaks.
        """
        ...

    def stop(self) -> None:
        """The CLI has ended: take away what was made for it."""
        ...


_HELP_SECONDS: Final = 15.0
_MOST_REMEMBERED: Final = 50


def knows_flag(flag: str, around: LaunchContext) -> bool:
    """True if the CLI's help names the flag; what it said is remembered until the program changes."""
    path = locate(around.command, around.env.get("PATH"))
    if path is None:
        return False
    key = _version_key(Path(path), flag)
    remembered = _read(around.flags_file)
    if key not in remembered:
        remembered[key] = flag in _help(path, around)
        _write(around.flags_file, dict(list(remembered.items())[-_MOST_REMEMBERED:]))
    return remembered[key]


def _version_key(path: Path, flag: str) -> str:
    program = path.resolve()
    facts = program.stat()
    return f"{program} {facts.st_mtime_ns} {facts.st_size} {flag}"


def _help(path: str, around: LaunchContext) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # the program that is about to be started anyway
            (path, "--help"),
            env=dict(around.env),
            cwd=around.working_dir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_HELP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _read(file: Path) -> dict[str, bool]:
    try:
        value: object = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(value, Mapping):
        return {}
    return {str(key): known is True for key, known in cast("Mapping[object, object]", value).items()}


def _write(file: Path, known: Mapping[str, bool]) -> None:
    try:
        make_folders(file.parent)
        write_private(file, json.dumps(known, indent=1))
    except OSError:
        # It is asked again the next time.
        return
