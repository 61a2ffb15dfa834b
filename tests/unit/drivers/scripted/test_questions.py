"""A scripted agent asks a person, in the middle of a turn and at its start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from synapse.core.agent import READY, WAITING, WORKING
from synapse.core.driver import Answered, Failed, QuestionRaised, Resumed, TurnEvent
from synapse.core.errors import AgentExited, InvalidChoice, QuestionGone
from synapse.core.message import text_of
from synapse.core.question import Choice, Option, OptionEffect, Question, QuestionKind
from synapse.drivers.scripted.driver import ScriptedDriver
from synapse.drivers.scripted.script import parse_script
from tests.fakes.clock import FakeClock
from tests.fakes.script_player import Pauses, turn

ASKS = """
[default]
steps = [
  { question = "Go?", kind = "choice", detail = "there", options = ["allow: Yes", "Later: so"], takes_text = true },
  { answer = "{answer} to {text}" },
]
"""
STARTUP = '[startup]\nquestion = "Trust?"\nhint = "look first"\n\n[default]\nsteps = [{ answer = "ok" }]'


def agent(script: str) -> ScriptedDriver:
    return ScriptedDriver(parse_script(script), FakeClock(), pause=Pauses())


async def question_of(events: AsyncGenerator[TurnEvent, None]) -> Question:
    """Plays the turn as far as its question."""
    async for event in events:
        if isinstance(event, QuestionRaised):
            return event.question
    raise AssertionError("nothing was asked")


async def test_a_question_is_what_the_file_says() -> None:
    async with asyncio.timeout(5):
        driver = agent(ASKS)
        question = await question_of(driver.take_turn(turn()))

        assert question == Question(
            id="script-1",
            kind=QuestionKind.CHOICE,
            title="Go?",
            detail="there",
            options=(Option(key="1", label="Yes", effect=OptionEffect.ALLOW), Option(key="2", label="Later: so")),
            takes_text=True,
            source="signal",
        )
        assert (driver.view().state, driver.view().question) == (WAITING, question)


@pytest.mark.parametrize(("choice", "said"), [(Choice(option="1"), "Yes to hi"), (Choice(text="never"), "never to hi")])
async def test_the_turn_goes_on_with_the_answer(choice: Choice, said: str) -> None:
    async with asyncio.timeout(5):
        driver = agent(ASKS)
        events = driver.take_turn(turn())
        question = await question_of(events)

        assert await driver.answer(question.id, choice) == "signal"
        assert (driver.view().state, driver.view().question) == (WORKING, None)
        resumed, answered = [event async for event in events]
        assert resumed == Resumed("signal")
        assert isinstance(answered, Answered)
        assert text_of(answered.parts) == said


async def test_only_an_offered_answer_to_the_open_question_is_taken() -> None:
    async with asyncio.timeout(5):
        driver = agent(ASKS)
        question = await question_of(driver.take_turn(turn()))

        with pytest.raises(QuestionGone):
            await driver.answer("script-0", Choice(option="1"))
        with pytest.raises(InvalidChoice):
            await driver.answer(question.id, Choice(option="3"))
        await driver.answer(question.id, Choice(option="2"))
        with pytest.raises(QuestionGone):
            await driver.answer(question.id, Choice(option="2"))


async def test_an_agent_that_asks_is_not_interrupted_but_ends_with_its_host() -> None:
    async with asyncio.timeout(5):
        driver = agent(ASKS)
        events = driver.take_turn(turn())
        await question_of(events)

        assert not await driver.interrupt()
        driver.stop()
        (ended,) = [event async for event in events]
        assert isinstance(ended, Failed)
        assert driver.view().state == READY


async def test_an_agent_is_not_ready_before_its_startup_question_is_answered() -> None:
    async with asyncio.timeout(5):
        driver = agent(STARTUP)
        question = driver.view().question
        assert question is not None
        assert (driver.view().state, question.kind, question.hint) == (WAITING, QuestionKind.STARTUP, "look first")
        assert [option.effect for option in question.options] == [OptionEffect.ALLOW, OptionEffect.DENY]
        ready = asyncio.ensure_future(driver.wait_ready())
        assert not (await asyncio.wait({ready}, timeout=0.05))[0]

        await driver.answer(question.id, Choice(option="1"))

        await ready
        assert driver.view().state == READY


@pytest.mark.parametrize("script", [ASKS, STARTUP], ids=["in a turn", "at its start"])
async def test_an_agent_that_was_stopped_begins_nothing_more(script: str) -> None:
    async with asyncio.timeout(5):
        driver = agent(script)
        waiting = asyncio.ensure_future(driver.wait_ready())
        driver.stop()

        with pytest.raises(AgentExited):
            await waiting
        with pytest.raises(AgentExited):
            await anext(driver.take_turn(turn()))
