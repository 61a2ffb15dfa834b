"""A driver whose turns are lists of events, released one by one by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import datetime

from synapse.core import agent
from synapse.core.driver import (
    AgentView,
    Answered,
    HoldReason,
    QuestionRaised,
    Resumed,
    StatusListener,
    StatusListeners,
    Submitted,
    Turn,
    TurnEvent,
    Typing,
)
from synapse.core.errors import AgentExited, QuestionGone
from synapse.core.message import TextPart
from synapse.core.question import Choice, Question
from tests.fakes.clock import FakeClock


def echo(turn: Turn) -> list[TurnEvent]:
    """Take the message and answer it."""
    answer = Answered(parts=(TextPart(text=f"echo: {turn.message.text}"),), source="screen")
    return [Typing(), Submitted("screen", "the prompt was cleared"), answer]


class FakeDriver:
    """Plays `plot(turn)`. While `go_on` is clear it holds each turn before its last event, or before `holds_before`.

    A turn that asks (`QuestionRaised`) goes on when it is answered, here or as a person does it: `answer_at_terminal`.
    Remembers what it was asked: `turns` that it took, texts that it `typed`, interrupts, confirmations, `choices`.
    """

    def __init__(self, plot: Callable[[Turn], list[TurnEvent]] = echo) -> None:
        self.plot = plot
        self.holds_before: type[TurnEvent] | None = None
        self.turns: list[Turn] = []
        self.typed: list[str] = []
        self.taken = asyncio.Event()
        self.interrupts = 0
        self.drops = 0
        self.confirmed = False
        self.ready = asyncio.Event()
        self.ready.set()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.exited = False
        self.question: Question | None = None
        self.choices: list[Choice] = []
        self.gate: tuple[str, HoldReason] | None = None
        self.restless_since: datetime | None = None
        self.since = FakeClock().now()
        self._answered = asyncio.Event()
        self.listeners = StatusListeners()
        self.on_typing: Callable[[], None] = lambda: None

    def view(self) -> AgentView:
        state = agent.READY if self.ready.is_set() else agent.WORKING
        state = agent.WAITING if self.question else state
        return AgentView(
            state=state,
            why="the test says so",
            source="screen",
            since=self.since,
            gate=self.gate[0] if self.gate else "",
            gate_reason=self.gate[1] if self.gate else None,
            restless_since=self.restless_since,
            question=self.question,
        )

    def watch(self, listener: StatusListener) -> Callable[[], None]:
        return self.listeners.add(listener)

    async def wait_ready(self) -> None:
        if self.exited:
            raise AgentExited("the program ended")
        await self.ready.wait()

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        self.turns.append(turn)
        self.taken.set()
        events = self.plot(turn)
        for index, event in enumerate(events):
            held = index == len(events) - 1 if self.holds_before is None else isinstance(event, self.holds_before)
            if held:
                await self.go_on.wait()
            if isinstance(event, QuestionRaised):
                self._answered.clear()
                self.question = event.question
            elif isinstance(event, Resumed):
                await self._answered.wait()
            if self.exited:
                raise AgentExited("the program ended")
            yield event
            if isinstance(event, Typing):
                self.typed.append(turn.message.text)
                self.on_typing()

    async def interrupt(self) -> bool:
        self.interrupts += 1
        if self.question is not None:
            return False
        self.go_on.set()
        return True

    async def answer(self, question_id: str, choice: Choice) -> str:
        if self.question is None or self.question.id != question_id:
            raise QuestionGone
        self.choices.append(choice)
        self.answer_at_terminal()
        return "keys"

    def answer_at_terminal(self) -> None:
        self.question = None
        self._answered.set()

    def drop(self) -> bool:
        self.drops += 1
        return False

    def confirm(self) -> None:
        self.confirmed = True
