"""Follows a turn from the submission to its end, with the questions that come up in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Final

from synapse.core.driver import DEGRADED, Answered, Failed, Questioned, Resumed, TurnEvent, TurnStarted
from synapse.core.message import TextPart
from synapse.core.question import Question
from synapse.drivers.pty.answering import Answerer
from synapse.drivers.pty.interrupting import press_again
from synapse.drivers.pty.partial_text import PartialText
from synapse.drivers.pty.shown_answer import ShownAnswer
from synapse.drivers.pty.station import Station
from synapse.drivers.pty.turn_events import turn_event
from synapse.drivers.pty.typist import sooner
from synapse.terminal.evidence import Look, Source
from synapse.terminal.signals.report import INTERRUPTED, Told
from synapse.terminal.turn import Settled, TurnStep, TurnTracker, Waiting, Working

_SILENCE: Final = f"{DEGRADED}: it did not report its last turn, so that was judged by what its terminal shows"
_SLOW_SECONDS: Final = 60.0
"""How long a program that has told that the turn began may show nothing of an answer before its screen is believed
that the turn is over: a busy machine lets seconds pass before it begins to work."""
_SAID_NO: Final = "a person said no, which ended the turn"
_OWN_WORDS: Final = (Source.SIGNAL, Source.TRANSCRIPT)


class Following:
    """One turn that was submitted."""

    def __init__(
        self, station: Station, answerer: Answerer, tracker: TurnTracker, partial: PartialText, shown: ShownAnswer
    ) -> None:
        self._station = station
        self._answerer = answerer
        self._tracker = tracker
        self._partial = partial
        self._shown = shown
        self._question: Question | None = None
        self._asked_last = ""
        self._has_started = False
        self._slow_until = station.now() + _SLOW_SECONDS
        self._is_menu = False
        """What waits for a person now is a menu that they opened."""

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """From the submission to the answer; ends with Answered or Failed.

        Raises AgentExited.
        """
        station = self._station
        while True:
            end = station.heard.end()
            if end is not None:
                steps = self._tracker.ended(end.source, end.evidence, end.reason)
            else:
                look = station.look()
                await press_again(station, look)
                told = (*self._question_events(look), *self._partial.events(look))
                for event in told:
                    yield event
                # A store that fails holds us up here, and what others see meanwhile wakes nobody later.
                look = station.look() if told else look
                steps = self._only_true_ends(self._tracker.advance(look, station.now()))
            for step in steps:
                for event in self._step_events(step):
                    yield event
                if isinstance(step, Settled):
                    return
            if not steps:
                known = sooner(self._tracker.deadline, station.asking.deadline)
                known = sooner(known, station.insistence.deadline)
                await station.lookout.next_look(sooner(known, self._partial.deadline))

    def _question_events(self, look: Look) -> Iterator[TurnEvent]:
        """What changed about what is asked."""
        opened = self._station.asked(look)
        question = opened.question if opened else None
        if question == self._question:
            return
        before, self._question = self._question, question
        if before is not None and (question is None or question.id != before.id):
            yield Resumed(self._answerer.answered_by(before.id))
        if question is not None:
            self._asked_last = question.id
            if not self._has_started:
                yield self._started(question.source, "it asks something, so it had started")
            yield Questioned(question)

    def _only_true_ends(self, steps: tuple[TurnStep, ...]) -> tuple[TurnStep, ...]:
        """The steps in the program's own words, without an end that only the screen of a slow program shows."""
        if not steps or not isinstance(steps[-1], Settled):
            return steps
        end = self._own_word(steps[-1])
        is_begun = self._station.heard.told_last in (Told.SUBMITTED, Told.WORKING)
        if end.source in _OWN_WORDS or not is_begun or self._station.now() >= self._slow_until or self._shown.read():
            return (*steps[:-1], end)
        self._tracker.go_on(self._station.now())
        return steps[:-1]

    def _step_events(self, step: TurnStep) -> Iterator[TurnEvent]:
        if isinstance(step, Settled):
            if not self._has_started:
                yield self._started(step.source, "it has ended, so it had started")
            yield self._end(step)
            return
        if isinstance(step, Waiting):
            self._is_menu = not self._station.asking.is_open
        if self._is_menu or (isinstance(step, Working) and not self._has_started):
            # A question is told with its own words, and so is its end.
            yield turn_event(self._told_by(step), has_started=self._has_started)
        self._has_started = self._has_started or isinstance(step, Working)

    def _started(self, source: str, why: str) -> TurnStarted:
        self._has_started = True
        return TurnStarted(source, why)

    def _own_word(self, settled: Settled) -> Settled:
        """The same end as the program tells it, if it does: its transcript may be a moment behind its screen."""
        if settled.source not in _OWN_WORDS:
            self._station.look_again()
        return self._station.heard.end() or settled

    def _told_by(self, step: Working | Waiting) -> Working | Waiting:
        """The same step in the program's own words, if it was the program that told."""
        verdict = self._station.lookout.evidence.verdict
        if verdict.source not in _OWN_WORDS:
            return step
        return Working(verdict.source, verdict.why) if isinstance(step, Working) else Waiting(verdict.why, step.hint)

    def _end(self, settled: Settled) -> Answered | Failed:
        if settled.reason:
            is_denied = settled.reason == INTERRUPTED and self._asked_last == self._answerer.denied != ""
            return Failed(settled.reason, _SAID_NO if is_denied else settled.evidence)
        if settled.source in _OWN_WORDS:
            return Answered(parts=_text_parts(settled.evidence), source=settled.source)
        station = self._station
        if station.expected is not None and not station.heard.has_told:
            station.lookout.evidence.report(station.expected, "", _SILENCE, station.now())
        return Answered(parts=_text_parts(self._shown.read()), source="screen")


def _text_parts(text: str) -> tuple[TextPart, ...]:
    return (TextPart(text=text),) if text else ()
