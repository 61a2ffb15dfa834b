"""Playing a script in a test: time passes without waiting, and a message is one line."""

from __future__ import annotations

import asyncio

from synapse.core.driver import Answered, Submitted, Turn, TurnEvent, TurnStarted
from synapse.core.message import Message, MessageId, Role, TextPart, text_of
from synapse.core.task import TaskId
from synapse.drivers.scripted.driver import ScriptedDriver


class Pauses:
    """Passes the time of `wait` without waiting, and writes down how long it was."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, stop: asyncio.Event, seconds: float) -> None:
        self.taken.append(seconds)


def turn(text: str = "hi", *, message_id: str = "m-1", task_id: str = "t-1", first: bool = True) -> Turn:
    message = Message(message_id=MessageId(message_id), role=Role.USER, parts=(TextPart(text=text),))
    return Turn(task_id=TaskId(task_id), message=message, text=f"[A2A:{task_id}:user] {text}", first=first)


async def play(driver: ScriptedDriver, taken: Turn) -> list[TurnEvent]:
    """What the agent does with one message, without the two events that begin every turn."""
    submitted, started, *rest = [event async for event in driver.take_turn(taken)]
    assert isinstance(submitted, Submitted)
    assert isinstance(started, TurnStarted)
    return rest


def answer_of(events: list[TurnEvent]) -> str:
    last = events[-1]
    assert isinstance(last, Answered)
    return text_of(last.parts)
