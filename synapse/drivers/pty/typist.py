"""Brings a message into the program by keys, as `terminal.delivery` decides."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from synapse.core.driver import TurnEvent
from synapse.drivers.pty.station import Station
from synapse.drivers.pty.turn_events import delivery_event
from synapse.terminal.delivery import (
    Clear,
    Closed,
    Delivery,
    Dropped,
    Intend,
    Phase,
    Proven,
    Step,
    Withdrawn,
    Write,
)

_DRAIN_SECONDS: Final = 0.05
"""How often to look whether a program has read what was written."""


class Typist:
    """Types for one driver."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._is_unread = False
        self._may_leave_text = False

    async def deliver(self, delivery: Delivery) -> AsyncGenerator[TurnEvent, None]:
        """Bring the text into the program; ends with NotNow or Submitted, or silently when it is dropped."""
        while True:
            for step in await self._next_steps(delivery):
                if isinstance(step, Write):
                    self._write(step.data, is_text=delivery.phase is Phase.TYPED)
                    continue
                if isinstance(step, Clear):
                    self._station.program.clear_input()
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
        station.look_again()

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
