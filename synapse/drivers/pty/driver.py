"""Takes turns with a CLI on a pseudo-terminal: what `terminal/` decides is done here."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from synapse.core.agent import AGENT_STATES, READY, WORKING
from synapse.core.clock import Clock
from synapse.core.driver import (
    DEGRADED,
    AgentView,
    Answered,
    Failed,
    Sighting,
    Submitted,
    Turn,
    TurnEvent,
    TurnStarted,
)
from synapse.core.errors import AgentExited
from synapse.core.message import TextPart
from synapse.drivers.pty.composer import Composer
from synapse.drivers.pty.lookout import Lookout
from synapse.drivers.pty.running_program import RunningProgram
from synapse.drivers.pty.turn_events import delivery_event, turn_event
from synapse.terminal.answer import answer_text
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
from synapse.terminal.evidence import Look, Source
from synapse.terminal.gate import dialog_open, shut
from synapse.terminal.profile import Profile
from synapse.terminal.signals.report import Report, Told
from synapse.terminal.turn import Settled, TurnStep, TurnTracker, Waiting, Working

_ANSWER_LINES: Final = 5000
_DRAIN_SECONDS: Final = 0.05
"""How often to look whether a program has read what was written."""

_REACTION_SECONDS: Final = 0.15
"""An idle program that says something to a signal does so within this time."""

SUBMITTED: Final = "submitted"
ANSWERED: Final = "answered"
"""What a structured signal may say besides a state: the message was taken; the turn is over, with this text."""
_MOST_SIGNALS: Final = 256
_SILENCE: Final = f"{DEGRADED}: it did not report its last turn, so that was judged by what its terminal shows"


@dataclass(frozen=True, slots=True)
class _Signal:
    source: str
    kind: str
    detail: str
    report: Report | None = None

    def ends(self, turn: str) -> bool:
        """True if it ends the turn of that name; a name that is not known fits every turn."""
        names = {turn, self.report.turn if self.report else ""} - {""}
        return self.kind in (ANSWERED, Told.FAILED) and len(names) < 2


class PtyDriver:
    """Implements core.driver.Driver for a program that runs."""

    def __init__(self, program: RunningProgram, profile: Profile, clock: Clock, composer: Composer) -> None:
        self.program = program
        self._profile = profile
        self._clock = clock
        self._composer = composer
        self._lookout = Lookout(profile, program.screen, program.pump, clock)
        self._signals: deque[_Signal] = deque(maxlen=_MOST_SIGNALS)
        self._typed = ""
        self._delivery: Delivery | None = None
        self._in_turn = self._is_dropped = False
        self._turn_name = ""
        self._expected: Source | None = None
        self._has_told = False
        self._is_unread = False
        self._may_leave_text = False
        self.look_again: Callable[[], None] = _nothing
        """Reads what the program has told by now; called when it is typed into, and before its screen is believed to
        say that a turn is over."""
        program.on_output = self._lookout.output_came
        program.exited.add_done_callback(self._program_ended)

    def view(self) -> AgentView:
        """What is known of the agent now; see core.driver.Driver."""
        look = self._lookout.latest()
        verdict = self._lookout.evidence.verdict
        closed = shut(look, self._profile)
        return AgentView(
            state=verdict.state,
            why=verdict.why,
            source=verdict.source,
            since=self._date(verdict.since),
            gate=closed.why if closed else "",
            sightings=tuple(
                Sighting(source=claim.source, state=claim.state, detail=claim.detail, at=self._date(claim.at))
                for claim in self._lookout.evidence.claims
            ),
        )

    async def wait_ready(self) -> None:
        """Return when a message can be typed.

        Raises AgentExited when that will never be.
        """
        while True:
            closed = shut(self._look(), self._profile)
            if closed is None:
                return
            await self._lookout.next_look(None if closed.opens_in is None else self._now() + closed.opens_in)

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Type one message and yield what comes of it; see core.driver.Driver.

        Raises AgentExited.
        """
        self._in_turn, self._is_dropped = True, False
        try:
            text = await asyncio.to_thread(self._composer.compose, turn)
            self._signals.clear()
            self._typed, self._turn_name, self._has_told = text, "", False
            async with aclosing(self._take(text)) as events:
                async for event in events:
                    yield event
        finally:
            self._in_turn, self._delivery = False, None

    async def interrupt(self) -> bool:
        """Ask the agent to drop its turn, by a signal or by keys as the profile says; never while a dialog is open.

        False when it was not asked.
        """
        look = self._lookout.look()
        if dialog_open(look) or self.program.exited.done():
            return False
        how = self._profile.interrupt
        # At an empty prompt the same key does other things: it may open a menu or leave the program. A signal does not,
        # but a turn that has just ended must not count as interrupted. Without a prompt rule a silent program only
        # looks idle.
        is_idle = look.state == READY and not self._in_turn
        if look.state != WORKING and not (how.signal and (is_idle or self._profile.prompt is None)):
            return False
        if how.signal:
            begun = self._now()
            self.program.signal_foreground(signal.Signals[how.signal])
            if look.state != WORKING:
                await self._see_reaction(begun)
            return True
        for number, key in enumerate(how.keys):
            if number:
                await asyncio.wait((self.program.exited,), timeout=how.pause)
            self.program.write(key)
        return bool(how.keys)

    def drop(self) -> bool:
        """Forget the message that is being typed: it was canceled; see core.driver.Driver."""
        if self._delivery is None:
            # Its files are being stored, or there is none.
            self._is_dropped = True
            return self._in_turn
        self._lookout.wake()
        return self._delivery.drop(self._now())

    def confirm(self) -> None:
        """Go on with the turn: a person saw that the message was taken."""
        self.signal("person", SUBMITTED, "a person saw it delivered")

    def signal(self, source: str, kind: str, detail: str) -> None:
        """Take what the program itself reports by a hook or a transcript; `source` is a word of `evidence.Source`.

        `kind` is a state of the agent, or SUBMITTED, or ANSWERED with the answer as `detail`.
        """
        if kind in AGENT_STATES:
            self._lookout.evidence.report(Source(source), kind, detail, self._now())
        else:
            self._signals.append(_Signal(source, kind, detail))
        self._lookout.wake()

    def report(self, report: Report) -> None:
        """Take what the program says of its turn; see `signals.adapter.Listener`."""
        self._has_told = True
        self._lookout.evidence.report(report.source, report.state, report.detail, self._now())
        is_end = report.told in (Told.ANSWERED, Told.FAILED)
        self._signals.append(_Signal(report.source, report.told, report.text if is_end else report.detail, report))
        self._lookout.wake()

    def quiet_for(self) -> float:
        """Seconds since the program last printed; see `signals.adapter.Listener`."""
        return self._now() - self.program.pump.last_output

    def typed(self) -> str:
        """What was typed last; see `signals.adapter.Listener`."""
        return self._typed

    def seems_ready(self) -> bool:
        """What its terminal shows; see `signals.adapter.Listener`."""
        self._lookout.latest()
        return self._lookout.evidence.seen == READY

    def expect(self, source: Source, detail: str) -> None:
        """A source should say something from now on; see `signals.adapter.Listener`."""
        self._expected = source
        self._lookout.evidence.report(source, "", detail, self._now())

    def lack(self, source: Source, detail: str) -> None:
        """A source will say nothing; see `signals.adapter.Listener`."""
        self._lookout.evidence.report(source, "", f"{DEGRADED}: {detail}", self._now())

    async def stop(self) -> None:
        """End the program."""
        self._lookout.close()
        await self.program.stop()

    async def _see_reaction(self, begun: float) -> None:
        """Wait a moment for what the program prints; the gate then stays shut until it has finished."""
        end = begun + _REACTION_SECONDS
        while self.program.pump.last_output < begun and self._now() < end:
            await self._lookout.next_look(end)

    async def _take(self, text: str) -> AsyncGenerator[TurnEvent, None]:
        event: TurnEvent | None = None
        if self._is_dropped:
            return
        delivery = self._delivery = Delivery(text, self._profile)
        async with aclosing(self._deliver(delivery)) as events:
            async for event in events:
                yield event
        if isinstance(event, Submitted):
            self._may_leave_text = False
            tracker = TurnTracker(self._profile, self._now(), has_worked=delivery.saw_work)
            async with aclosing(self._follow(tracker, text)) as events:
                async for event in events:
                    yield event

    async def _deliver(self, delivery: Delivery) -> AsyncGenerator[TurnEvent, None]:
        """Bring the text into the program; ends with NotNow or Submitted, or silently when it is dropped."""
        while True:
            for step in await self._delivery_steps(delivery):
                if isinstance(step, Write):
                    self._write(step.data, is_text=delivery.phase is Phase.TYPED)
                    continue
                if isinstance(step, Clear):
                    self.program.clear_input()
                    continue
                if isinstance(step, Dropped):
                    return
                yield delivery_event(step)
                if isinstance(step, Closed | Withdrawn | Proven):
                    return
                if isinstance(step, Intend):
                    delivery.intent_recorded(self._now())

    async def _follow(self, tracker: TurnTracker, text: str) -> AsyncGenerator[TurnEvent, None]:
        """From the submission to the answer; ends with Answered."""
        has_started = False
        while True:
            for step in await self._turn_steps(tracker):
                if isinstance(step, Settled):
                    step = self._own_word(step)  # noqa: PLW2901  # the same end, better told
                    if not has_started:
                        yield TurnStarted(step.source, "it has ended, so it had started")
                    yield self._end(step, text)
                    return
                yield turn_event(self._told_by(step), has_started=has_started)
                has_started = has_started or isinstance(step, Working)

    def _own_word(self, settled: Settled) -> Settled:
        """The same end as the program tells it, if it does: its transcript may be a moment behind its screen."""
        if settled.source not in (Source.SIGNAL, Source.TRANSCRIPT):
            self.look_again()
            self._take_submission()
        told = next((told for told in self._signals if told.ends(self._turn_name)), None)
        return settled if told is None else _settled(told)

    def _told_by(self, step: Working | Waiting) -> Working | Waiting:
        """The same step in the program's own words, if it was the program that told."""
        verdict = self._lookout.evidence.verdict
        if verdict.source not in (Source.SIGNAL, Source.TRANSCRIPT):
            return step
        return Working(verdict.source, verdict.why) if isinstance(step, Working) else Waiting(verdict.why, step.hint)

    def _write(self, data: bytes, *, is_text: bool) -> None:
        # A line that was typed and never proven would be submitted together with this one. It is in the terminal of a
        # line program, or in its line editor, and what the program has printed since may hide it.
        is_hidden = is_text and self._may_leave_text and self._profile.reads_lines
        if is_hidden and not self.program.drop_unread():
            self.program.write(self._profile.clear_keys)
        self.program.write(data)
        self._is_unread = self._may_leave_text = True
        self.look_again()

    async def _delivery_steps(self, delivery: Delivery) -> tuple[Step, ...]:
        """Look until there is something to do for the delivery."""
        while True:
            if self._is_unread and self.program.pump.input.pending == 0:
                self._is_unread = False
                delivery.written(self._now())
            told = self._take_submission()
            if told is not None:
                steps = delivery.signalled(told.source, told.detail, self._now())
            else:
                steps = delivery.advance(self._look(), self._now())
            if steps:
                return steps
            drained = self._now() + _DRAIN_SECONDS if self._is_unread else None
            await self._lookout.next_look(_sooner(delivery.deadline, drained))

    async def _turn_steps(self, tracker: TurnTracker) -> tuple[TurnStep, ...]:
        """Look until there is something new about the turn."""
        while True:
            self._take_submission()
            told = next((told for told in self._signals if told.ends(self._turn_name)), None)
            if told is not None:
                end = _settled(told)
                steps = tracker.ended(end.source, end.evidence, end.reason)
            else:
                steps = tracker.advance(self._look(), self._now())
            if steps:
                return steps
            await self._lookout.next_look(tracker.deadline)

    def _end(self, settled: Settled, text: str) -> Answered | Failed:
        if settled.reason:
            return Failed(settled.reason, settled.evidence)
        if settled.source in (Source.SIGNAL, Source.TRANSCRIPT):
            return Answered(parts=_text_parts(settled.evidence), source=settled.source)
        if self._expected is not None and not self._has_told:
            self._lookout.evidence.report(self._expected, "", _SILENCE, self._now())
        shown = answer_text(self.program.screen.history(_ANSWER_LINES), text, self._profile)
        return Answered(parts=_text_parts(shown), source="screen")

    def _look(self) -> Look:
        if self.program.exited.done():
            raise AgentExited(_end_of(self.program.exited.result()))
        return self._lookout.look()

    def _take_submission(self) -> _Signal | None:
        """What says that our message was taken; a prompt of a person's own is left aside."""
        for told in tuple(self._signals):
            if told.kind != SUBMITTED:
                continue
            self._signals.remove(told)
            if told.report is None or told.report.is_about(self._typed):
                self._turn_name = told.report.turn if told.report else ""
                return told
        return None

    def _program_ended(self, exited: asyncio.Future[int]) -> None:
        self._lookout.evidence.exited(_end_of(exited.result()), self._now())
        self._lookout.wake()

    def _now(self) -> float:
        return self._clock.monotonic()

    def _date(self, moment: float) -> datetime:
        return self._clock.now() - timedelta(seconds=self._now() - moment)


def _settled(told: _Signal) -> Settled:
    return Settled(told.source, told.detail, told.report.reason if told.report else "")


def _text_parts(text: str) -> tuple[TextPart, ...]:
    return (TextPart(text=text),) if text else ()


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)


def _nothing() -> None:
    """The program tells nothing."""


def _end_of(status: int) -> str:
    if status > 128:
        return f"the program was ended by signal {status - 128}"
    return f"the program ended with status {status}"
