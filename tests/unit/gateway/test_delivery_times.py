"""Delivery times, measured from the shared log."""

from __future__ import annotations

import pytest

from synapse.core.events import TaskEvent
from synapse.core.requests import Delivered
from synapse.core.task import ReceiptStep, TaskState
from synapse.gateway import metrics
from synapse.gateway.metrics import DeliveryTimes
from synapse.tasks.journal import Journal
from tests.fakes.facts import moved, numbered, opened, stepped
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore

AGENT = "synapse-codex-8120"


async def told(*events: TaskEvent, before: tuple[TaskEvent, ...] = ()) -> tuple[Delivered, ...]:
    """Returns the steps of `events`, when the first call came after `before`."""
    store = MemoryStore()
    journal, times = Journal(store, ANY_LEASE), DeliveryTimes(store)
    for event in before:
        await journal.record(event)
    assert await times.read_new() == ()
    for event in events:
        await journal.record(event)
    first = await times.read_new()
    assert await times.read_new() == ()
    return first


def step(name: ReceiptStep, seconds: float) -> Delivered:
    return Delivered(agent=AGENT, step=name.value, seconds=seconds)


async def test_each_step_has_the_seconds_since_the_message_was_queued() -> None:
    events = (
        opened(at=0),
        stepped(ReceiptStep.TYPED, at=1),
        stepped(ReceiptStep.SUBMITTED, at=2),
        stepped(ReceiptStep.TURN_STARTED, at=3),
        stepped(ReceiptStep.ANSWERED, at=9),
    )

    assert await told(*events) == (
        step(ReceiptStep.SUBMITTED, 2),
        step(ReceiptStep.TURN_STARTED, 3),
        step(ReceiptStep.ANSWERED, 9),
    )


async def test_a_follow_up_counts_from_its_own_queueing() -> None:
    events = (
        opened(at=0),
        moved(TaskState.WORKING, at=1),
        moved(TaskState.INPUT_REQUIRED, at=2),
        stepped(ReceiptStep.QUEUED, at=60),
        stepped(ReceiptStep.SUBMITTED, at=61),
    )

    assert await told(*events) == (step(ReceiptStep.SUBMITTED, 1),)


async def test_messages_queued_before_the_first_call_are_left_out() -> None:
    assert await told(stepped(ReceiptStep.SUBMITTED, at=2), before=(opened(at=0),)) == ()


async def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    assert await told(opened(at=5), stepped(ReceiptStep.SUBMITTED, at=1)) == (step(ReceiptStep.SUBMITTED, 0),)


async def test_no_more_tasks_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_MAX_TASKS", 2)
    tasks = [numbered(number) for number in range(3)]

    seen = await told(
        *(opened(task) for task in tasks), *(stepped(ReceiptStep.SUBMITTED, task, at=1) for task in tasks)
    )

    assert len(seen) == 2
