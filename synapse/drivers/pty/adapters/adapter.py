"""The port between a CLI's adapter and its driver and host, and the flags that a CLI's version knows.

An adapter makes the CLI report its own state, answers its questions where it has an API for that, and sends messages
to it. A CLI exits when it gets a flag that it does not know, so `knows_flag` asks its help, once for each version.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol, cast

from synapse.config.private_files import make_folders, write_private
from synapse.core.driver import SendOutcome
from synapse.core.message import Json
from synapse.core.question import Choice
from synapse.core.usage import UsageReport
from synapse.drivers.pty.process import locate
from synapse.terminal.evidence import Source
from synapse.terminal.picture import Picture
from synapse.terminal.signals.report import Record, SignalReport, TextSoFar

SERVER_NAME: Final = "synapse"
"""The name of the MCP server of a launch; its tools' names begin with it."""
_HELP_SECONDS: Final = 15.0
_MAX_REMEMBERED: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """The tools that a launch gives to the model of its CLI; see `LaunchContext.tools`."""

    command: tuple[str, ...] = ()
    """Runs the MCP server (`synapse mcp`); empty when the CLI is given none."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """The variables that the server needs, for a CLI that does not pass on its own environment."""
    wait_seconds: float = 0.0
    """The longest wait in one call. Where a CLI has a limit of its own, the launch raises it above this."""
    allowed_commands: tuple[str, ...] = ()
    """The beginnings of shell commands that the CLI may run without asking, such as `synapse reply`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """What an adapter knows of one launch of its CLI."""

    folder: Path
    """Private to the launch. An adapter that writes into it makes it and removes it."""
    url: str
    """Where hooks report to, over HTTP on loopback."""
    secret_header: str
    secret: str
    """Proves that a report comes from this launch; it is in private files only, never in a process list."""
    command: str
    """The CLI."""
    env: Mapping[str, str]
    """The environment of the CLI."""
    working_dir: Path
    flags_file: Path
    """Remembers which flags the CLI knows."""
    new_session: str
    """A unique name for its session: a UUID."""
    start_command: str
    """How a person starts such an agent again, as `synapse codex --name reviewer`."""
    started: str
    """When the CLI is started, as transcripts write times: `2026-01-31T10:30:00.000Z`."""
    tools: ToolServer = ToolServer()
    """Given to the CLI for this launch only, together with the permission to use exactly these."""
    resume: str = ""
    """The session of the agent's last run that the CLI is to go on with; empty for a new conversation."""
    converse: Callable[[str], None] = lambda _: None
    """Takes the CLI's own id of its session each time a turn begins in it; an empty one when a person has begun a
    conversation that has no turn yet. Called in the loop's thread."""

    @property
    def home(self) -> Path:
        """The person's home, as the CLI sees it."""
        return Path(self.env.get("HOME", "~")).expanduser()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """How to start the CLI so that it reports its state."""

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    lacks_tools: str = ""
    """Why the CLI was not given the MCP server of its launch; empty if it was, or if the launch has none."""
    resumes: bool = False
    """Whether the CLI goes on with the session `LaunchContext.resume`."""
    begins_anew: str = ""
    """Why it does not, where the launch has one."""


class NotTaken(Exception):
    """The CLI has certainly not taken a message, which may be typed or sent again."""


class Busy(NotTaken):
    """The CLI has certainly not taken a message because another turn began first: it is sent again after that turn."""


class ApiSender(Protocol):
    """Sends messages by the CLI's API, so that they need not be typed."""

    async def send(self, text: str, key: str, /) -> str:
        """Sends one message; returns the proof that the CLI took it.

        `key` names the message, for a CLI that reports it together with the message; see `SignalReport.key`.

        Raises NotTaken, or Busy. After any other error the message is in doubt.
        """
        ...

    async def reconcile(self, key: str, /) -> SendOutcome:
        """Returns what became of a message that an earlier host was sending; withdraws it if it only waits there."""
        ...


class SignalListener(Protocol):
    """Takes a CLI's signals from its adapter, and tells the adapter what its terminal shows. The driver is one."""

    def quiet_for(self) -> float:
        """Returns the seconds since the CLI last printed anything."""
        ...

    def typed(self) -> str:
        """Returns the last message that was typed, whole; empty before the first."""
        ...

    def picture(self) -> Picture | None:
        """Returns what its terminal shows now; None before it has shown anything."""
        ...

    def seems_ready(self) -> bool:
        """Returns whether its terminal, by title and screen, shows that it is ready, whatever it reported."""
        ...

    def asks(self, question_id: str) -> bool:
        """Returns whether the question that was reported under this id is still asked, by what its terminal shows."""
        ...

    def report(self, report: SignalReport) -> None: ...

    def say(self, saying: TextSoFar) -> None:
        """Takes what the CLI has said so far in its turn."""
        ...

    def note_usage(self, usage: UsageReport) -> None:
        """Takes what one request to the model cost; the same one may be told again."""
        ...

    def expect(self, source: Source, detail: str) -> None:
        """Expects reports of `source` from now on; `detail` is shown in its place until the first."""
        ...

    def mark_missing(self, source: Source, detail: str) -> None:
        """Notes that `source` will report nothing; `detail` says why, and `--explain` shows it."""
        ...

    def hold(self, why: str) -> None:
        """Keeps every message waiting, whatever its terminal shows, until this is called with an empty text."""
        ...


class Adapter(Protocol):
    """Connects one CLI. All methods but `prepare` are called in the loop's thread."""

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Returns how to start the CLI with these arguments."""
        ...

    def start(self, listener: SignalListener, pid: int, /) -> None:
        """Begins to report: the CLI runs as this process."""
        ...

    def look(self) -> None:
        """Reads and reports what the CLI has written by now."""
        ...

    def receive(self, payload: Record) -> asyncio.Future[Json] | None:
        """Takes a report of a hook; returns the answer that the hook waits for, if it does.

        The caller cancels the future when the hook leaves.
        """
        ...

    async def answer(self, question_id: str, choice: Choice, /) -> bool:
        """Answers a question by the CLI's API or hook; False when it has none for this question.

        Raises QuestionGone when it was answered meanwhile; OSError, EOFError or ValueError when it is not certain that
        the CLI got the answer.
        """
        ...

    def sender(self) -> ApiSender | None:
        """Returns what sends messages without typing; None while the CLI has no such way."""
        ...

    def prompts(self, session: str, /) -> Iterable[str]:
        """Returns the prompts in the transcript of a session; none if it is gone. Called in a thread."""
        ...

    def correction(self, shown: str, /) -> str:
        """Returns a correction of the CLI's last output where that misleads a person; empty where it does not.

        `shown` is the end of what its terminal showed, without line breaks.
        """
        ...

    def stop(self) -> None:
        """Removes what was made for the CLI, which has ended."""
        ...


def knows_flag(flag: str, launch: LaunchContext) -> bool:
    """Returns whether the CLI's help names the flag; the result is remembered until the program changes."""
    path = locate(launch.command, launch.env.get("PATH"))
    if path is None:
        return False
    program = Path(path).resolve()
    facts = program.stat()
    version = f"{program} {facts.st_mtime_ns} {facts.st_size}"
    key = f"{version} {flag}"
    remembered = _read_flags(launch.flags_file)
    if key not in remembered:
        text = _read_help(path, version, launch.working_dir, tuple(launch.env.items()))
        if not text:
            # It did not answer in time: the next launch asks again.
            return False
        remembered[key] = flag in text
        _write_flags(launch.flags_file, dict(list(remembered.items())[-_MAX_REMEMBERED:]))
    return remembered[key]


def why_anew(
    launch: LaunchContext,
    arguments: tuple[str, ...],
    *,
    knows: str,
    choosing: tuple[str, ...],
    folder_of: Callable[[str], str | None],
) -> str:
    """Returns why the CLI begins a new conversation instead of `launch.resume`; empty if it goes on with that.

    `knows` is what the help of a version that can resume has (empty: all can). By the flags in `choosing` a person
    chooses the conversation. `folder_of` returns the folder that a session belongs to, or None if it is gone.
    """
    if not launch.resume:
        return ""
    if is_given(choosing, arguments):
        return "its own arguments choose the conversation"
    folder = folder_of(launch.resume)
    if folder is None:
        return "its CLI no longer has the conversation of the last run"
    if Path(folder).resolve() != launch.working_dir.resolve():
        return "the conversation of the last run belongs to another folder"
    return "" if not knows or knows_flag(knows, launch) else f"this version does not know {knows}"


def is_given(flags: tuple[str, ...], arguments: tuple[str, ...]) -> bool:
    """Returns whether one of the flags is among a person's arguments: `--flag`, `--flag=value`, or `-f`."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(argument.partition("=")[0] in flags for argument in ours)


def values_of(flag: str, arguments: tuple[str, ...]) -> list[str]:
    """Returns the values of a flag that takes one or several: `--flag a b`, `--flag=a`, and again."""
    found: list[str] = []
    is_open = False
    for argument in arguments:
        if argument == "--":
            break
        name, equals, value = argument.partition("=")
        if name == flag:
            found += [value] if equals else []
            is_open = True
        elif argument.startswith("-"):
            is_open = False
        elif is_open:
            found.append(argument)
    return found


@lru_cache(maxsize=1)
def _read_help(path: str, _version: str, working_dir: Path, env: tuple[tuple[str, str], ...]) -> str:
    """Runs a CLI for its help, once for all the flags that a launch asks for."""
    try:
        done = subprocess.run(  # noqa: S603  # the program that is about to be started anyway
            (path, "--help"),
            env=dict(env),
            cwd=working_dir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_HELP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _read_flags(file: Path) -> dict[str, bool]:
    try:
        value: object = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(value, Mapping):
        return {}
    return {str(key): known is True for key, known in cast("Mapping[object, object]", value).items()}


def _write_flags(file: Path, known: Mapping[str, bool]) -> None:
    try:
        make_folders(file.parent)
        write_private(file, json.dumps(known, indent=1))
    except OSError:
        # The next launch asks the CLI again.
        return
