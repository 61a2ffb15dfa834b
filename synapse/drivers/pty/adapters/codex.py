"""Codex: its rollout file, followed while it grows. Nothing is switched on, so nobody's hooks need to be trusted.

A shared background server would live on after the agent and write the rollout in Codex's place: it is left out.

Codex: a server of its own for this launch, whose clients are its TUI and we.

    host ── guard ── codex app-server ◄── Unix socket ──► codex --remote, in its terminal
                            ▲──────────── Unix socket ──► host: hears everything, answers, hands messages over

Where that cannot be (an older version, arguments that such a TUI does not know), its rollout is followed instead.

Which arguments mean the same to a Codex TUI that has an app-server (tried on 0.166), and which that needs too.

Whether Codex would ask if a folder's own settings are trusted: a TUI with a server leaves them out unasked.

A server of a CLI's own that runs beside it, and never longer than we do; see `server_guard`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from synapse.config.private_files import make_private
from synapse.core.question import Choice
from synapse.drivers.pty.adapters.adapter import LaunchContext, Listener, Prepared, Sender, knows_flag
from synapse.drivers.pty.adapters.codex_client import CodexClient
from synapse.drivers.pty.adapters.transcript import TranscriptFollower, can_tell, first_record, open_files
from synapse.drivers.pty.process import locate
from synapse.terminal.evidence import Source
from synapse.terminal.signals import codex
from synapse.terminal.signals.report import Record, part, word

NO_DAEMON: Final = "--no-daemon"


class CodexSignals:
    """Implements Adapter."""

    def __init__(self, around: LaunchContext) -> None:
        self._around = around
        self._listener: Listener | None = None
        self._pid = 0
        self._follower: TranscriptFollower | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        if NO_DAEMON in arguments or not knows_flag(NO_DAEMON, self._around):
            return Prepared(arguments=arguments)
        return Prepared(arguments=(NO_DAEMON, *arguments))

    def start(self, listener: Listener, pid: int, /) -> None:
        self._listener, self._pid = listener, pid
        listener.expect(Source.TRANSCRIPT, "its rollout has said nothing yet")
        self._follower = TranscriptFollower(self._find, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is not None:
            self._follower.look()

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    async def answer(self, _question_id: str, _choice: Choice) -> bool:
        """Its rollout is read only."""
        return False

    def sender(self) -> Sender | None:
        """Its messages are typed."""
        return None

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def _find(self) -> Path | None:
        """The rollout that this Codex writes; where open files cannot be told, the newest of this folder."""
        if can_tell():
            rollouts = [path for path in open_files(self._pid) if _is_rollout(path)]
            return next((path for path in rollouts if codex.is_conversation(first_record(path))), None)
        return next((path for path in self._new_rollouts() if self._is_here(first_record(path))), None)

    def _new_rollouts(self) -> list[Path]:
        sessions = Path(self._around.env.get("CODEX_HOME") or self._around.home / ".codex") / "sessions"
        day = self._around.started[:10].replace("-", "/")
        return sorted((sessions / day).glob("rollout-*.jsonl"), reverse=True)

    def _is_here(self, first: Record) -> bool:
        is_new = word(first, "timestamp") >= self._around.started
        return codex.is_conversation(first) and is_new and codex.working_dir(first) == str(self._around.working_dir)

    def _take(self, record: Record) -> None:
        # A conversation that is resumed begins with what was said before.
        if self._listener is None or word(record, "timestamp") < self._around.started:
            return
        report = codex.read_record(record)
        if report is not None:
            self._listener.report(report)


def _is_rollout(path: Path) -> bool:
    return path.name.startswith("rollout-") and path.suffix == ".jsonl"


_REMOTE: Final = "--remote"
_RESUMED: Final = re.compile(r"\bresume ([0-9a-f-]{36})")
_FORM: Final = "unix://PATH"
"""How the help of a version says that it can do this."""


class CodexAppServerSignals:
    """Implements Adapter."""

    def __init__(self, around: LaunchContext) -> None:
        self._around = around
        self._rollout = CodexSignals(around)
        self._missing = ""
        self._pid = 0
        self._socket = Path()
        self._server: GuardedServer | None = None
        self._client: CodexClient | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Start its server, and have the TUI use it."""
        # A TUI that has a server knows nothing of the shared one, and refuses to be told to do without.
        remotely = tuple(argument for argument in arguments if argument != NO_DAEMON)
        self._missing = self._start_server(remotely)
        if self._missing:
            return self._rollout.prepare(arguments)
        return Prepared(arguments=(_REMOTE, f"unix://{self._socket}", *remotely))

    def start(self, listener: Listener, pid: int, /) -> None:
        if self._server is None:
            self._rollout.start(listener, pid)
            listener.mark_missing(Source.SIGNAL, self._missing)
            return
        listener.expect(Source.SIGNAL, "its server is switched on, and has said nothing yet")
        self._pid = pid
        self._client = CodexClient(self._socket.resolve(), listener.report, self._is_over, listener.say)
        self._client.start()

    def look(self) -> None:
        """Its server tells by itself."""
        if self._server is None:
            self._rollout.look()

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    async def answer(self, question_id: str, choice: Choice) -> bool:
        """Tell its server; see `signals.adapter.Adapter`."""
        return self._client is not None and await self._client.answer(question_id, choice)

    def sender(self) -> Sender | None:
        """Its server takes messages as soon as its TUI has a conversation."""
        return self._client if self._client is not None and self._client.is_ready else None

    def correction(self, shown: str, /) -> str:
        """Its TUI says how to come back to a server that has ended with it."""
        if self._server is None or str(self._socket) not in shown:
            return ""
        conversation = _RESUMED.search(shown)
        again = f"{self._around.start_command} -- resume{f' {conversation[1]}' if conversation else ''}"
        return f"The server that Codex names has ended together with it, and nothing runs on. To go on: {again}"

    def stop(self) -> None:
        if self._client is not None:
            self._client.stop()
        if self._server is not None:
            self._server.stop()
            shutil.rmtree(self._around.folder, ignore_errors=True)
        else:
            self._rollout.stop()

    def _is_over(self) -> bool:
        """True if the server has ended. Its TUI would wait for it for ever; both end together, as one program would."""
        if self._server is None or not self._server.has_ended():
            return False
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)
        return True

    def _start_server(self, arguments: tuple[str, ...]) -> str:
        """Start it; return why it cannot be, or nothing."""
        around = self._around
        path = locate(around.command, around.env.get("PATH"))
        if path is None or not knows_flag(_FORM, around):
            return "this version has no server that its terminal can use: its rollout is followed"
        if not is_known_remotely(arguments):
            return "its arguments are not for a terminal with a server: its rollout is followed"
        if would_ask(around.working_dir, Path(around.env.get("CODEX_HOME") or around.home / ".codex")):
            return "this folder has settings for it that are not trusted yet: its rollout is followed"
        # A name that no launch had: after a crash the server before this one may still be on its way out.
        self._socket = around.folder / f"codex-{around.new_session[:8]}.sock"
        command = (path, "app-server", *for_server(arguments), "--listen", f"unix://{self._socket}")
        try:
            make_private(around.folder)
            server = GuardedServer(command, around.env, around.working_dir)
        except OSError as error:
            return f"its server cannot be started ({error.strerror}): its rollout is followed"
        if not server.wait_for(self._socket):
            server.stop()
            shutil.rmtree(around.folder, ignore_errors=True)
            return "its server did not start: its rollout is followed"
        self._server = server
        return ""


_CONFIGURING: Final = ("-c", "--config", "--enable", "--disable")
_VALUED: Final = (*_CONFIGURING, "-m", "--model", "-s", "--sandbox", "-a", "--ask-for-approval")
_PLAIN: Final = ("--search", "--no-alt-screen", "--last", "--all")
_VERBS: Final = ("resume", "fork")


def is_known_remotely(arguments: tuple[str, ...]) -> bool:
    """True if a TUI on an app-server takes all of them.

    It refuses `--add-dir` and `--no-daemon`, and drops `--profile`; other commands have no TUI, or no server.
    """
    rest = list(arguments)
    is_verb_known = False
    while rest:
        argument = rest.pop(0)
        if argument in _VALUED and rest:
            rest.pop(0)
        elif argument in _VERBS and not is_verb_known:
            is_verb_known = True
        elif argument.startswith("-"):
            if argument not in _PLAIN and not _is_joined(argument, _VALUED):
                return False
        elif not is_verb_known:
            return False
    return True


def for_server(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Those that configure the server as well as the TUI."""
    kept: list[str] = []
    for index, argument in enumerate(arguments):
        if argument in _CONFIGURING:
            kept += arguments[index : index + 2]
        elif _is_joined(argument, _CONFIGURING):
            kept.append(argument)
    return tuple(kept)


def _is_joined(argument: str, flags: tuple[str, ...]) -> bool:
    """True for `--flag=value`."""
    flag, equals, _ = argument.partition("=")
    return bool(equals) and flag.startswith("--") and flag in flags


def would_ask(working_dir: Path, codex_home: Path) -> bool:
    """True if the folder, or one around it, has settings for Codex, and nobody has said yet whether they count."""
    folders = (working_dir, *working_dir.parents)
    own = (folder / ".codex" for folder in folders)
    if not any(settings.is_dir() and settings != codex_home for settings in own):
        return False
    projects = part(_config(codex_home), "projects")
    return not any(part(projects, str(folder)) for folder in folders)


def _config(codex_home: Path) -> Record:
    try:
        return tomllib.loads((codex_home / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


_GUARD: Final = Path(__file__).with_name("server_guard.py")
_LOOK_SECONDS: Final = 0.005
_MOST_LOOKS: Final = 2000


class GuardedServer:
    """Started in a thread that may wait; ended from anywhere."""

    def __init__(self, command: tuple[str, ...], env: Mapping[str, str], working_dir: Path) -> None:
        """Start it.

        Raises:
            OSError: it cannot be.
        """
        self._guard = subprocess.Popen(  # noqa: S603  # the CLI that is about to be started anyway
            (sys.executable, "-I", "-S", str(_GUARD), *command),
            env=dict(env),
            cwd=working_dir,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for(self, socket: Path) -> bool:
        """Wait until it listens there; False if it has ended, or takes too long."""
        for _ in range(_MOST_LOOKS):
            if socket.exists():
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(_LOOK_SECONDS)
                return False
        return False

    def has_ended(self) -> bool:
        """True once it runs no more."""
        return self._guard.poll() is not None

    def stop(self) -> None:
        """Let it end; it takes a moment, which is waited for in a thread."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        # Not a daemon: this process does not leave before the server has.
        threading.Thread(target=self._guard.wait, name="server-guard").start()
