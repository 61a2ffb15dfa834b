"""Follows a turn from its submission to its answer: its questions, its partial text, and interrupts.

The program's own signals end a turn before its screen does. While the turn runs, its text is passed on now and then: in
the program's own words, or as the screen shows it.
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
    Progress,
    QuestionRaised,
    Resumed,
    TurnEvent,
    TurnStarted,
)
from synapse.core.message import TextPart
from synapse.core.question import Question
from synapse.drivers.pty.answering import Answerer
from synapse.drivers.pty.context import PtyContext
from synapse.terminal.answer import StableText, answer_text, count_shown
from synapse.terminal.evidence import Look, Source
from synapse.terminal.gate import dialog_open
from synapse.terminal.signals.report import INTERRUPTED, SignalKind
from synapse.terminal.turn import Settled, TurnStep, TurnTracker, Waiting

OWN_WORDS_SECONDS: Final = 0.25
"""The pause between two partial texts in the program's own words: each is made durable, so a few letters wait."""
SCREEN_SECONDS: Final = 1.0
"""The pause between two partial texts from the screen: reading one costs milliseconds, and only a comparison of two
looks shows which text is stable."""
_SLOW_SECONDS: Final = 60.0
"""How long a program that has reported the start of the turn may show nothing of an answer before its screen is
believed that the turn is over: on a busy machine seconds pass before it begins to work."""
_PARTIAL_LINES: Final = 1000
_ANSWER_LINES: Final = 5000
_ECHO_LENGTH: Final = 30
"""So many characters of a message distinguish its row from others."""
_OWN_WORDS: Final = (Source.SIGNAL, Source.TRANSCRIPT)
_SILENCE: Final = f"{DEGRADED}: it did not report its last turn, so that was judged by what its terminal shows"
_DENIED: Final = "a person said no, which ended the turn"


class TurnFollower:
    """Follows one turn that was submitted."""

    def __init__(
        self, context: PtyContext, answerer: Answerer, tracker: TurnTracker, partial: PartialText, shown: ShownAnswer
    ) -> None:
        self._context = context
        self._answerer = answerer
        self._tracker = tracker
        self._partial = partial
        self._shown = shown
        self._question: Question | None = None
        self._last_question_id = ""
        self._has_started = False
        self._slow_until = context.now() + _SLOW_SECONDS
        self._is_menu = False
        """Whether the dialog that waits now is a menu that a person opened, not a question."""

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """Yields the events from the submission to the answer; ends with Answered or Failed.

        Raises AgentExited.
        """
        context = self._context
        while True:
            end = context.signals.end()
            if end is not None:
                steps = self._tracker.ended(end.source, end.evidence, end.reason)
            else:
                look = context.look()
                await self._retry_interrupt(look)
                news = (*self._question_events(look), *self._partial.events(look))
                for event in news:
                    yield event
                # A store that fails holds us up at the `yield`, and an edge that another look takes meanwhile does not
                # wake us later.
                look = context.look() if news else look
                steps = self._without_false_end(self._tracker.advance(look, context.now()))
            for step in steps:
                for event in self._step_events(step):
                    yield event
                if isinstance(step, Settled):
                    return
            if not steps:
                await context.watcher.next_look(
                    self._tracker.deadline,
                    context.questions.deadline,
                    context.interrupt_retry.deadline,
                    self._partial.deadline,
                )

    async def _retry_interrupt(self, look: Look) -> None:
        """Presses the interrupt keys once more if the program was interrupted and still works."""
        if self._context.interrupt_retry.is_due(look, self._context.now()):
            await press_interrupt(self._context)

    def _question_events(self, look: Look) -> Iterator[TurnEvent]:
        """Yields what has changed about the open question."""
        opened = self._context.open_question(look)
        question = opened.question if opened else None
        if question == self._question:
            return
        before, self._question = self._question, question
        if before is not None and (question is None or question.id != before.id):
            yield Resumed(self._answerer.answered_by(before.id))
        if question is not None:
            self._last_question_id = question.id
            if not self._has_started:
                yield self._started(question.source, "it asks something, so it had started")
            yield QuestionRaised(question)

    def _without_false_end(self, steps: tuple[TurnStep, ...]) -> tuple[TurnStep, ...]:
        """Returns the steps without an end that only the screen of a slow program shows.

        An end that the program reports itself replaces that of the screen; a transcript may be a moment behind.
        """
        if not steps or not isinstance(steps[-1], Settled):
            return steps
        end = steps[-1]
        if end.source not in _OWN_WORDS:
            self._context.recheck()
        end = self._context.signals.end() or end
        has_begun = self._context.signals.last_kind in (SignalKind.SUBMITTED, SignalKind.WORKING)
        if end.source in _OWN_WORDS or not has_begun or self._context.now() >= self._slow_until or self._shown.read():
            return (*steps[:-1], end)
        self._tracker.go_on(self._context.now())
        return steps[:-1]

    def _step_events(self, step: TurnStep) -> Iterator[TurnEvent]:
        if isinstance(step, Settled):
            if not self._has_started:
                yield self._started(step.source, "it has ended, so it had started")
            yield self._end(step)
            return
        verdict = self._context.watcher.evidence.verdict
        is_reported = verdict.source in _OWN_WORDS
        if isinstance(step, Waiting):
            self._is_menu = not self._context.questions.is_open
            # A question has events of its own, and so has its end.
            if self._is_menu:
                dialog = verdict.why if is_reported else step.dialog
                yield Progress(f"a dialog waits for a person: {dialog}" + (f" ({step.hint})" if step.hint else ""))
        elif not self._has_started:
            source, evidence = (verdict.source, verdict.why) if is_reported else (step.source, step.evidence)
            yield self._started(source, evidence)
        elif self._is_menu:
            yield Progress("the dialog was answered")

    def _started(self, source: str, why: str) -> TurnStarted:
        self._has_started = True
        return TurnStarted(source, why)

    def _end(self, settled: Settled) -> Answered | Failed:
        if settled.reason:
            was_denied = settled.reason == INTERRUPTED and self._last_question_id == self._answerer.denied != ""
            return Failed(settled.reason, _DENIED if was_denied else settled.evidence)
        if settled.source in _OWN_WORDS:
            return Answered(parts=_text_parts(settled.evidence), source=settled.source)
        context = self._context
        if context.expected is not None and not context.signals.has_reported:
            context.watcher.evidence.report(context.expected, "", _SILENCE, context.now())
        return Answered(parts=_text_parts(self._shown.read()), source="screen")


class PartialText:
    """Yields the text of one turn as far as it has come. `reads_screen` is for programs that do not report it."""

    def __init__(self, context: PtyContext, text: str, shown: ShownAnswer, *, reads_screen: bool) -> None:
        self._context = context
        self._echo = text.partition("]")[0][:_ECHO_LENGTH]
        self._shown = shown
        self._reads_screen = reads_screen
        self._stable = StableText()
        # A turn that is over soon costs no look.
        self._next = context.now() + SCREEN_SECONDS if reads_screen else 0.0
        self._seen_version = -1

    @property
    def deadline(self) -> float | None:
        """When to call `events` again, even if nothing happens."""
        if self._reads_screen:
            return self._next if self._context.program.screen.version != self._seen_version else None
        signals = self._context.signals
        return self._next if signals.said != signals.passed_on else None

    def events(self, look: Look) -> Iterator[PartialAnswer]:
        now = self._context.now()
        if now < self._next:
            return
        if not self._reads_screen:
            signals = self._context.signals
            if signals.said and signals.said != signals.passed_on:
                signals.passed_on, self._next = signals.said, now + OWN_WORDS_SECONDS
                yield PartialAnswer(signals.said, Source.SIGNAL)
        elif look.state == WORKING and not self._context.questions.is_open:
            self._next = now + SCREEN_SECONDS
            screen = self._context.program.screen
            self._seen_version = screen.version
            lines = screen.history(_PARTIAL_LINES)
            # Without the message among the lines, they may be about anything.
            if any(self._echo in line for line in lines) and (text := self._stable.receive(self._shown.within(lines))):
                yield PartialAnswer(text, Source.SCREEN)


class ShownAnswer:
    """Reads from the screen what stands below a message, and not below an earlier message with the same text.

    Make it before the message is typed.
    """

    def __init__(self, context: PtyContext, text: str) -> None:
        self._context = context
        self._text = text
        has_rule = context.profile.answer.echo is not None
        self._earlier = 0 if has_rule else count_shown(self._lines(), text, context.profile)

    def read(self) -> str:
        """Returns the answer that is shown now; empty if the message is not found."""
        return self.within(self._lines())

    def within(self, lines: Sequence[str]) -> str:
        """Returns the answer within these last lines of the screen."""
        return answer_text(lines, self._text, self._context.profile, earlier=self._earlier)

    def _lines(self) -> tuple[str, ...]:
        return self._context.program.screen.history(_ANSWER_LINES)


async def press_interrupt(context: PtyContext) -> bool:
    """Presses the profile's interrupt keys; False when it has none, or a dialog or the program's end came in between.

    Whether the program reacts is seen later.
    """
    how = context.profile.interrupt
    for index, key in enumerate(how.keys):
        if index and not await _stays_undisturbed(context, how.pause):
            return False
        context.program.write(key)
    context.interrupt_retry.pressed(context.now())
    return bool(how.keys)


async def _stays_undisturbed(context: PtyContext, seconds: float) -> bool:
    """Waits; False as soon as a dialog is open, which the next key would answer, or the program has ended."""
    end = context.now() + seconds
    while context.now() < end:
        await context.watcher.next_look(end)
        if dialog_open(context.watcher.look()) or context.program.exited.done():
            return False
    return True


def _text_parts(text: str) -> tuple[TextPart, ...]:
    return (TextPart(text=text),) if text else ()
