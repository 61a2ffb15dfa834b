"""A message in doubt whose text is still in the input: when its task ends, the text is cleared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, DeliveryUncertain, Turn, TurnEvent, Typing
from synapse.core.message import TextPart
from synapse.core.override import override
from synapse.core.requests import CancelTask, ResolveTask
from synapse.core.task import Task, TaskState
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import AgentHarness, working

LATE = Answered(parts=(TextPart(text="late"),), source="screen")


def doubtful(_turn: Turn) -> list[TurnEvent]:
    return [Typing(), DeliveryUncertain("no proof"), LATE]


def as_failed(task_id: str) -> ResolveTask:
    return ResolveTask(task_id=task_id, verdict="fail")


class Droppable(FakeDriver):
    """One whose text is still in the input when it is in doubt: it can be taken out, and then the turn ends."""

    is_dropped = False

    @override
    def drop(self) -> bool:
        self.is_dropped = True
        self.plot = echo
        self.go_on.set()
        return True


@pytest.mark.parametrize(
    ("end", "state"), [(CancelTask, TaskState.CANCELED), (as_failed, TaskState.FAILED)], ids=["canceled", "failed"]
)
async def test_a_message_in_doubt_before_enter_is_cleared_from_the_input(
    end: Callable[[str], CancelTask | ResolveTask], state: TaskState
) -> None:
    driver = Droppable(doubtful)
    driver.go_on.clear()
    async with working(AgentHarness(driver)) as harness:
        task = await harness.raised(await harness.send("one"))
        ended: Task = await harness.service.handle(end(task.id), Caller(via_socket=True))
        assert (ended.state, driver.is_dropped, driver.interrupts) == (state, True, 0)

        assert (await harness.finished(await harness.send("two"))).state is TaskState.COMPLETED
        assert (await harness.task(task.id)).state is state
    assert driver.typed == ["one", "two"]
