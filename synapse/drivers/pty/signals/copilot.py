"""Copilot CLI: the events of a session whose name we choose. Nothing else is switched on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from synapse.drivers.pty.signals.adapter import Listener, Prepared, Surroundings
from synapse.drivers.pty.signals.follower import Follower
from synapse.drivers.pty.signals.own_session import name_session
from synapse.terminal.evidence import Source
from synapse.terminal.signals.copilot import CopilotEvents
from synapse.terminal.signals.report import Record, word

_OLD_CONVERSATION: Final = ("--resume", "-r", "--continue", "--connect")


class CopilotSignals:
    """Implements Adapter."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._session = ""
        self._events = CopilotEvents()
        self._listener: Listener | None = None
        self._follower: Follower | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        named, self._session = name_session(arguments, self._around, _OLD_CONVERSATION)
        return Prepared(arguments=named)

    def start(self, listener: Listener, pid: int) -> None:  # noqa: ARG002  # the session's name says which one it is
        self._listener = listener
        if not self._session:
            listener.lack(Source.TRANSCRIPT, "its session has no name of ours, so its events are not followed")
            return
        listener.expect(Source.TRANSCRIPT, "its events have said nothing yet")
        self._follower = Follower(self._find, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is not None:
            self._follower.look()

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def _find(self) -> Path | None:
        home = self._around.env.get("COPILOT_HOME")
        folder = Path(home) if home else self._around.home / ".copilot"
        path = folder / "session-state" / self._session / "events.jsonl"
        return path if path.is_file() else None

    def _take(self, record: Record) -> None:
        if self._listener is None or word(record, "timestamp") < self._around.started:
            return
        report = self._events.read(record)
        if report is not None:
            self._listener.report(report)
