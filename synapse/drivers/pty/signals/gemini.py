"""Gemini CLI: the chat file of a session whose name we choose.

Its hooks would have to be put into the person's own folder, and its AfterAgent hook repeats streamed text: neither is
needed, because its title and its chat file together tell the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from synapse.core.question import Choice
from synapse.drivers.pty.signals.adapter import Listener, Prepared, Sender, Surroundings
from synapse.drivers.pty.signals.follower import Follower
from synapse.drivers.pty.signals.own_session import name_session, transcript_with
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

    def start(self, listener: Listener, _pid: int, /) -> None:
        self._listener = listener
        if self._session:
            listener.expect(Source.TRANSCRIPT, "its chat file has said nothing yet")
        else:
            listener.expect(
                Source.TRANSCRIPT, "its session has no name of ours; its chat is found by our first message"
            )
        self._follower = Follower(self._find, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is None or self._listener is None:
            return
        if not self._chat.has_taken(self._listener.typed()):
            self._path = transcript_with(self._listener.typed(), self._chats("*")) or self._path
        self._follower.look()
        if self._listener.seems_ready():
            self._conclude()

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    async def answer(self, _question_id: str, _choice: Choice, /) -> bool:
        return False

    def sender(self) -> Sender | None:
        return None

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        self._ticker.stop()
        if self._follower is not None:
            self._follower.stop()

    def _find(self) -> Path | None:
        if self._path is None and self._session:
            chats = self._chats(f"*{self._session[:8]}*")
            self._path = next((chat for chat in chats if word(first_record(chat), "sessionId") == self._session), None)
        return self._path

    def _chats(self, name: str) -> Iterator[Path]:
        return (self._around.home / ".gemini" / "tmp").glob(f"*/chats/session-{name}.jsonl")

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

    def _look(self) -> float | None:
        """While a turn runs: has the terminal shown its end?"""
        if self._listener is None or self._follower is None:
            return None
        if not self._listener.seems_ready():
            return _LOOK_SECONDS
        self._follower.look()
        return None if self._conclude() else _LOOK_SECONDS

    def _conclude(self) -> bool:
        report = self._chat.conclude()
        if report is None or self._listener is None:
            return False
        self._listener.report(report)
        return True
