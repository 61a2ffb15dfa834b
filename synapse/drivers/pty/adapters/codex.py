"""Codex: an app-server for this launch, whose clients are its TUI and we; otherwise its rollout file.

    host ── guard ── codex app-server ◄── Unix socket ──► codex --remote, in its terminal
                            ▲──────────── Unix socket ──► host: takes its events, answers, sends messages

Where that does not work (an older version, or arguments that such a TUI does not know), its rollout is followed while
it grows. No hook is switched on, so a person need not trust any. Either way, `-c` gives it the tools of its launch; it
starts their server outside of its sandbox.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from synapse.config.private_files import make_private
from synapse.config.trust import same_folder_in_main_worktree
from synapse.core.question import Choice
from synapse.drivers.pty.adapters.adapter import (
    SERVER_NAME,
    ApiSender,
    LaunchContext,
    Prepared,
    SignalListener,
    ToolServer,
    knows_flag,
    why_anew,
)
from synapse.drivers.pty.adapters.codex_client import CodexClient, CodexUsage
from synapse.drivers.pty.adapters.transcript import (
    TranscriptFollower,
    first_record,
    open_files,
    prompts_in,
    shows_open_files,
)
from synapse.drivers.pty.process import locate
from synapse.terminal.evidence import Source
from synapse.terminal.signals import codex
from synapse.terminal.signals.report import Record, SignalKind, table_at, text_at
from synapse.terminal.signals.usage import CodexRolloutUsage

NO_DAEMON: Final = "--no-daemon"
"""Without it Codex uses a shared background server, which lives on after the agent and writes the rollout itself."""
_REMOTE: Final = "--remote"
_REMOTE_FORM: Final = "unix://PATH"
"""In the help of a version whose TUI can use a server."""
_RESUMED: Final = re.compile(r"\bresume ([0-9a-f-]{36})")

# Arguments that mean the same to a TUI on an app-server (tried on 0.166). It refuses `--add-dir` and `--no-daemon`, and
# drops `--profile`; other verbs have no TUI, or no server.
_CONFIG_FLAGS: Final = ("-c", "--config", "--enable", "--disable")
_VALUE_FLAGS: Final = (*_CONFIG_FLAGS, "-m", "--model", "-s", "--sandbox", "-a", "--ask-for-approval")
_WORD_FLAGS: Final = (
    *(*_VALUE_FLAGS, "-i", "--image", "-p", "--profile", "--local-provider", "-C", "--cd", "--add-dir"),
    *("--remote", "--remote-auth-token-env"),
)
"""All flags whose value is the next word."""
_PLAIN_FLAGS: Final = ("--search", "--no-alt-screen", "--last", "--all")
_RESUME: Final = "resume"
_VERBS: Final = (_RESUME, "fork")

_SERVERS: Final = "mcp_servers"
_MARGIN_SECONDS: Final = 20.0
"""How much longer than a call waits Codex waits for it: the answer has to be fetched and sent."""
_SERVER_START_SECONDS: Final = 30
"""How long our MCP server may take to start, on a busy machine; Codex works meanwhile."""

_GUARD: Final = Path(__file__).with_name("server_guard.py")
_LOOK_SECONDS: Final = 0.005
_MAX_LOOKS: Final = 2000


class CodexAppServerSignals:
    """Implements Adapter with an app-server, and with the rollout where that does not work."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._rollout = CodexSignals(launch)
        self._missing = ""
        self._pid = 0
        self._socket = Path()
        self._server: GuardedServer | None = None
        self._client: CodexClient | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Starts the server, and lets the TUI use it."""
        lacks = lacks_tools(arguments, self._launch)
        resumed, anew = resuming(arguments, self._launch)
        # With a server of its own, a TUI uses no shared one and refuses the flag.
        remote = tuple(argument for argument in arguments if argument != NO_DAEMON)
        if not lacks:
            remote = with_config(remote, server_config(self._launch.tools))
        self._missing = self._start_server(remote)
        if self._missing:
            return self._rollout.prepare(arguments)
        return Prepared(
            arguments=(_REMOTE, f"unix://{self._socket}", *resumed, *remote),
            lacks_tools=lacks,
            resumes=bool(resumed),
            begins_anew=anew,
        )

    def start(self, listener: SignalListener, pid: int, /) -> None:
        if self._server is None:
            self._rollout.start(listener, pid)
            listener.mark_missing(Source.SIGNAL, self._missing)
            return
        listener.expect(Source.SIGNAL, "its server is switched on, and has said nothing yet")
        self._pid = pid
        self._client = CodexClient(
            self._socket.resolve(),
            listener.report,
            self._end_with_server,
            listener.say,
            self._launch.converse,
            CodexUsage(self._launch.started, listener.note_usage),
        )
        self._client.start()

    def look(self) -> None:
        # A server reports by itself.
        if self._server is None:
            self._rollout.look()

    def receive(self, payload: Record) -> None:
        """Does nothing: we give Codex no hooks."""

    async def answer(self, question_id: str, choice: Choice) -> bool:
        """Answers by the server; see `adapters.adapter.Adapter`."""
        return self._client is not None and await self._client.answer(question_id, choice)

    def sender(self) -> ApiSender | None:
        """Returns the client once the TUI has a conversation: then the server takes messages."""
        return self._client if self._client is not None and self._client.is_ready else None

    def prompts(self, session: str, /) -> Iterator[str]:
        return self._rollout.prompts(session)

    def correction(self, shown: str, /) -> str:
        """Corrects the TUI, which says how to come back to a server that has ended with it."""
        if self._server is None or str(self._socket) not in shown:
            return ""
        conversation = _RESUMED.search(shown)
        again = f"{self._launch.start_command} -- resume{f' {conversation[1]}' if conversation else ''}"
        return f"The server that Codex names has ended together with it, and nothing runs on. To go on: {again}"

    def stop(self) -> None:
        if self._client is not None:
            self._client.stop()
        if self._server is not None:
            self._server.stop()
            shutil.rmtree(self._launch.folder, ignore_errors=True)
        else:
            self._rollout.stop()

    def _end_with_server(self) -> bool:
        """Ends the TUI if the server has ended, for which it would wait for ever; returns whether that is so."""
        if self._server is None or not self._server.has_ended():
            return False
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)
        return True

    def _start_server(self, arguments: tuple[str, ...]) -> str:
        """Starts the server; returns why it cannot be started, or an empty text."""
        launch = self._launch
        path = locate(launch.command, launch.env.get("PATH"))
        if path is None or not knows_flag(_REMOTE_FORM, launch):
            return "this version has no server that its terminal can use: its rollout is followed"
        if not works_remotely(arguments):
            return "its arguments are not for a terminal with a server: its rollout is followed"
        if would_ask_for_trust(launch.working_dir, _codex_home(launch)):
            return "this folder has settings for it that are not trusted yet: its rollout is followed"
        # A name that no launch had: after a crash the server before this one may still be shutting down.
        self._socket = launch.folder / f"codex-{launch.new_session[:8]}.sock"
        command = (path, "app-server", *server_arguments(arguments), "--listen", f"unix://{self._socket}")
        try:
            make_private(launch.folder)
            server = GuardedServer(command, launch.env, launch.working_dir)
        except OSError as error:
            return f"its server cannot be started ({error.strerror}): its rollout is followed"
        if not server.wait_for(self._socket):
            server.stop()
            return "its server did not start: its rollout is followed"
        self._server = server
        return ""


class CodexSignals:
    """Implements Adapter with the rollout file."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._listener: SignalListener | None = None
        self._pid = 0
        self._follower: TranscriptFollower[Path | None] | None = None
        self._usage = CodexRolloutUsage()
        self._followed: Path | None = None
        self._thread = ""
        """The conversation of the rollout that is followed."""

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        lacks = lacks_tools(arguments, self._launch)
        given = arguments if lacks else with_config(arguments, server_config(self._launch.tools))
        if NO_DAEMON not in arguments and knows_flag(NO_DAEMON, self._launch):
            given = (NO_DAEMON, *given)
        resumed, anew = resuming(arguments, self._launch)
        return Prepared(arguments=(*resumed, *given), lacks_tools=lacks, resumes=bool(resumed), begins_anew=anew)

    def start(self, listener: SignalListener, pid: int, /) -> None:
        self._listener, self._pid = listener, pid
        listener.expect(Source.TRANSCRIPT, "its rollout has said nothing yet")
        self._follower = TranscriptFollower(self._find, self._choose, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is not None:
            self._follower.look()

    def receive(self, payload: Record) -> None:
        """Does nothing: we give Codex no hooks."""

    async def answer(self, _question_id: str, _choice: Choice) -> bool:
        """Returns False: a rollout is only read."""
        return False

    def sender(self) -> ApiSender | None:
        """Returns None: its messages are typed."""
        return None

    def prompts(self, session: str, /) -> Iterator[str]:
        rollout = _rollout_of(session, self._launch)
        return iter(()) if rollout is None else prompts_in(rollout, codex.read_record)

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def _find(self) -> Path | None:
        """Returns the rollout that this Codex writes; where open files are not shown, the newest of this folder."""
        if shows_open_files():
            files = open_files(self._pid)
            rollouts = [path for path in files if path.name.startswith("rollout-") and path.suffix == ".jsonl"]
            return next((path for path in rollouts if codex.is_conversation(first_record(path))), None)
        day = self._launch.started[:10].replace("-", "/")
        rollouts = sorted((_codex_home(self._launch) / "sessions" / day).glob("rollout-*.jsonl"), reverse=True)
        return next((path for path in rollouts if self._is_ours(first_record(path))), None)

    def _choose(self, rollout: Path | None) -> Path | None:
        if rollout is not None and rollout != self._followed:
            self._followed, self._thread = rollout, codex.thread_of(first_record(rollout))
            if self._thread != self._launch.resume:
                self._launch.converse("")
        return rollout

    def _is_ours(self, first: Record) -> bool:
        is_new = text_at(first, "timestamp") >= self._launch.started
        return codex.is_conversation(first) and is_new and codex.working_dir(first) == str(self._launch.working_dir)

    def _take(self, record: Record) -> None:
        # The rollout of a resumed conversation begins with the earlier turns.
        used = self._usage.read(record)
        if self._listener is None or text_at(record, "timestamp") < self._launch.started:
            return
        if used is not None:
            self._listener.note_usage(used)
        report = codex.read_record(record)
        if report is None:
            return
        if report.kind is SignalKind.SUBMITTED:
            self._launch.converse(self._thread)
        self._listener.report(report)


def resuming(arguments: tuple[str, ...], launch: LaunchContext) -> tuple[tuple[str, ...], str]:
    """Returns the words that go on with the conversation of the last run, or none and why."""
    if not launch.resume:
        return (), ""
    if has_words(arguments):
        # Another verb, or a prompt, which would be sent again.
        return (), "its own arguments choose what it begins with"

    def folder_of(thread: str) -> str | None:
        rollout = _rollout_of(thread, launch)
        return None if rollout is None else codex.working_dir(first_record(rollout))

    anew = why_anew(launch, arguments, knows=_RESUME, choosing=(), folder_of=folder_of)
    return ((), anew) if anew else ((_RESUME, launch.resume), "")


def _rollout_of(thread: str, launch: LaunchContext) -> Path | None:
    rollouts = (_codex_home(launch) / "sessions").glob(f"*/*/*/rollout-*{thread}.jsonl")
    return next((path for path in rollouts if codex.thread_of(first_record(path)) == thread), None)


def lacks_tools(arguments: tuple[str, ...], launch: LaunchContext) -> str:
    """Returns why Codex is not given the MCP server of its launch; an empty text if it is, or if there is none."""
    if not launch.tools.command:
        return ""
    if not knows_flag(_REMOTE_FORM, launch):
        return "this version of Codex cannot be given an MCP server whose tools are allowed"
    if SERVER_NAME in configured_servers(arguments):
        return f"the arguments have an MCP server named {SERVER_NAME}, which is left alone"
    folders = (
        _codex_home(launch),
        *(folder / ".codex" for folder in (launch.working_dir, *launch.working_dir.parents)),
    )
    for file in (folder / "config.toml" for folder in folders):
        if SERVER_NAME in table_at(_read_config(file), _SERVERS):
            return f"{file} has an MCP server named {SERVER_NAME}, which is left alone"
    return ""


def server_config(tools: ToolServer) -> str:
    """Returns the configuration of our MCP server, as `-c` takes it; an empty text if there is none.

    Codex passes only the variables that it is told to pass, and asks a person for each call unless it is told not to.
    """
    if not tools.command:
        return ""
    program, *words = tools.command
    fields = {
        "command": _toml_text(program),
        "args": _toml_list(words),
        "env_vars": _toml_list(tools.env),
        "default_tools_approval_mode": _toml_text("approve"),
        "startup_timeout_sec": str(_SERVER_START_SECONDS),
        "tool_timeout_sec": f"{tools.wait_seconds + _MARGIN_SECONDS:g}",
    }
    return f"{_SERVERS}.{SERVER_NAME}={{{','.join(f'{key}={value}' for key, value in fields.items())}}}"


def with_config(arguments: tuple[str, ...], config: str) -> tuple[str, ...]:
    """Returns the arguments with a configuration after the person's own, which may replace whole tables."""
    if not config:
        return arguments
    place = 0
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument in _CONFIG_FLAGS:
            place = index + 2
        elif _is_joined(argument, _CONFIG_FLAGS):
            place = index + 1
    return (*arguments[:place], "-c", config, *arguments[place:])


def configured_servers(arguments: tuple[str, ...]) -> set[str]:
    """Returns the names of the MCP servers that the person's own arguments configure."""
    names = set[str]()
    for argument in server_arguments(arguments):
        setting = argument.partition("=")[2] if _is_joined(argument, ("--config",)) else argument
        key, _, value = setting.partition("=")
        table, _, rest = key.strip().partition(".")
        if table == _SERVERS and rest:
            names.add(rest.partition(".")[0])
        elif table == _SERVERS:
            with suppress(ValueError):
                names |= table_at(tomllib.loads(f"{_SERVERS}={value}"), _SERVERS).keys()
    return names


def _toml_text(text: str) -> str:
    # TOML escapes as JSON does, but has no surrogate pairs, and no bare DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_list(texts: Iterable[str]) -> str:
    return f"[{','.join(map(_toml_text, texts))}]"


def has_words(arguments: tuple[str, ...]) -> bool:
    """Returns whether the arguments have a verb or a prompt."""
    rest = iter(arguments)
    for argument in rest:
        if argument in _WORD_FLAGS:
            next(rest, "")
        elif not argument.startswith("-"):
            return True
    return "--" in arguments


def works_remotely(arguments: tuple[str, ...]) -> bool:
    """Returns whether a TUI on an app-server takes all arguments."""
    rest = list(arguments)
    has_verb = False
    while rest:
        argument = rest.pop(0)
        if argument in _VALUE_FLAGS and rest:
            rest.pop(0)
        elif argument in _VERBS and not has_verb:
            has_verb = True
        elif argument.startswith("-"):
            if argument not in _PLAIN_FLAGS and not _is_joined(argument, _VALUE_FLAGS):
                return False
        elif not has_verb:
            return False
    return True


def server_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the arguments that configure the server as well as the TUI."""
    kept: list[str] = []
    for index, argument in enumerate(arguments):
        if argument in _CONFIG_FLAGS:
            kept += arguments[index : index + 2]
        elif _is_joined(argument, _CONFIG_FLAGS):
            kept.append(argument)
    return tuple(kept)


def _is_joined(argument: str, flags: tuple[str, ...]) -> bool:
    """Returns whether the argument is `--flag=value` for one of the flags."""
    flag, equals, _ = argument.partition("=")
    return bool(equals) and flag.startswith("--") and flag in flags


def would_ask_for_trust(working_dir: Path, codex_home: Path) -> bool:
    """Returns whether Codex would ask a person to trust the settings of the folder, or of one above it.

    A TUI with a server ignores such settings without asking.
    """
    folders = (working_dir, *working_dir.parents)
    settings = (folder / ".codex" for folder in folders)
    if not any(folder.is_dir() and folder != codex_home for folder in settings):
        return False
    projects = table_at(_read_config(codex_home / "config.toml"), "projects")
    # In a worktree it asks about the repository.
    main = same_folder_in_main_worktree(working_dir)
    known = (*folders, main, *main.parents) if main else folders
    return not any(table_at(projects, str(folder)) for folder in known)


def _read_config(file: Path) -> Record:
    """Returns a configuration of Codex; an empty one if it cannot be read, which Codex itself reports."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _codex_home(launch: LaunchContext) -> Path:
    return Path(launch.env.get("CODEX_HOME") or launch.home / ".codex")


class GuardedServer:
    """A CLI's own server, which never runs longer than this process; see `server_guard`.

    Start it in a thread that may wait; `stop` may be called in any thread.
    """

    def __init__(self, command: tuple[str, ...], env: Mapping[str, str], working_dir: Path) -> None:
        """Starts the server.

        Raises OSError when it cannot be started.
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
        """Waits until the server listens on its socket; False if it has ended, or takes too long."""
        for _ in range(_MAX_LOOKS):
            if socket.exists():
                return True
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(_LOOK_SECONDS)
                return False
        return False

    def has_ended(self) -> bool:
        return self._guard.poll() is not None

    def stop(self) -> None:
        """Tells the server to end; a thread waits for its end."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        # Not a daemon thread: this process does not exit before the server has.
        threading.Thread(target=self._guard.wait, name="server-guard").start()
