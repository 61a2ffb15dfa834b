"""Drives a CLI on a pseudo-terminal: does what the pure code in `terminal/` decides."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final

from synapse.core.agent import AGENT_STATES, READY, WORKING
from synapse.core.driver import DEGRADED, AgentView, HoldReason, Observation, StatusListener, Submitted, Turn, TurnEvent
from synapse.core.question import Choice
from synapse.core.task import TaskId
from synapse.core.types import Clock
from synapse.core.usage import NoUsage, UsageRecorder, UsageReport
from synapse.drivers.pty.adapters.adapter import ApiSender
from synapse.drivers.pty.answering import Answerer, NativeAnswer
from synapse.drivers.pty.context import SUBMITTED, PtyContext, Signal, describe_exit
from synapse.drivers.pty.program import RunningProgram
from synapse.drivers.pty.prompt_files import PromptFiles
from synapse.drivers.pty.submit import ApiSubmitter, KeySubmitter
from synapse.drivers.pty.turn import PartialText, ShownAnswer, TurnFollower, press_interrupt
from synapse.drivers.pty.watcher import ScreenWatcher
from synapse.terminal.delivery import Delivery
from synapse.terminal.evidence import Look, Source
from synapse.terminal.gate import Shut, dialog_open, shut, shut_for_sending
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.questions import QuestionTracker
from synapse.terminal.signals.report import SignalReport, TextSoFar
from synapse.terminal.turn import InterruptRetry, TurnTracker

_REACTION_SECONDS: Final = 0.15
"""Within this time an idle program prints its reaction to a signal, if it has one."""
_MOST_DATES: Final = 100


class PtyDriver:
    """Implements core.driver.Driver for a running program, and adapters.adapter.SignalListener for its signals."""

    def __init__(
        self,
        program: RunningProgram,
        profile: Profile,
        clock: Clock,
        prompt_files: PromptFiles,
        usage: UsageRecorder | None = None,
    ) -> None:
        self.program = program
        self._usage: UsageRecorder = usage or NoUsage()
        self._profile = profile
        self._clock = clock
        self._prompt_files = prompt_files
        self._watcher = ScreenWatcher(profile, program.screen, program.pump, clock, program.has_unread)
        questions = QuestionTracker(profile, run=secrets.token_hex(4))
        self._context = PtyContext(
            program=program, profile=profile, clock=clock, watcher=self._watcher, questions=questions
        )
        self._key_submitter = KeySubmitter(self._context)
        self._answerer = Answerer(self._context)
        self._submission: Delivery | ApiSubmitter | None = None
        """The message that is being submitted."""
        self._in_turn = self._is_dropped = False
        self._types_next = False
        """Whether the API has refused a message: then messages are typed until one was submitted."""
        self._find_sender: Callable[[], ApiSender | None] = lambda: None
        self._dates: dict[float, datetime] = {}
        self._named_turn = ""
        """The program's own name of the last turn whose task was told to `_usage`."""
        self._told_question = ""
        self._hold = ""
        """Why nothing may be typed though its terminal shows that it is ready; empty if it may."""
        self._watcher.on_look = self._tell_question
        program.on_output = self._watcher.output_came
        program.exited.add_done_callback(self._program_ended)

    def use(self, recheck: Callable[[], None], answer: NativeAnswer, sender: Callable[[], ApiSender | None]) -> None:
        """Uses the program's adapter: to read its latest signals, to answer its questions, and to send messages."""
        self._context.recheck, self._answerer.native_answer, self._find_sender = recheck, answer, sender

    def view(self) -> AgentView:
        """Returns what is known of the agent now; see core.driver.Driver."""
        look = self._watcher.latest()
        opened = self._context.open_question(look)
        verdict = self._watcher.evidence.verdict
        closed = self._shut(look)
        restless = None if look.is_told else self._watcher.evidence.restless_since
        return AgentView(
            state=verdict.state,
            why=verdict.why,
            source=verdict.source,
            since=self._date(verdict.since),
            gate=closed.why if closed else "",
            gate_reason=closed.reason if closed else None,
            restless_since=None if restless is None else self._date(restless),
            observations=tuple(
                Observation(source=claim.source, state=claim.state, detail=claim.detail, at=self._date(claim.at))
                for claim in self._watcher.evidence.claims
            ),
            question=opened.question if opened else None,
        )

    def watch(self, listener: StatusListener) -> Callable[[], None]:
        """Calls `listener` with each change of the agent's state; see core.driver.Driver."""
        return self._watcher.listeners.add(listener)

    async def wait_ready(self) -> None:
        """Returns when the agent can take a message.

        Raises AgentExited when it never will.
        """
        while True:
            closed = self._shut(self._context.look())
            if closed is None:
                return
            await self._watcher.next_look(None if closed.opens_in is None else self._now() + closed.opens_in)

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Submits one message and yields the events of its turn; see core.driver.Driver.

        Raises AgentExited.
        """
        self._in_turn, self._is_dropped = True, False
        try:
            files = self._prompt_files
            text = files.compose(turn) if files.stores_nothing(turn) else await asyncio.to_thread(files.compose, turn)
            self._context.signals.begin(text)
            self._context.interrupt_retry = InterruptRetry()
            if not self._is_dropped:
                async with aclosing(self._take(text, turn.key)) as events:
                    async for event in events:
                        self._name_turn(turn.task_id)
                        yield event
        finally:
            self._name_turn(turn.task_id)
            self._in_turn, self._submission = False, None

    async def interrupt(self) -> bool:
        """Interrupts the agent's turn, by a signal or by keys as the profile says; never while a dialog is open.

        Returns False when it did nothing.
        """
        look = self._watcher.look()
        if dialog_open(look) or self.program.exited.done():
            return False
        how = self._profile.interrupt
        # At an empty prompt the key does other things: it may open a menu or leave the program. A signal does not, but
        # a turn that has just ended must not count as interrupted. Without a prompt rule a silent program only looks
        # idle.
        is_idle = look.state == READY and not self._in_turn
        if look.state != WORKING and not (how.signal and (is_idle or self._profile.prompt is None)):
            return False
        if not how.signal:
            return await press_interrupt(self._context)
        begun = self._now()
        self.program.signal_foreground(signal.Signals[how.signal])
        # Wait a moment for an idle program's reaction; the gate then stays shut until that output has ended.
        end = begun + _REACTION_SECONDS
        while look.state != WORKING and self.program.pump.last_output < begun and self._now() < end:
            await self._watcher.next_look(end)
        return True

    def drop(self) -> bool:
        """Drops the message that is being submitted, because it was canceled; see core.driver.Driver."""
        if self._submission is None:
            # Its files are being stored, or there is no message.
            self._is_dropped = True
            return self._in_turn
        self._watcher.wake()
        return self._submission.drop(self._now())

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Answers the program's question; see core.driver.Driver."""
        return await self._answerer.answer(question_id, choice)

    def confirm(self) -> None:
        """Goes on with the turn: a person saw that the program took the message."""
        self.signal("person", SUBMITTED, "a person saw it delivered")

    def signal(self, source: str, kind: str, detail: str) -> None:
        """Takes a signal about the agent or its turn; `source` is a value of `evidence.Source`.

        `kind` is a state of the agent, or SUBMITTED, or ANSWERED with the answer as `detail`.
        """
        if kind in AGENT_STATES:
            self._watcher.evidence.report(Source(source), kind, detail, self._now())
            self._watcher.tell_state()
        else:
            self._context.signals.add(Signal(source, kind, detail))
        self._watcher.wake()

    def report(self, report: SignalReport) -> None:
        """Takes the program's report about its turn; see `adapters.adapter.SignalListener`."""
        self._watcher.evidence.report(report.source, report.state, report.detail, self._now())
        self._watcher.tell_state()
        self._context.questions.receive(report)
        self._context.signals.report(report)
        self._watcher.wake()

    def say(self, saying: TextSoFar) -> None:
        """Takes what the program has said so far in its turn; see `adapters.adapter.SignalListener`."""
        if self._context.signals.say(saying):
            # Later words wait for the next look, which comes anyway: not each of them is worth one.
            self._watcher.wake()

    def note_usage(self, usage: UsageReport) -> None:
        """Takes what one request to the model cost; see `adapters.adapter.SignalListener`."""
        self._usage.record(usage)

    def quiet_for(self) -> float:
        """Returns the seconds since the program last printed; see `adapters.adapter.SignalListener`."""
        return self._now() - self.program.pump.last_output

    def typed(self) -> str:
        """Returns the last message that was typed; see `adapters.adapter.SignalListener`."""
        return self._context.signals.typed

    def picture(self) -> Picture | None:
        """Returns what its terminal shows; see `adapters.adapter.SignalListener`."""
        return self._watcher.latest().picture

    def seems_ready(self) -> bool:
        """Returns whether its terminal shows that it is ready; see `adapters.adapter.SignalListener`."""
        self._watcher.latest()
        return self._watcher.evidence.seen == READY

    def asks(self, question_id: str) -> bool:
        """Returns whether the program still asks that question; see `adapters.adapter.SignalListener`."""
        self._context.open_question(self._watcher.latest())
        return self._context.questions.has(question_id)

    def expect(self, source: Source, detail: str) -> None:
        """Expects reports of a source from now on; see `adapters.adapter.SignalListener`."""
        self._context.expected = source
        self._watcher.evidence.report(source, "", detail, self._now())

    def hold(self, why: str) -> None:
        """Keeps messages waiting until the text is empty; see `adapters.adapter.SignalListener`."""
        self._hold = why
        self._watcher.wake()

    def mark_missing(self, source: Source, detail: str) -> None:
        """Notes that a source will report nothing; see `adapters.adapter.SignalListener`."""
        self._watcher.evidence.report(source, "", f"{DEGRADED}: {detail}", self._now())

    async def stop(self) -> None:
        """Ends the program."""
        self._watcher.close()
        await self.program.stop()

    async def _take(self, text: str, key: str) -> AsyncGenerator[TurnEvent, None]:
        event: TurnEvent | None = None
        shown = ShownAnswer(self._context, text)
        sender = self._sender()
        submission: Delivery | ApiSubmitter
        if sender is None:
            submission = Delivery(text, self._profile)
            submitting = self._key_submitter.deliver(submission)
        else:
            submission = ApiSubmitter(self._context, sender, text, key)
            submitting = submission.events()
        self._submission = submission
        async with aclosing(submitting) as events:
            async for event in events:
                if isinstance(submission, ApiSubmitter) and submission.was_refused:
                    # Before the event is yielded: after Deferred the worker may close this generator.
                    self._types_next = True
                yield event
        if isinstance(event, Submitted):
            self._types_next = False
            has_worked = isinstance(submission, Delivery) and submission.saw_work
            tracker = TurnTracker(self._profile, self._now(), has_worked=has_worked)
            partial = PartialText(self._context, text, shown, reads_screen=self._find_sender() is None)
            follower = TurnFollower(self._context, self._answerer, tracker, partial, shown)
            async with aclosing(follower.events()) as events:
                async for event in events:
                    yield event

    def _name_turn(self, task_id: TaskId) -> None:
        """Says once whose turn the program's own turn is, when it has told its name."""
        name = self._context.signals.turn
        if name and name != self._named_turn:
            self._named_turn = name
            self._usage.name_turn(name, task_id)

    def _sender(self) -> ApiSender | None:
        """Returns the program's API if it has one that takes messages now; without one they are typed."""
        return None if self._types_next else self._find_sender()

    def _shut(self, look: Look) -> Shut | None:
        if self._hold:
            return Shut(self._hold, HoldReason.STARTING)
        if self._sender() is not None:
            return shut_for_sending(look, self._profile)
        return shut(look, self._profile)

    def _program_ended(self, exited: asyncio.Future[int]) -> None:
        self._watcher.evidence.exited(describe_exit(exited.result()), self._now())
        self._watcher.tell_state()
        self._watcher.wake()

    def _now(self) -> float:
        return self._clock.monotonic()

    def _date(self, moment: float) -> datetime:
        """Returns the date of a monotonic time, always the same one: the clocks drift apart, but a start stays."""
        known = self._dates.get(moment)
        if known is None:
            if len(self._dates) >= _MOST_DATES:
                self._dates.clear()
            known = self._dates[moment] = self._clock.now() - timedelta(seconds=self._now() - moment)
        return known

    def _tell_question(self, look: Look) -> None:
        """Tells the listeners when the program asks another question than before, or none, in the same state."""
        if not self._watcher.listeners.has_any:
            return
        opened = self._context.open_question(look)
        question_id = opened.id if opened else ""
        if question_id != self._told_question:
            self._told_question = question_id
            self._watcher.tell()
