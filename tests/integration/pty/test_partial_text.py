"""An answer is passed on while it grows: in the program's own words by its API, else as its screen shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from synapse.core.driver import Answered, PartialAnswer, TurnEvent
from synapse.core.message import text_of
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import SignalKind, SignalReport, TextSoFar
from tests.integration.pty.terminals import BOUND, Forgetful, Stage, agent, line_program, new_turn, staged

pytestmark = pytest.mark.integration


async def until_said(turn: AsyncGenerator[TurnEvent, None]) -> PartialAnswer:
    async for event in turn:
        if isinstance(event, PartialAnswer):
            return event
    raise AssertionError("the turn ended without a word")


async def rest_of(turn: AsyncGenerator[TurnEvent, None]) -> tuple[list[PartialAnswer], Answered]:
    events = [event async for event in turn]
    assert isinstance(events[-1], Answered)
    return [event for event in events if isinstance(event, PartialAnswer)], events[-1]


async def test_stable_text_is_passed_on_before_the_turn_ends_and_moving_text_is_not(tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"

    async with asyncio.timeout(BOUND):
        async with staged(agent("slow_writer", str(go_on)), line_program()) as stage:
            await stage.ready()
            async with aclosing(stage.driver.take_turn(new_turn("weather?"))) as turn:
                said = await until_said(turn)
                go_on.touch()
                _, answer = await rest_of(turn)

        assert said == PartialAnswer("The weather in San Francisco is\ncurrently sunny with a high of", "screen")
        assert text_of(answer.parts) == f"{said.text}\n72 and a low of 58."


class TellingSender(Forgetful):
    """An API that takes a message, and reports the text of that turn and of another."""

    def __init__(self, stage: Stage) -> None:
        self._driver = stage.driver

    async def send(self, text: str, _key: str, /) -> str:
        self.report(SignalKind.SUBMITTED, text)
        self._driver.say(TextSoFar("another", "what nobody asked for"))
        return "its server took it"

    def report(self, kind: SignalKind, text: str) -> None:
        self._driver.report(
            SignalReport(kind=kind, source=Source.SIGNAL, detail="it says so", text=text, turn="turn-1")
        )

    def say(self, text: str) -> None:
        self._driver.say(TextSoFar("turn-1", text))


async def test_a_program_with_an_api_reports_its_own_words_of_this_turn_only() -> None:
    quiet = line_program(times={"quiet": 0.02, "settle": BOUND, "echo": 0.1, "proof": BOUND, "person": 0.0})

    async with asyncio.timeout(BOUND):
        async with staged(agent("deaf"), quiet) as stage:
            await stage.ready()
            sender = stage.adapter.sends = TellingSender(stage)
            async with aclosing(stage.driver.take_turn(new_turn("weather?"))) as turn:
                await anext(turn)
                await anext(turn)
                sender.say("The weather")
                first = await until_said(turn)
                sender.say("The weather in")
                sender.say("The weather in San Francisco")
                second = await until_said(turn)
                sender.report(SignalKind.ANSWERED, "The weather in San Francisco is fine.")
                said, answer = await rest_of(turn)

        assert (first, second) == (
            PartialAnswer("The weather", "signal"),
            PartialAnswer("The weather in San Francisco", "signal"),
        )
        assert (said, text_of(answer.parts)) == ([], "The weather in San Francisco is fine.")
