"""The ends of turns that typed nothing: recorded behind the turn, told when durable, and never lost."""

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
from tests.fakes.desk import Desk, working
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.stores import SlowStore, settle


def answers_at_once(turn: Turn) -> list[TurnEvent]:
    """Take the message without typing, and answer it."""
    answer = Answered(parts=(TextPart(text=f"echo: {turn.message.text}"),), source="script")
    return [Submitted("script", "taken"), TurnStarted("script", "begun"), answer]


def slow_desk() -> tuple[Desk, SlowStore]:
    store = SlowStore()
    return Desk(FakeDriver(answers_at_once), store), store


async def sent(desk: Desk, store: SlowStore, *texts: str) -> list[Task]:
    """Send messages; all of them are durable, and nothing that became of them is."""
    sending = [asyncio.ensure_future(desk.send(text)) for text in texts]
    await settle()
    store.commit()
    tasks = list(await asyncio.gather(*sending))
    await settle()
    return tasks


async def finished(desk: Desk, store: SlowStore, task: Task) -> Task:
    """Let the disk go on until the task has ended."""
    ending = asyncio.ensure_future(desk.finished(task))
    while not ending.done():
        await settle()
        store.commit()
    return ending.result()


async def test_the_next_turn_begins_while_the_end_of_the_last_one_is_on_its_way() -> None:
    desk, store = slow_desk()
    async with working(desk):
        one, two = await sent(desk, store, "one", "two")

        assert [turn.message.text for turn in desk.driver.turns] == ["one", "two"]
        assert (await desk.task(one.id)).state is TaskState.SUBMITTED
        store.commit()
        await settle()
        assert (await desk.task(one.id)).artifacts[0].text == "echo: one"
        assert (await desk.task(two.id)).artifacts[0].text == "echo: two"


async def test_all_that_became_of_a_message_is_recorded_at_once() -> None:
    desk, store = slow_desk()
    async with working(desk):
        (task,) = await sent(desk, store, "hello")

        assert store.waiting == 1
        ended = await finished(desk, store, task)
    assert [receipt.step for receipt in ended.receipts] == ["queued", "submitted", "turn_started", "answered"]


async def test_whoever_waits_for_the_answer_hears_of_it_when_it_is_durable() -> None:
    desk, store = slow_desk()
    heard: list[TaskState] = []
    desk.journal.listen(lambda update: heard.append(update.task.state))
    async with working(desk):
        await sent(desk, store, "hello")
        assert TaskState.COMPLETED not in heard
        store.commit()
        await settle()

    assert heard[-1] is TaskState.COMPLETED


async def test_a_typed_turn_waits_for_its_end_to_be_durable() -> None:
    store = SlowStore()
    desk = Desk(FakeDriver(echo), store)
    async with working(desk):
        one, two = await sent(desk, store, "one", "two")
        for _ in range(2):  # the intent, and the proof
            store.commit()
            await settle()
        assert [turn.message.text for turn in desk.driver.turns] == ["one"]

        assert (await finished(desk, store, one)).state is TaskState.COMPLETED
        assert (await finished(desk, store, two)).state is TaskState.COMPLETED


async def test_only_so_many_turns_run_ahead_of_the_store() -> None:
    desk, store = slow_desk()
    async with working(desk):
        most = turn_recorder.MOST_ON_THEIR_WAY
        tasks = await sent(desk, store, *(str(number) for number in range(most + 5)))

        assert len(desk.driver.turns) == most
        for task in tasks:
            assert (await finished(desk, store, task)).state is TaskState.COMPLETED


async def test_a_cancel_that_was_first_wins_and_the_worker_goes_on() -> None:
    desk, store = slow_desk()
    desk.driver.go_on.clear()
    async with working(desk):
        (task,) = await sent(desk, store, "never mind")
        canceling = asyncio.ensure_future(desk.service.handle(CancelTask(task.id), Caller()))
        await settle()
        desk.driver.go_on.set()
        await settle()
        ended = await finished(desk, store, task)
        await canceling
        (other,) = await sent(desk, store, "other")
        assert (await finished(desk, store, other)).state is TaskState.COMPLETED

    assert (ended.state, ended.artifacts) == (TaskState.CANCELED, ())


async def test_a_store_that_fails_gets_the_end_later_and_no_turn_begins_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_recorder, "STORE_PAUSE", 0.01)

    desk, store = slow_desk()

    def rests_after_a_turn(turn: Turn) -> list[TurnEvent]:
        desk.driver.ready.clear()
        return answers_at_once(turn)

    desk.driver.plot = rests_after_a_turn
    async with working(desk):
        one, two = await sent(desk, store, "one", "two")
        store.fail_next(StoreLocked("somebody holds the lock"))
        await settle()
        desk.driver.ready.set()
        await settle()
        assert [turn.message.text for turn in desk.driver.turns] == ["one"]

        assert (await finished(desk, store, one)).artifacts[0].text == "echo: one"
        assert (await finished(desk, store, two)).artifacts[0].text == "echo: two"


async def test_an_answer_that_can_never_be_stored_fails_its_task_and_not_the_agent() -> None:
    desk, store = slow_desk()
    async with working(desk):
        (task,) = await sent(desk, store, "strange")
        for _ in range(2):  # together, and once more by itself
            store.fail_next(InvalidRequest("this cannot be stored"))
            await settle()
        ended = await finished(desk, store, task)
        (other,) = await sent(desk, store, "other")
        assert (await finished(desk, store, other)).state is TaskState.COMPLETED

    assert (ended.state, ended.reason) == (TaskState.FAILED, "internal")


async def test_a_worker_that_is_told_to_end_waits_for_the_ends_of_its_turns() -> None:
    desk, store = slow_desk()
    delivering = asyncio.ensure_future(desk.worker.run())
    (task,) = await sent(desk, store, "last words")
    delivering.cancel()
    await settle()
    assert not delivering.done()
    store.commit()
    await asyncio.wait({delivering}, timeout=5)

    assert delivering.cancelled()
    assert (await desk.task(task.id)).state is TaskState.COMPLETED


async def test_a_worker_that_is_told_to_end_does_not_wait_for_a_store_that_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("synapse.tasks.worker._FAREWELL_SECONDS", 0.01)

    desk, store = slow_desk()
    delivering = asyncio.ensure_future(desk.worker.run())
    await sent(desk, store, "lost words")
    delivering.cancel()
    await asyncio.wait({delivering}, timeout=5)

    assert delivering.cancelled()
