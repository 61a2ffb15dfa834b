"""A driver whose turns are lists of events, released one by one by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from synapse.core import agent
from synapse.core.driver import AgentView, Answered, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import AgentExited
from synapse.core.message import TextPart
from tests.fakes.clock import FakeClock


def echo(turn: Turn) -> list[TurnEvent]:
    """Take the message and answer it."""
    answer = Answered(parts=(TextPart(text=f"echo: {turn.message.text}"),), source="screen")
    return [Typing(), Submitted("screen", "the prompt was cleared"), answer]


class FakeDriver:
    """Plays `plot(turn)`. While `go_on` is clear it holds each turn before its last event, or before `holds_before`.

    Remembers what it was asked: `turns` that it took, texts that it `typed`, interrupts, confirmations.
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
        self.on_typing: Callable[[], None] = lambda: None

    def view(self) -> AgentView:
        state = agent.READY if self.ready.is_set() else agent.WORKING
        return AgentView(state=state, why="the test says so", source="screen", since=FakeClock().now())

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
            if self.exited:
                raise AgentExited("the program ended")
            yield event
            if isinstance(event, Typing):
                self.typed.append(turn.message.text)
                self.on_typing()

    async def interrupt(self) -> bool:
        self.interrupts += 1
        self.go_on.set()
        return True

    def drop(self) -> bool:
        self.drops += 1
        return False

    def confirm(self) -> None:
        self.confirmed = True
