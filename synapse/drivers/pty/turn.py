"""Follows a turn from the submission to its end, with the questions that come up in it.

What an agent has said so far in a turn, told now and then: in its own words, else as its screen shows it.

The answer to one message as the screen shows it. It is made before the message is typed.

Pressing the keys that interrupt a program.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

from synapse.core.agent import WORKING
from synapse.core.driver import (
    DEGRADED,
    Answered,
    Failed,
    PartialAnswer,
    QuestionRaised,
    Resumed,
    TurnEvent,
    TurnStarted,
)
from synapse.core.message import TextPart
from synapse.core.question import Question
from synapse.drivers.pty.answering import Answerer
from synapse.drivers.pty.context import PtyContext
from synapse.drivers.pty.submit import sooner, turn_event
from synapse.terminal.answer import StableText, answer_text, count_shown
from synapse.terminal.evidence import Look, Source
from synapse.terminal.gate import dialog_open
from synapse.terminal.signals.report import INTERRUPTED, SignalKind
from synapse.terminal.turn import Settled, TurnStep, TurnTracker, Waiting, Working

_SILENCE: Final = f"{DEGRADED}: it did not report its last turn, so that was judged by what its terminal shows"
_SLOW_SECONDS: Final = 60.0
"""How long a program that has told that the turn began may show nothing of an answer before its screen is believed
that the turn is over: a busy machine lets seconds pass before it begins to work."""
_SAID_NO: Final = "a person said no, which ended the turn"
_OWN_WORDS: Final = (Source.SIGNAL, Source.TRANSCRIPT)


class TurnFollower:
    """One turn that was submitted."""

    def __init__(
        self, station: PtyContext, answerer: Answerer, tracker: TurnTracker, partial: PartialText, shown: ShownAnswer
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
            yield QuestionRaised(question)

    def _only_true_ends(self, steps: tuple[TurnStep, ...]) -> tuple[TurnStep, ...]:
        """The steps in the program's own words, without an end that only the screen of a slow program shows."""
        if not steps or not isinstance(steps[-1], Settled):
            return steps
        end = self._own_word(steps[-1])
        is_begun = self._station.heard.told_last in (SignalKind.SUBMITTED, SignalKind.WORKING)
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
            self._station.recheck()
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


OWN_WORDS_SECONDS: Final = 0.25
"""Each word on the way is made durable like everything else, so a few letters do not go alone."""
SCREEN_SECONDS: Final = 1.0
"""Reading an answer off the screen costs milliseconds, and what rests is known only from one look to the next."""
_LINES: Final = 1000
_TELLING: Final = 30
"""So many letters of a message tell its row from others."""


class PartialText:
    """Follows the text of one turn. `reads_screen` is for programs that do not tell what they say."""

    def __init__(self, station: PtyContext, text: str, shown: ShownAnswer, *, reads_screen: bool) -> None:
        self._station = station
        self._text = text
        self._shown_answer = shown
        self._reads_screen = reads_screen
        self._growth = StableText()
        # A turn that is over soon costs no look.
        self._next = station.now() + SCREEN_SECONDS if reads_screen else 0.0
        self._seen_version = -1

    @property
    def deadline(self) -> float | None:
        """When `events` is next worth asking, even if nothing happens."""
        if self._reads_screen:
            return self._next if self._station.program.screen.version != self._seen_version else None
        heard = self._station.heard
        return self._next if heard.said != heard.passed_on else None

    def events(self, look: Look) -> Iterator[PartialAnswer]:
        """What is to be told now."""
        now = self._station.now()
        if now < self._next:
            return
        if not self._reads_screen:
            yield from self._own_words(now)
        elif look.state == WORKING and not self._station.asking.is_open:
            yield from self._shown(now)

    def _own_words(self, now: float) -> Iterator[PartialAnswer]:
        heard = self._station.heard
        if heard.said and heard.said != heard.passed_on:
            heard.passed_on, self._next = heard.said, now + OWN_WORDS_SECONDS
            yield PartialAnswer(heard.said, Source.SIGNAL)

    def _shown(self, now: float) -> Iterator[PartialAnswer]:
        self._next = now + SCREEN_SECONDS
        screen = self._station.program.screen
        self._seen_version = screen.version
        lines = screen.history(_LINES)
        beginning = self._text.partition("]")[0][:_TELLING]
        if not any(beginning in line for line in lines):
            return  # what stands there may be anything
        if text := self._growth.receive(self._shown_answer.within(lines)):
            yield PartialAnswer(text, Source.SCREEN)


_ANSWER_LINES: Final = 5000


class ShownAnswer:
    """Reads what stands below a message, and not what stands below an earlier one that said the same."""

    def __init__(self, station: PtyContext, text: str) -> None:
        self._station = station
        self._text = text
        has_rule = station.profile.answer.echo is not None
        self._earlier = 0 if has_rule else count_shown(self._lines(), text, station.profile)

    def read(self) -> str:
        """What is shown now; empty if the message is not found."""
        return self.within(self._lines())

    def within(self, lines: Sequence[str]) -> str:
        """The same of the last lines alone, which somebody has read already."""
        return answer_text(lines, self._text, self._station.profile, earlier=self._earlier)

    def _lines(self) -> tuple[str, ...]:
        return self._station.program.screen.history(_ANSWER_LINES)


async def press_interrupt(station: PtyContext) -> bool:
    """Press them as the profile says; whether the program noticed is seen later. False when a dialog came between."""
    how = station.profile.interrupt
    for number, key in enumerate(how.keys):
        if number and not await _stays_undisturbed(station, how.pause):
            return False
        station.program.write(key)
    station.insistence.pressed(station.now())
    return bool(how.keys)


async def _stays_undisturbed(station: PtyContext, seconds: float) -> bool:
    """Wait so long; False as soon as a dialog is open, which the next key would answer, or the program has ended."""
    end = station.now() + seconds
    while station.now() < end:
        await station.lookout.next_look(end)
        if dialog_open(station.lookout.look()) or station.program.exited.done():
            return False
    return True


async def press_again(station: PtyContext, look: Look) -> None:
    """Press them once more if it was asked to stop and still works."""
    if station.insistence.is_due(look, station.now()):
        await press_interrupt(station)
