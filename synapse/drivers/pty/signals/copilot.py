"""Copilot CLI: the events of a session whose name we choose. Nothing else is switched on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from synapse.core.question import Choice
from synapse.drivers.pty.signals.adapter import Listener, Prepared, Sender, Surroundings
from synapse.drivers.pty.signals.follower import Follower
from synapse.drivers.pty.signals.own_session import name_session, transcript_with
from synapse.terminal.evidence import Source
from synapse.terminal.signals.copilot import CopilotEvents
from synapse.terminal.signals.report import Record, word

_OLD_CONVERSATION: Final = ("--resume", "-r", "--continue", "--connect")


class CopilotSignals:
    """Implements Adapter."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._session = ""
        self._path: Path | None = None
        self._events = CopilotEvents()
        self._listener: Listener | None = None
        self._follower: Follower | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        named, self._session = name_session(arguments, self._around, _OLD_CONVERSATION)
        return Prepared(arguments=named)

    def start(self, listener: Listener, _pid: int, /) -> None:
        self._listener = listener
        if self._session:
            listener.expect(Source.TRANSCRIPT, "its events have said nothing yet")
        else:
            listener.expect(
                Source.TRANSCRIPT, "its session has no name of ours; its events are found by our first message"
            )
        self._follower = Follower(self._find, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is None or self._listener is None:
            return
        if not self._events.has_taken(self._listener.typed()):
            self._path = transcript_with(self._listener.typed(), self._folder().glob("*/events.jsonl")) or self._path
        self._follower.look()

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    async def answer(self, _question_id: str, _choice: Choice, /) -> bool:
        return False

    def sender(self) -> Sender | None:
        return None

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def _find(self) -> Path | None:
        if self._path is None and self._session:
            path = self._folder() / self._session / "events.jsonl"
            self._path = path if path.is_file() else None
        return self._path

    def _folder(self) -> Path:
        home = self._around.env.get("COPILOT_HOME")
        return (Path(home) if home else self._around.home / ".copilot") / "session-state"

    def _take(self, record: Record) -> None:
        if self._listener is None or word(record, "timestamp") < self._around.started:
            return
        report = self._events.read(record)
        if report is not None:
            self._listener.report(report)
