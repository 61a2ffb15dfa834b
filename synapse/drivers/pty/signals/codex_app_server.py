"""Codex: a server of its own for this launch, whose clients are its TUI and we.

    host ── guard ── codex app-server ◄── Unix socket ──► codex --remote, in its terminal
                            ▲──────────── Unix socket ──► host: hears everything, answers, hands messages over

Where that cannot be (an older version, arguments that such a TUI does not know), its rollout is followed instead.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from synapse.core.question import Choice
from synapse.drivers.pty.signals.adapter import Listener, Prepared, Sender, Surroundings
from synapse.drivers.pty.signals.codex import NO_DAEMON, CodexSignals
from synapse.drivers.pty.signals.codex_arguments import for_server, is_known_remotely
from synapse.drivers.pty.signals.codex_client import CodexClient
from synapse.drivers.pty.signals.codex_trust import would_ask
from synapse.drivers.pty.signals.flags import knows_flag
from synapse.drivers.pty.signals.guarded_server import GuardedServer
from synapse.drivers.pty.spawn import locate
from synapse.registries.private_folders import make_private
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import Record

_REMOTE: Final = "--remote"
_RESUMED: Final = re.compile(r"\bresume ([0-9a-f-]{36})")
_FORM: Final = "unix://PATH"
"""How the help of a version says that it can do this."""


class CodexAppServerSignals:
    """Implements Adapter."""

    def __init__(self, around: Surroundings) -> None:
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
            listener.lack(Source.SIGNAL, self._missing)
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
