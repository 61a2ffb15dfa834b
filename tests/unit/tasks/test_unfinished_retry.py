"""Retrying a message in doubt: text typed before Enter is cleared first, and proof prevents the retry."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, DeliveryUncertain, Failed, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import Conflict
from synapse.core.message import TextPart
from synapse.core.override import override
from synapse.core.requests import ResolveTask
from synapse.core.task import TaskState
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import AgentHarness, working

PERSON = Caller(via_socket=True)
NEVER = Failed("never", "reached")


class ClearingDriver(FakeDriver):
    """Takes the text of a dropped message out of the input; a turn ends silently then, unless there is proof first."""

    is_dropping = False

    @override
    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        self.is_dropping = False
        async for event in super().take_turn(turn):
            if self.is_dropping and event == NEVER:
                return
            yield event

    @override
    def drop(self) -> bool:
        self.drops += 1
        self.is_dropping = True
        self.go_on.set()
        return True


async def test_the_text_is_taken_out_before_it_is_typed_again() -> None:
    taken: list[Turn] = []

    def plot(turn: Turn) -> list[TurnEvent]:
        taken.append(turn)
        return [Typing(), DeliveryUncertain("a dialog came before Enter"), NEVER] if len(taken) == 1 else echo(turn)

    driver = ClearingDriver(plot)
    driver.go_on.clear()
    async with working(AgentHarness(driver)) as harness:
        task = await harness.send("hello")
        await harness.raised(task)
        await harness.service.handle(ResolveTask(task_id=task.id, verdict="retry"), PERSON)
        ended = await harness.finished(task)

    assert driver.typed == ["hello", "hello"]
    assert ended.state is TaskState.COMPLETED
    assert [receipt.step for receipt in ended.receipts][:4] == ["queued", "typed", "queued", "typed"]


async def test_a_text_that_turns_out_to_be_taken_is_not_typed_again() -> None:
    answer = Answered(parts=(TextPart(text="late"),), source="screen")

    driver = ClearingDriver(
        lambda _turn: [Typing(), DeliveryUncertain("a dialog"), Submitted("signal", "its hook"), answer]
    )
    driver.go_on.clear()
    driver.holds_before = Submitted
    async with working(AgentHarness(driver)) as harness:
        task = await harness.send("hello")
        await harness.raised(task)
        with pytest.raises(Conflict):
            await harness.service.handle(ResolveTask(task_id=task.id, verdict="retry"), PERSON)
        ended = await harness.finished(task)

    assert (driver.typed, ended.state) == (["hello"], TaskState.COMPLETED)
