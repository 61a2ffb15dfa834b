"""Gemini CLI: the chat file of a session whose name we choose.

Its hooks would have to be put into the person's own folder, and its AfterAgent hook repeats streamed text: neither is
needed, because its title and its chat file together tell the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from synapse.drivers.pty.signals.adapter import Listener, Prepared, Surroundings
from synapse.drivers.pty.signals.follower import Follower
from synapse.drivers.pty.signals.own_session import name_session
from synapse.drivers.pty.signals.tail import first_record
from synapse.drivers.pty.signals.ticker import Ticker
from synapse.terminal.evidence import Source
from synapse.terminal.signals.gemini import GeminiChat
from synapse.terminal.signals.report import Record, Told, word

_OLD_CONVERSATION: Final = ("--resume", "-r", "--session-file")
_LOOK_SECONDS: Final = 0.05


class GeminiSignals:
    """Implements Adapter."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._session = ""
        self._chat = GeminiChat()
        self._listener: Listener | None = None
        self._follower: Follower | None = None
        self._ticker = Ticker(_LOOK_SECONDS, self._look)
        self._path: Path | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        named, self._session = name_session(arguments, self._around, _OLD_CONVERSATION)
        return Prepared(arguments=named)

    def start(self, listener: Listener, pid: int) -> None:  # noqa: ARG002  # the session's name says which one it is
        self._listener = listener
        if not self._session:
            listener.lack(Source.TRANSCRIPT, "its session has no name of ours, so its chat file is not followed")
            return
        listener.expect(Source.TRANSCRIPT, "its chat file has said nothing yet")
        self._follower = Follower(self._find, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is not None:
            self._follower.look()
            self._conclude()

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    def stop(self) -> None:
        self._ticker.stop()
        if self._follower is not None:
            self._follower.stop()

    def _find(self) -> Path | None:
        if self._path is None:
            chats = (self._around.home / ".gemini" / "tmp").glob(f"*/chats/session-*{self._session[:8]}*.jsonl")
            self._path = next((chat for chat in chats if word(first_record(chat), "sessionId") == self._session), None)
        return self._path

    def _take(self, record: Record) -> None:
        if self._listener is None or word(record, "timestamp") < self._around.started:
            return
        report = self._chat.read(record)
        if report is None:
            return
        self._listener.report(report)
        if report.told is Told.SUBMITTED:
            self._ticker.start()
        else:
            self._ticker.stop()

    def _look(self) -> bool:
        """While a turn runs: has the terminal shown its end?"""
        if self._listener is None or self._follower is None:
            return False
        if not self._listener.seems_ready():
            return True
        self._follower.look()
        return not self._conclude()

    def _conclude(self) -> bool:
        report = self._chat.conclude()
        if report is None or self._listener is None:
            return False
        self._listener.report(report)
        return True
