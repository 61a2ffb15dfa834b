"""Programs that ask a person in the middle of a turn, and those who may or may not answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from synapse.core.caller import APPROVE, SEND, Caller
from synapse.core.driver import Answered, QuestionRaised, Resumed, Submitted, TurnEvent, Typing
from synapse.core.message import TextPart
from synapse.core.question import Option, OptionEffect, Question, QuestionKind
from synapse.core.requests import (
    AnswerQuestion,
)
from synapse.core.task import Task, TaskState
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import CLAUDE, ME, AgentHarness

PERSON = Caller(via_socket=True)
OVER_TCP = Caller()
OTHER_AGENT = Caller(via_socket=True, agent_id=CLAUDE.agent_id)
ITSELF = Caller(via_socket=True, agent_id=ME.agent_id)
LEFT_BEHIND = Caller(via_socket=True, doubt="its environment is that of an agent", named_agent="gone")
WITHOUT_TERMINAL = Caller(via_socket=True, terminal_doubt="it has no terminal")
GATEWAY_APPROVER = Caller(actions=frozenset({APPROVE}), name="ops")
GATEWAY_SENDER = Caller(actions=frozenset({SEND}), name="app")

PERMISSION = Question(
    id="q-1",
    kind=QuestionKind.PERMISSION,
    title="Run the command?",
    detail="rm -r build",
    options=(
        Option(key="1", label="Yes", effect=OptionEffect.ALLOW),
        Option(key="2", label="No", effect=OptionEffect.DENY),
    ),
)
CHOICE = replace(PERMISSION, kind=QuestionKind.CHOICE, title="Which?", options=(Option(key="1", label="main"),))
STARTUP = replace(PERMISSION, kind=QuestionKind.STARTUP, title="Trust this folder?")
TAKEN = Submitted("screen", "the prompt was cleared")
DONE = Answered(parts=(TextPart(text="done"),), source="screen")


def asks(*questions: Question, end: TurnEvent = DONE) -> FakeDriver:
    """A program that asks these in the middle of each turn, then ends it."""
    middle: list[TurnEvent] = [event for one in questions for event in (QuestionRaised(one), Resumed("keys"))]
    return FakeDriver(lambda _: [Typing(), TAKEN, *middle, end])


async def asked(harness: AgentHarness, text: str = "work", **more: Any) -> Task:
    """Send a message and return its task when something is asked."""
    return await is_asked(harness, await harness.send(text, **more))


async def is_asked(harness: AgentHarness, task: Task) -> Task:
    async with asyncio.timeout(5):
        async for update in harness.feed.follow(task.id, None):
            if update.task.state is TaskState.INPUT_REQUIRED:
                return update.task
    raise AssertionError("nothing was asked")


async def answer(harness: AgentHarness, caller: Caller = PERSON, **fields: str) -> Task | None:
    async with asyncio.timeout(5):
        task: Task | None = await harness.service.handle(AnswerQuestion(**fields), caller)
        return task
