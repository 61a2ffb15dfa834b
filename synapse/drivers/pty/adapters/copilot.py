"""Copilot CLI: the events file of the session that it has open.

We choose the name of its first session. A person may begin another in its terminal, or resume one; Copilot keeps a file
open in the folder of its current session.

Our MCP server comes by a private file, and `--allow-tool` names exactly this server; both flags add to the person's
own, and a person's `--deny-tool` wins. Our shell commands get no rule: Copilot takes one for a program, not for its
first words, and all of `synapse` would be too much.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from synapse.config.cli_configs import parse_config, read_configs, table_in
from synapse.config.private_files import make_private, write_private
from synapse.core.question import Choice
from synapse.drivers.pty.adapters.adapter import (
    SERVER_NAME,
    ApiSender,
    LaunchContext,
    Prepared,
    SignalListener,
    knows_flag,
    values_of,
    why_anew,
)
from synapse.drivers.pty.adapters.transcript import (
    TranscriptFollower,
    first_records,
    name_session,
    open_files,
    prompts_in,
    shows_open_files,
)
from synapse.terminal.evidence import Source
from synapse.terminal.signals.copilot import CopilotEvents
from synapse.terminal.signals.report import Record, SignalKind, text_at
from synapse.terminal.signals.usage import CopilotUsage

_SERVERS_FLAG: Final = "--additional-mcp-config"
_TIMEOUT_MARGIN_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.05
_MAX_LOOKS: Final = 100
_HOLD: Final = "inuse.*.hold"
_LOCK: Final = "inuse.*.lock"
_EVENTS: Final = "events.jsonl"
_PROMPT: Final = "user.message"
_RESUME_FLAG: Final = "--resume"
_OLD_CONVERSATION: Final = (_RESUME_FLAG, "-r", "--continue", "--connect")
_CHOOSING_CONVERSATION: Final = (*_OLD_CONVERSATION, "--session-id", "-p", "--prompt")


class CopilotSignals:
    """Implements Adapter for Copilot CLI."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._session = ""
        self._pid = 0
        self._has_server = False
        """Whether the launch's folder holds the configuration of our MCP server."""
        self._events = CopilotEvents()
        self._usage = CopilotUsage()
        self._followed: Path | None = None
        """The events of the session that it has open."""
        self._listener: SignalListener | None = None
        self._follower: TranscriptFollower[Path | None] | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        anew = why_anew(
            self._launch, arguments, knows=_RESUME_FLAG, choosing=_CHOOSING_CONVERSATION, folder_of=self._folder_of
        )
        if self._launch.resume and not anew:
            anew = self._why_in_use(self._launch.resume)
        resumes = bool(self._launch.resume) and not anew
        if resumes:
            self._session = self._launch.resume
            named = (f"{_RESUME_FLAG}={self._session}", *arguments)
        else:
            named, self._session = name_session(arguments, self._launch, _OLD_CONVERSATION)
        return replace(self._with_tools(arguments, named), resumes=resumes, begins_anew=anew)

    def start(self, listener: SignalListener, pid: int, /) -> None:
        self._listener, self._pid = listener, pid
        if self._session or shows_open_files():
            listener.expect(Source.TRANSCRIPT, "its events have said nothing yet")
        else:
            listener.mark_missing(
                Source.TRANSCRIPT, "its session has no name of ours, and this system does not show which it is"
            )
        self._follower = TranscriptFollower(self._find, self._choose, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is not None:
            self._follower.look()

    def receive(self, payload: Record) -> None:
        """Does nothing: we give Copilot no hooks."""

    async def answer(self, _question_id: str, _choice: Choice, /) -> bool:
        return False

    def sender(self) -> ApiSender | None:
        return None

    def prompts(self, session: str, /) -> Iterator[str]:
        return prompts_in(self._sessions / session / _EVENTS, CopilotEvents().read)

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()
        if self._has_server:
            shutil.rmtree(self._launch.folder, ignore_errors=True)

    def _with_tools(self, arguments: tuple[str, ...], named: tuple[str, ...]) -> Prepared:
        if not self._launch.tools.command:
            return Prepared(arguments=named)
        lacks = self._why_no_tools(arguments)
        if lacks:
            return Prepared(arguments=named, lacks_tools=lacks)
        # In this order: `--allow-tool` takes all words up to the next flag.
        ours = (f"--allow-tool={SERVER_NAME}", _SERVERS_FLAG, f"@{self._write_servers()}")
        return Prepared(arguments=(*ours, *named))

    def _write_servers(self) -> Path:
        tools = self._launch.tools
        server = {
            "type": "local",
            "command": tools.command[0],
            "args": list(tools.command[1:]),
            "env": dict(tools.env),
            "tools": ["*"],
            "timeout": int((tools.wait_seconds + _TIMEOUT_MARGIN_SECONDS) * 1000),
        }
        make_private(self._launch.folder)
        self._has_server = True
        file = self._launch.folder / "mcp.json"
        write_private(file, json.dumps({"mcpServers": {SERVER_NAME: server}}))
        return file

    def _why_no_tools(self, arguments: tuple[str, ...]) -> str:
        """Returns why Copilot cannot be given our server without going against the person; empty if it can."""
        if not knows_flag(_SERVERS_FLAG, self._launch):
            return f"this version does not know {_SERVERS_FLAG}"
        if any(SERVER_NAME in table_in(config, "mcpServers") for config in self._configs(arguments)):
            return f"its own configuration has an MCP server named `{SERVER_NAME}`, which is left as it is"
        if SERVER_NAME in values_of("--disable-mcp-server", arguments):
            return f"--disable-mcp-server {SERVER_NAME}"
        if SERVER_NAME in values_of("--deny-tool", arguments):
            return f"--deny-tool {SERVER_NAME}"
        chosen = values_of("--available-tools", arguments)
        return "--available-tools does not name its tools" if chosen and not _names_us(chosen) else ""

    def _configs(self, arguments: tuple[str, ...]) -> Iterator[Record]:
        """Yields what names the person's and the project's own MCP servers."""
        files = [self._copilot_home / "mcp-config.json"]
        for folder in (self._launch.working_dir, *self._launch.working_dir.parents):
            files += [folder / ".mcp.json", folder / ".github" / "mcp.json"]
        for value in values_of(_SERVERS_FLAG, arguments):
            if value.startswith("@"):
                path = value[1:].replace("~/", f"{self._launch.home}/", 1) if value.startswith("@~/") else value[1:]
                files.append(self._launch.working_dir / path)
                continue
            with suppress(ValueError):
                yield parse_config(value)
        yield from read_configs(files)

    @property
    def _copilot_home(self) -> Path:
        home = self._launch.env.get("COPILOT_HOME")
        return Path(home) if home else self._launch.home / ".copilot"

    def _folder_of(self, session: str) -> str | None:
        """Returns the folder in which a session began, by its events."""
        for event in first_records(self._sessions / session / _EVENTS):
            if folder := text_at(event, "data", "context", "cwd"):
                return folder
        return None

    def _why_in_use(self, session: str) -> str:
        """Returns which process has the session open: Copilot would ask a person whether to resume it anyway.

        Waits a moment for one that is ending.
        """
        looks, pause = _MAX_LOOKS, threading.Event()
        while pids := [
            pid for lock in (self._sessions / session).glob(_LOCK) if _is_there(pid := lock.name.split(".")[1])
        ]:
            looks -= 1
            if not looks:
                return f"the conversation of the last run is open in another Copilot (pid {pids[0]})"
            pause.wait(_LOOK_SECONDS)
        return ""

    @property
    def _sessions(self) -> Path:
        return self._copilot_home / "session-state"

    def _choose(self, events: Path | None) -> Path | None:
        """Returns the events of the session that it has open; a person may have changed to another one."""
        if events is not None and events != self._followed:
            self._followed = events
            has_turn = any(text_at(event, "type") == _PROMPT for event in first_records(events))
            self._launch.converse(events.parent.name if has_turn else "")
        return events

    def _find(self) -> Path | None:
        sessions = self._sessions
        held = (file.parent for file in open_files(self._pid) if file.match(_HOLD))
        folder = next((session for session in held if session.parent == sessions.resolve()), None)
        if folder is not None:
            # Also one that has no events yet: a person has just begun it.
            return folder / _EVENTS
        events = sessions / self._session / _EVENTS
        return events if self._session and events.is_file() else None

    def _take(self, record: Record) -> None:
        if self._listener is None or text_at(record, "timestamp") < self._launch.started:
            return
        if (used := self._usage.read(record)) is not None:
            self._listener.note_usage(used)
        report = self._events.read(record)
        if report is None:
            return
        if report.kind is SignalKind.SUBMITTED and self._followed is not None:
            self._launch.converse(self._followed.parent.name)
        self._listener.report(report)


def _is_there(pid: str) -> bool:
    """Returns whether the system knows the process, as Copilot itself decides it: also one that has just ended."""
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _names_us(tools: list[str]) -> bool:
    """Returns whether one of these is our server, or a tool of it: `synapse`, `synapse(send)`, `synapse-send`."""
    words = [word for tool in tools for word in tool.split(",")]
    return any(word == SERVER_NAME or word.startswith((f"{SERVER_NAME}(", f"{SERVER_NAME}-")) for word in words)
