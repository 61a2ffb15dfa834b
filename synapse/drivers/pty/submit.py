"""Brings a message into the program by keys, as `terminal.delivery` decides.

Hands a message to the program by its API instead of typing it, with the same promises: intent first, never twice.

What is seen of a delivery and of a turn, in the words of core.driver.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final, assert_never

from synapse.core.agent import WORKING
from synapse.core.driver import (
    DEGRADED,
    Deferred,
    DeliveryUncertain,
    Progress,
    Submitted,
    TurnEvent,
    TurnStarted,
    Typing,
)
from synapse.drivers.pty.adapters.adapter import NotTaken, Sender
from synapse.drivers.pty.context import PtyContext
from synapse.terminal.delivery import (
    Clear,
    Closed,
    Delivery,
    Doubt,
    Dropped,
    Intend,
    Phase,
    Proven,
    Step,
    Withdrawn,
    Write,
)
from synapse.terminal.evidence import Source
from synapse.terminal.gate import shut_for_sending
from synapse.terminal.turn import Waiting, Working

_DRAIN_SECONDS: Final = 0.05
"""How often to look whether a program has read what was written."""


class KeySubmitter:
    """Types for one driver."""

    def __init__(self, station: PtyContext) -> None:
        self._station = station
        self._is_unread = False
        self._may_leave_text = False

    async def deliver(self, delivery: Delivery) -> AsyncGenerator[TurnEvent, None]:
        """Bring the text into the program; ends with Deferred or Submitted, or silently when it is dropped."""
        while True:
            for step in await self._next_steps(delivery):
                if isinstance(step, Write):
                    self._write(step.data, is_text=delivery.phase is Phase.TYPED)
                    continue
                if isinstance(step, Clear):
                    await self._station.program.clear_input()
                    continue
                if isinstance(step, Dropped):
                    return
                yield delivery_event(step)
                if isinstance(step, Closed | Withdrawn | Proven):
                    self._may_leave_text = self._may_leave_text and not isinstance(step, Proven)
                    return
                if isinstance(step, Intend):
                    delivery.intent_recorded(self._station.now())

    def _write(self, data: bytes, *, is_text: bool) -> None:
        station = self._station
        # A line that was typed and never proven would be submitted together with this one. It is in the terminal of a
        # line program, or in its line editor, and what the program has printed since may hide it.
        is_hidden = is_text and self._may_leave_text and station.profile.reads_lines
        if is_hidden and not station.program.drop_unread():
            station.program.write(station.profile.clear_keys)
        station.program.write(data)
        self._is_unread = self._may_leave_text = True
        station.recheck()

    async def _next_steps(self, delivery: Delivery) -> tuple[Step, ...]:
        """Look until there is something to do for the delivery."""
        station = self._station
        while True:
            if self._is_unread and station.program.pump.input.pending == 0:
                self._is_unread = False
                delivery.written(station.now())
            told = station.heard.take_submission()
            if told is not None:
                steps = delivery.signalled(told.source, told.detail, station.now())
            else:
                steps = delivery.advance(station.look(), station.now())
            if steps:
                return steps
            drained = station.now() + _DRAIN_SECONDS if self._is_unread else None
            await station.lookout.next_look(sooner(delivery.deadline, drained))


def sooner(one: float | None, other: float | None) -> float | None:
    """The earlier of two moments, if there is one."""
    return min((moment for moment in (one, other) if moment is not None), default=None)


log = logging.getLogger(__name__)

_FIRST_WORD_SECONDS: Final = 30.0
_SILENT: Final = f"{DEGRADED}: its server took the message and has said nothing since"


class ApiSubmitter:
    """One message on its way by the API."""

    def __init__(self, station: PtyContext, sender: Sender, text: str) -> None:
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
        """Hand it over; ends behind Deferred or Submitted, or silently when it was dropped.

        Raises AgentExited.
        """
        closed = self._closed()
        if not closed:
            yield Typing()
            closed = self._closed()
        if self._is_dropped:
            return
        if closed:
            yield Deferred(closed)
            return
        event = await self._send()
        yield event
        if isinstance(event, DeliveryUncertain):
            yield await self._proof()
        elif isinstance(event, Submitted):
            await self._hear_first_word(event.evidence)

    def _closed(self) -> str:
        closed = shut_for_sending(self._station.look(), self._station.profile)
        return closed.why if closed else ""

    async def _send(self) -> Submitted | Deferred | DeliveryUncertain:
        self._has_begun = True
        try:
            evidence = await self._sender.send(self._text)
        except NotTaken as error:
            self.was_refused = True
            return Deferred(str(error))
        except Exception as error:  # noqa: BLE001  # whatever went wrong, the message may be there: only its signals can tell
            log.warning("handover_in_doubt", extra={"error": type(error).__name__})
            return DeliveryUncertain(
                f"it is not certain that the program took the message: {str(error) or type(error).__name__}"
            )
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


def delivery_event(step: Closed | Withdrawn | Intend | Proven | Doubt) -> TurnEvent:
    """What a step of a delivery tells the worker."""
    match step:
        case Closed(why) | Withdrawn(why):
            return Deferred(why)
        case Intend():
            return Typing()
        case Proven(source, evidence):
            return Submitted(source, evidence)
        case Doubt(why):
            return DeliveryUncertain(why)
        case _:
            assert_never(step)


def turn_event(step: Working | Waiting, *, has_started: bool) -> TurnEvent:
    """What a step of a turn tells the worker; `has_started` if it was told of its start."""
    match step:
        case Working(source, evidence):
            return Progress("the dialog was answered") if has_started else TurnStarted(source, evidence)
        case Waiting(dialog, hint):
            return Progress(f"a dialog waits for a person: {dialog}" + (f" ({hint})" if hint else ""))
        case _:
            assert_never(step)
