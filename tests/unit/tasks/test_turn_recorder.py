"""The ends of turns that typed nothing: recorded in the background, reported when durable, and never lost."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, Submitted, Turn, TurnEvent, TurnStarted
from synapse.core.errors import InvalidRequest, StoreLocked
from synapse.core.message import TextPart
from synapse.core.requests import CancelTask
from synapse.core.task import Task, TaskState
from synapse.tasks import turn_recorder
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import AgentHarness, working
from tests.fakes.stores import SlowStore, settle


def answers_at_once(turn: Turn) -> list[TurnEvent]:
    """Take the message without typing, and answer it."""
    answer = Answered(parts=(TextPart(text=f"echo: {turn.message.text}"),), source="script")
    return [Submitted("script", "taken"), TurnStarted("script", "begun"), answer]


def slow_harness() -> tuple[AgentHarness, SlowStore]:
    store = SlowStore()
    return AgentHarness(FakeDriver(answers_at_once), store), store


async def sent(harness: AgentHarness, store: SlowStore, *texts: str) -> list[Task]:
    """Send messages; all of them are durable, and nothing that became of them is."""
    sending = [asyncio.ensure_future(harness.send(text)) for text in texts]
    await settle()
    store.commit()
    tasks = list(await asyncio.gather(*sending))
    await settle()
    return tasks


async def finished(harness: AgentHarness, store: SlowStore, task: Task) -> Task:
    """Let the disk go on until the task has ended."""
    ending = asyncio.ensure_future(harness.finished(task))
    while not ending.done():
        await settle()
        store.commit()
    return ending.result()


async def test_the_next_turn_begins_while_the_end_of_the_last_one_is_on_its_way() -> None:
    harness, store = slow_harness()
    async with working(harness):
        one, two = await sent(harness, store, "one", "two")

        assert [turn.message.text for turn in harness.driver.turns] == ["one", "two"]
        assert (await harness.task(one.id)).state is TaskState.SUBMITTED
        store.commit()
        await settle()
        assert (await harness.task(one.id)).artifacts[0].text == "echo: one"
        assert (await harness.task(two.id)).artifacts[0].text == "echo: two"


async def test_all_events_of_a_turn_are_recorded_in_one_append() -> None:
    harness, store = slow_harness()
    async with working(harness):
        (task,) = await sent(harness, store, "hello")

        assert store.waiting == 1
        ended = await finished(harness, store, task)
    assert [receipt.step for receipt in ended.receipts] == ["queued", "submitted", "turn_started", "answered"]


async def test_waiters_get_the_answer_when_it_is_durable() -> None:
    harness, store = slow_harness()
    states: list[TaskState] = []
    harness.journal.listen(lambda update: states.append(update.task.state))
    async with working(harness):
        await sent(harness, store, "hello")
        assert TaskState.COMPLETED not in states
        store.commit()
        await settle()

    assert states[-1] is TaskState.COMPLETED


async def test_a_typed_turn_waits_for_its_end_to_be_durable() -> None:
    store = SlowStore()
    harness = AgentHarness(FakeDriver(echo), store)
    async with working(harness):
        one, two = await sent(harness, store, "one", "two")
        for _ in range(2):  # the intent, and the proof
            store.commit()
            await settle()
        assert [turn.message.text for turn in harness.driver.turns] == ["one"]

        assert (await finished(harness, store, one)).state is TaskState.COMPLETED
        assert (await finished(harness, store, two)).state is TaskState.COMPLETED


async def test_only_so_many_turns_run_ahead_of_the_store() -> None:
    harness, store = slow_harness()
    async with working(harness):
        most = turn_recorder.MOST_PENDING
        tasks = await sent(harness, store, *(str(number) for number in range(most + 5)))

        assert len(harness.driver.turns) == most
        for task in tasks:
            assert (await finished(harness, store, task)).state is TaskState.COMPLETED


async def test_a_cancel_that_was_first_wins_and_the_worker_goes_on() -> None:
    harness, store = slow_harness()
    harness.driver.go_on.clear()
    async with working(harness):
        (task,) = await sent(harness, store, "never mind")
        canceling = asyncio.ensure_future(harness.service.handle(CancelTask(task.id), Caller()))
        await settle()
        harness.driver.go_on.set()
        await settle()
        ended = await finished(harness, store, task)
        await canceling
        (other,) = await sent(harness, store, "other")
        assert (await finished(harness, store, other)).state is TaskState.COMPLETED

    assert (ended.state, ended.artifacts) == (TaskState.CANCELED, ())


async def test_a_store_that_fails_gets_the_end_later_and_no_turn_begins_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_recorder, "RETRY_SECONDS", 0.01)

    harness, store = slow_harness()

    def rests_after_a_turn(turn: Turn) -> list[TurnEvent]:
        harness.driver.ready.clear()
        return answers_at_once(turn)

    harness.driver.plot = rests_after_a_turn
    async with working(harness):
        one, two = await sent(harness, store, "one", "two")
        store.fail_next(StoreLocked("somebody holds the lock"))
        await settle()
        harness.driver.ready.set()
        await settle()
        assert [turn.message.text for turn in harness.driver.turns] == ["one"]

        assert (await finished(harness, store, one)).artifacts[0].text == "echo: one"
        assert (await finished(harness, store, two)).artifacts[0].text == "echo: two"


async def test_an_answer_that_can_never_be_stored_fails_its_task_and_not_the_agent() -> None:
    harness, store = slow_harness()
    async with working(harness):
        (task,) = await sent(harness, store, "strange")
        for _ in range(2):  # together, and once more by itself
            store.fail_next(InvalidRequest("this cannot be stored"))
            await settle()
        ended = await finished(harness, store, task)
        (other,) = await sent(harness, store, "other")
        assert (await finished(harness, store, other)).state is TaskState.COMPLETED

    assert (ended.state, ended.reason) == (TaskState.FAILED, "internal")


async def test_a_worker_that_is_told_to_end_waits_for_the_ends_of_its_turns() -> None:
    harness, store = slow_harness()
    delivering = asyncio.ensure_future(harness.worker.run())
    (task,) = await sent(harness, store, "last words")
    delivering.cancel()
    await settle()
    assert not delivering.done()
    store.commit()
    await asyncio.wait({delivering}, timeout=5)

    assert delivering.cancelled()
    assert (await harness.task(task.id)).state is TaskState.COMPLETED


async def test_a_worker_that_is_told_to_end_does_not_wait_for_a_store_that_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("synapse.tasks.worker._DRAIN_SECONDS", 0.01)

    harness, store = slow_harness()
    delivering = asyncio.ensure_future(harness.worker.run())
    await sent(harness, store, "lost words")
    delivering.cancel()
    await asyncio.wait({delivering}, timeout=5)

    assert delivering.cancelled()
