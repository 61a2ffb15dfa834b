"""Copilot CLI: the events file of the session that it has open. Nothing else is switched on.

We choose the name of its first session. A person may begin another in its terminal, or resume one; Copilot keeps a file
open in the folder of its current session.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from synapse.core.question import Choice
from synapse.drivers.pty.adapters.adapter import ApiSender, LaunchContext, Prepared, SignalListener
from synapse.drivers.pty.adapters.transcript import (
    TranscriptFollower,
    name_session,
    one_file,
    open_files,
    shows_open_files,
)
from synapse.terminal.evidence import Source
from synapse.terminal.signals.copilot import CopilotEvents
from synapse.terminal.signals.report import Record, text_at

_HOLD: Final = "inuse.*.hold"
_EVENTS: Final = "events.jsonl"
_OLD_CONVERSATION: Final = ("--resume", "-r", "--continue", "--connect")


class CopilotSignals:
    """Implements Adapter for Copilot CLI."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._session = ""
        self._pid = 0
        self._events = CopilotEvents()
        self._listener: SignalListener | None = None
        self._follower: TranscriptFollower[Path | None] | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        named, self._session = name_session(arguments, self._launch, _OLD_CONVERSATION)
        return Prepared(arguments=named)

    def start(self, listener: SignalListener, pid: int, /) -> None:
        self._listener, self._pid = listener, pid
        if self._session or shows_open_files():
            listener.expect(Source.TRANSCRIPT, "its events have said nothing yet")
        else:
            listener.mark_missing(
                Source.TRANSCRIPT, "its session has no name of ours, and this system does not show which it is"
            )
        self._follower = TranscriptFollower(self._find, one_file, self._take, listener.quiet_for)
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

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def _find(self) -> Path | None:
        home = self._launch.env.get("COPILOT_HOME")
        sessions = (Path(home) if home else self._launch.home / ".copilot") / "session-state"
        held = (file.parent for file in open_files(self._pid) if file.match(_HOLD))
        folder = next((session for session in held if session.parent == sessions.resolve()), None)
        if folder is None and self._session:
            folder = sessions / self._session
        return folder / _EVENTS if folder is not None and (folder / _EVENTS).is_file() else None

    def _take(self, record: Record) -> None:
        if self._listener is None or text_at(record, "timestamp") < self._launch.started:
            return
        report = self._events.read(record)
        if report is not None:
            self._listener.report(report)
