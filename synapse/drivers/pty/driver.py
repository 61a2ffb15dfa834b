"""Takes turns with a CLI on a pseudo-terminal: what `terminal/` decides is done here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final

from synapse.core.agent import AGENT_STATES, READY, WORKING
from synapse.core.driver import DEGRADED, AgentView, Sighting, StatusListener, Submitted, Turn, TurnEvent
from synapse.core.question import Choice
from synapse.core.types import Clock
from synapse.drivers.pty.adapters.adapter import Sender
from synapse.drivers.pty.answering import Answerer, OwnWay
from synapse.drivers.pty.context import ANSWERED, SUBMITTED, PtyContext, Signal, end_of
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

__all__ = ["ANSWERED", "SUBMITTED", "PtyDriver"]

_REACTION_SECONDS: Final = 0.15
"""An idle program that says something to a signal does so within this time."""


class PtyDriver:
    """Implements core.driver.Driver for a program that runs, and signals.adapter.Listener for what it says."""

    def __init__(self, program: RunningProgram, profile: Profile, clock: Clock, composer: PromptFiles) -> None:
        self.program = program
        self._profile = profile
        self._clock = clock
        self._composer = composer
        self._lookout = ScreenWatcher(profile, program.screen, program.pump, clock, program.has_unread)
        self._station = PtyContext(
            program=program, profile=profile, clock=clock, lookout=self._lookout, asking=QuestionTracker(profile)
        )
        self._typist = KeySubmitter(self._station)
        self._answerer = Answerer(self._station)
        self._on_its_way: Delivery | ApiSubmitter | None = None
        self._in_turn = self._is_dropped = False
        self._types_next = False
        """Its API has refused a message: the next is typed, until one was."""
        self._find_sender: Callable[[], Sender | None] = _no_sender
        program.on_output = self._lookout.output_came
        program.exited.add_done_callback(self._program_ended)

    def use(self, recheck: Callable[[], None], own_way: OwnWay, sender: Callable[[], Sender | None]) -> None:
        """Use what the program's adapter offers: its latest word, its way to be answered, its way to be sent to."""
        self._station.recheck, self._answerer.own_way, self._find_sender = recheck, own_way, sender

    def view(self) -> AgentView:
        """What is known of the agent now; see core.driver.Driver."""
        look = self._lookout.latest()
        asked = self._station.asked(look)
        verdict = self._lookout.evidence.verdict
        closed = self._shut(look)
        restless = None if look.is_told else self._lookout.evidence.restless_since
        return AgentView(
            state=verdict.state,
            why=verdict.why,
            source=verdict.source,
            since=self._date(verdict.since),
            gate=closed.why if closed else "",
            gate_reason=closed.reason if closed else None,
            restless_since=None if restless is None else self._date(restless),
            sightings=tuple(
                Sighting(source=claim.source, state=claim.state, detail=claim.detail, at=self._date(claim.at))
                for claim in self._lookout.evidence.claims
            ),
            question=asked.question if asked else None,
        )

    def watch(self, listener: StatusListener) -> Callable[[], None]:
        """Call `listener` with each change of the agent's state; see core.driver.Driver."""
        return self._lookout.listeners.add(listener)

    async def wait_ready(self) -> None:
        """Return when a message can be taken.

        Raises AgentExited when that will never be.
        """
        while True:
            closed = self._shut(self._station.look())
            if closed is None:
                return
            await self._lookout.next_look(None if closed.opens_in is None else self._now() + closed.opens_in)

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Type one message and yield what comes of it; see core.driver.Driver.

        Raises AgentExited.
        """
        self._in_turn, self._is_dropped = True, False
        try:
            text = await self._compose(turn)
            self._station.heard.begin(text)
            self._station.insistence = InterruptRetry()
            if not self._is_dropped:
                async with aclosing(self._take(text)) as events:
                    async for event in events:
                        yield event
        finally:
            self._in_turn, self._on_its_way = False, None

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
        return await press_interrupt(self._station)

    def drop(self) -> bool:
        """Forget the message that is being typed: it was canceled; see core.driver.Driver."""
        if self._on_its_way is None:
            # Its files are being stored, or there is none.
            self._is_dropped = True
            return self._in_turn
        self._lookout.wake()
        return self._on_its_way.drop(self._now())

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Answer what the program asks; see core.driver.Driver."""
        return await self._answerer.answer(question_id, choice)

    def confirm(self) -> None:
        """Go on with the turn: a person saw that the message was taken."""
        self.signal("person", SUBMITTED, "a person saw it delivered")

    def signal(self, source: str, kind: str, detail: str) -> None:
        """Take what the program itself reports by a hook or a transcript; `source` is a word of `evidence.Source`.

        `kind` is a state of the agent, or SUBMITTED, or ANSWERED with the answer as `detail`.
        """
        if kind in AGENT_STATES:
            self._lookout.evidence.report(Source(source), kind, detail, self._now())
            self._lookout.tell_state()
        else:
            self._station.heard.add(Signal(source, kind, detail))
        self._lookout.wake()

    def report(self, report: SignalReport) -> None:
        """Take what the program says of its turn; see `signals.adapter.Listener`."""
        self._lookout.evidence.report(report.source, report.state, report.detail, self._now())
        self._lookout.tell_state()
        self._station.asking.receive(report)
        self._station.heard.report(report)
        self._lookout.wake()

    def say(self, saying: TextSoFar) -> None:
        """Take what the program has said so far in its turn; see `signals.adapter.Listener`."""
        if self._station.heard.say(saying):
            # Later words wait for the next look, which comes by itself: not each of them is worth one.
            self._lookout.wake()

    def quiet_for(self) -> float:
        """Seconds since the program last printed; see `signals.adapter.Listener`."""
        return self._now() - self.program.pump.last_output

    def typed(self) -> str:
        """What was typed last; see `signals.adapter.Listener`."""
        return self._station.heard.typed

    def picture(self) -> Picture | None:
        """What its terminal shows; see `signals.adapter.Listener`."""
        return self._lookout.latest().picture

    def seems_ready(self) -> bool:
        """What its terminal shows; see `signals.adapter.Listener`."""
        self._lookout.latest()
        return self._lookout.evidence.seen == READY

    def asks(self, question_id: str) -> bool:
        """Whether it still asks that; see `signals.adapter.Listener`."""
        self._station.asked(self._lookout.latest())
        return self._station.asking.has(question_id)

    def expect(self, source: Source, detail: str) -> None:
        """A source should say something from now on; see `signals.adapter.Listener`."""
        self._station.expected = source
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

    async def _compose(self, turn: Turn) -> str:
        if self._composer.stores_nothing(turn):
            return self._composer.compose(turn)
        return await asyncio.to_thread(self._composer.compose, turn)

    async def _take(self, text: str) -> AsyncGenerator[TurnEvent, None]:
        event: TurnEvent | None = None
        shown = ShownAnswer(self._station, text)
        on_its_way, delivering = self._deliver(text)
        self._on_its_way = on_its_way
        async with aclosing(delivering) as events:
            async for event in events:
                if isinstance(on_its_way, ApiSubmitter) and on_its_way.was_refused:
                    # Before it is told: whoever hears that nothing was taken does not follow any further.
                    self._types_next = True
                yield event
        if isinstance(event, Submitted):
            self._types_next = False
            has_worked = isinstance(on_its_way, Delivery) and on_its_way.saw_work
            tracker = TurnTracker(self._profile, self._now(), has_worked=has_worked)
            partial = PartialText(self._station, text, shown, reads_screen=self._find_sender() is None)
            async with aclosing(
                TurnFollower(self._station, self._answerer, tracker, partial, shown).events()
            ) as events:
                async for event in events:
                    yield event

    def _deliver(self, text: str) -> tuple[Delivery | ApiSubmitter, AsyncGenerator[TurnEvent, None]]:
        """By its API if it has one that works, else by keys."""
        sender = self._sender()
        if sender is not None:
            handover = ApiSubmitter(self._station, sender, text)
            return handover, handover.events()
        delivery = Delivery(text, self._profile)
        return delivery, self._typist.deliver(delivery)

    def _sender(self) -> Sender | None:
        return None if self._types_next else self._find_sender()

    def _shut(self, look: Look) -> Shut | None:
        if self._sender() is not None:
            return shut_for_sending(look, self._profile)
        return shut(look, self._profile)

    def _program_ended(self, exited: asyncio.Future[int]) -> None:
        self._lookout.evidence.exited(end_of(exited.result()), self._now())
        self._lookout.tell_state()
        self._lookout.wake()

    def _now(self) -> float:
        return self._clock.monotonic()

    def _date(self, moment: float) -> datetime:
        return self._clock.now() - timedelta(seconds=self._now() - moment)


def _no_sender() -> Sender | None:
    return None
