"""Hands a message to the program by its API instead of typing it, with the same promises: intent first, never twice."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final

from synapse.core.agent import WORKING
from synapse.core.driver import DEGRADED, Doubted, NotNow, Submitted, TurnEvent, Typing
from synapse.drivers.pty.signals.adapter import NotTaken, Sender
from synapse.drivers.pty.station import Station
from synapse.terminal.evidence import Source
from synapse.terminal.gate import shut_for_sending

log = logging.getLogger(__name__)

_FIRST_WORD_SECONDS: Final = 30.0
_SILENT: Final = f"{DEGRADED}: its server took the message and has said nothing since"


class Handover:
    """One message on its way by the API."""

    def __init__(self, station: Station, sender: Sender, text: str) -> None:
        self._station = station
        self._sender = sender
        self._text = text
        self._has_begun = False
        self._is_dropped = False
        self.was_refused = False
        """The program certainly has not taken it; it may be typed."""

    def drop(self, _now: float) -> bool:
        """The message was canceled; False when it is too late."""
        self._is_dropped = not self._has_begun
        return self._is_dropped

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """Hand it over; ends behind NotNow or Submitted, or silently when it was dropped.

        Raises AgentExited.
        """
        closed = self._closed()
        if not closed:
            yield Typing()
            closed = self._closed()
        if self._is_dropped:
            return
        if closed:
            yield NotNow(closed)
            return
        event = await self._send()
        yield event
        if isinstance(event, Doubted):
            yield await self._proof()
        elif isinstance(event, Submitted):
            await self._hear_first_word(event.evidence)

    def _closed(self) -> str:
        closed = shut_for_sending(self._station.look(), self._station.profile)
        return closed.why if closed else ""

    async def _send(self) -> Submitted | NotNow | Doubted:
        self._has_begun = True
        try:
            evidence = await self._sender.send(self._text)
        except NotTaken as error:
            self.was_refused = True
            return NotNow(str(error))
        except Exception as error:  # noqa: BLE001  # whatever went wrong, the message may be there: only its signals can tell
            log.warning("handover_in_doubt", extra={"error": type(error).__name__})
            return Doubted(f"it is not certain that the program took the message: {str(error) or type(error).__name__}")
        return Submitted(Source.SIGNAL, evidence)

    async def _hear_first_word(self, evidence: str) -> None:
        """Its server has the message: until it says more, it works.

        The TUI may show an empty prompt for many seconds more (OpenCode, at its first turn on a busy machine), which
        looks like the end of the turn. A server that stays silent is not believed for ever: then the terminal counts.
        """
        station, end = self._station, self._station.now() + _FIRST_WORD_SECONDS
        if not station.heard.has_told:
            station.lookout.evidence.report(Source.SIGNAL, WORKING, evidence, station.now())
        while not station.heard.has_told:
            if station.now() >= end:
                station.lookout.evidence.report(Source.SIGNAL, "", _SILENT, station.now())
                return
            station.look()
            await station.lookout.next_look(end)

    async def _proof(self) -> Submitted:
        """In doubt: wait until the program says that it has the message, or a person does."""
        while True:
            self._station.look()
            told = self._station.heard.take_submission()
            if told is not None:
                return Submitted(told.source, told.detail)
            await self._station.lookout.next_look(None)
