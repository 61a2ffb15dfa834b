"""Copilot CLI: the events of the session that it has open. Nothing else is switched on.

We choose the name of its first session. A person may begin another in its terminal, or resume one; Copilot keeps a file
open in the folder of whichever it is in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from synapse.core.question import Choice
from synapse.drivers.pty.adapters.adapter import LaunchContext, Listener, Prepared, Sender
from synapse.drivers.pty.adapters.transcript import TranscriptFollower, can_tell, name_session, open_files
from synapse.terminal.evidence import Source
from synapse.terminal.signals.copilot import CopilotEvents
from synapse.terminal.signals.report import Record, word

_HOLD: Final = "inuse.*.hold"
_EVENTS: Final = "events.jsonl"
_OLD_CONVERSATION: Final = ("--resume", "-r", "--continue", "--connect")


class CopilotSignals:
    """Implements Adapter."""

    def __init__(self, around: LaunchContext) -> None:
        self._around = around
        self._session = ""
        self._pid = 0
        self._events = CopilotEvents()
        self._listener: Listener | None = None
        self._follower: TranscriptFollower | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        named, self._session = name_session(arguments, self._around, _OLD_CONVERSATION)
        return Prepared(arguments=named)

    def start(self, listener: Listener, pid: int, /) -> None:
        self._listener, self._pid = listener, pid
        if self._session or can_tell():
            listener.expect(Source.TRANSCRIPT, "its events have said nothing yet")
        else:
            listener.mark_missing(
                Source.TRANSCRIPT, "its session has no name of ours, and this system does not tell which it is"
            )
        self._follower = TranscriptFollower(self._find, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is not None:
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
        held = next(
            (file.parent for file in open_files(self._pid) if file.match(_HOLD) and self._is_session(file)), None
        )
        folder = held or (self._folder() / self._session if self._session else None)
        return folder / _EVENTS if folder is not None and (folder / _EVENTS).is_file() else None

    def _is_session(self, file: Path) -> bool:
        return file.parent.parent == self._folder().resolve()

    def _folder(self) -> Path:
        home = self._around.env.get("COPILOT_HOME")
        return (Path(home) if home else self._around.home / ".copilot") / "session-state"

    def _take(self, record: Record) -> None:
        if self._listener is None or word(record, "timestamp") < self._around.started:
            return
        report = self._events.read(record)
        if report is not None:
            self._listener.report(report)
