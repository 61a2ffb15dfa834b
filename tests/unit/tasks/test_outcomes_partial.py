"""An answer that is still growing: only what is new of it is recorded, and the whole answer takes its place."""

from __future__ import annotations

from synapse.core.driver import Answered, Failed, PartialAnswer, Submitted, Turn, TurnEvent
from synapse.core.events import ArtifactAdded
from synapse.core.message import TextPart
from synapse.core.task import Task, TaskState
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, working


async def played(*events: TurnEvent) -> tuple[Task, list[ArtifactAdded]]:
    """A turn with these events; the task after it, and what was recorded of its text."""

    def plot(_turn: Turn) -> list[TurnEvent]:
        return [Submitted("signal", "taken"), *events]

    async with working(AgentHarness(FakeDriver(plot))) as harness:
        task = await harness.finished(await harness.send("weather?"))
        log = [update.event async for update in harness.journal.updates(task.id)]
    return task, [event for event in log if isinstance(event, ArtifactAdded)]


def answered(text: str) -> Answered:
    return Answered(parts=(TextPart(text=text),), source="signal")


def texts(added: list[ArtifactAdded]) -> list[tuple[str, bool]]:
    return [(event.artifact.text, event.append) for event in added]


async def test_only_what_is_new_is_recorded_and_the_end_is_exact() -> None:
    task, added = await played(
        PartialAnswer("The ", "signal"),
        PartialAnswer("The end", "signal"),
        PartialAnswer("The end", "signal"),
        answered("The end."),
    )

    assert texts(added) == [("The ", False), ("end", True), ("The end.", False)]
    assert [event.last_chunk for event in added] == [False, False, True]
    assert added[0].artifact.metadata == {"source": "signal", "inferred": True, "partial": True}
    (answer,) = task.artifacts
    assert (answer.parts, answer.metadata) == ((TextPart(text="The end."),), {"source": "signal", "inferred": True})


async def test_a_text_that_was_rewritten_replaces_what_was_said() -> None:
    _, added = await played(
        PartialAnswer("Let me look", "screen"), PartialAnswer("Found it", "screen"), answered("Found it!")
    )

    assert texts(added) == [("Let me look", False), ("Found it", False), ("Found it!", False)]


async def test_what_was_said_before_a_failure_stays_and_is_marked() -> None:
    task, _ = await played(
        PartialAnswer("The ", "signal"), PartialAnswer("The wea", "signal"), Failed("api_error", "it broke")
    )

    assert task.state is TaskState.FAILED
    (kept,) = task.artifacts
    assert (kept.text, kept.metadata["partial"]) == ("The wea", True)
