"""What becomes of requests that wait, and of notices, when the host ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from synapse.core.driver import Failed, Turn, TurnEvent, Typing
from synapse.core.events import TaskEvent
from synapse.core.message import Sender
from synapse.core.override import override
from synapse.core.requests import CancelTask
from synapse.core.store import Lease
from synapse.core.task import Task, TaskState
from synapse.tasks import worker
from synapse.tasks.deferral import WAITING_FOR_REPLY
from tests.fakes.agent_at_work import PERSON, AgentAtWork, StoreKilledBetween, answers
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import CLAUDE, ME, AgentHarness, claude, working
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore


class StoreKilledAtTheEnd(MemoryStore):
    """Keeps nothing about a request that waits once a message that delivers an answer has ended: the host is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.killed = asyncio.Event()
        self.is_dead = False

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        if self.is_dead:
            self.killed.set()
            return asyncio.get_running_loop().create_future()
        self.is_dead = bool(task.delivers) and task.state.is_terminal
        return super().append(task, events, lease=lease, digest=digest)


async def test_a_restart_fails_a_deferred_request_and_delivers_the_answer_to_the_new_program() -> None:
    agent = AgentAtWork()
    async with working(agent.harness):
        request = await agent.request("t-1")
        wait = await agent.asks()
        await agent.goes_on(request)
    async with working(AgentHarness(FakeDriver(echo), store=agent.harness.store)) as after:
        sender = Sender(sender_id=ME.agent_id)
        await after.neighbour(CLAUDE).send("?", sender=sender, response_expected=True, sender_task_id=wait.id)
        await after.recover()
        ended = await after.finished(request)
        answered = await after.send("yes", in_reply_to=wait.id, sender=claude())
        message = await after.finished(await after.task(answered.delivered_as))

    assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_exited")
    assert message.artifacts[0].text == "echo: yes"


async def test_a_notice_that_is_queued_is_delivered_after_a_restart() -> None:
    agent = AgentAtWork()
    agent.driver.ready.clear()
    async with working(agent.harness) as before:
        wait = await agent.asks()
        await before.service.handle(CancelTask(wait.id), PERSON)
        notice = await agent.notice_of(wait)
    async with working(AgentHarness(FakeDriver(echo), store=before.store)) as after:
        await after.recover()
        told = await after.finished(notice)

    assert (told.state, told.artifacts[0].text) == (TaskState.COMPLETED, f"echo: {notice.message.text}")


async def test_a_notice_that_was_not_opened_before_a_crash_is_opened_at_the_next_start() -> None:
    store = StoreKilledBetween()
    before = AgentAtWork(store=store)
    wait = await before.asks()
    await before.harness.service.handle(CancelTask(wait.id), PERSON)
    with pytest.raises(RuntimeError):
        await before.harness.intake.late_answers.notify_unanswered(await before.harness.task(wait.id))
    store.is_killed = False

    for _ in range(2):
        after = AgentHarness(store=store)
        await after.recover()
        (notice,) = [await after.task(one) for one in after.worker.waiting]
        assert (notice.sender_name, notice.delivers) == ("synapse-system", wait.id)
        assert notice.message.text.endswith('was not answered: "canceled by request"')


@pytest.mark.parametrize("end", ["answered", "failed"])
async def test_a_host_killed_between_the_ends_of_message_and_request_ends_the_request_at_its_next_start(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_DRAIN_SECONDS", 0.0)

    def fails(turn: Turn) -> list[TurnEvent]:
        return answers(turn) if turn.message.text == "ask claude" else [Typing(), Failed("rate_limited", "at noon")]

    store = StoreKilledAtTheEnd()
    agent = AgentAtWork(answers if end == "answered" else fails, store)
    async with working(agent.harness) as before:
        request = await agent.request("t-1")
        wait = await agent.asks()
        await agent.goes_on(request)
        message = await agent.answered(wait)
        await asyncio.wait_for(store.killed.wait(), 5)
        store.is_dead = False
        assert (await store.load(message.id)).state.is_terminal
        assert (await store.load(request.id)).reason == WAITING_FOR_REPLY
    assert before.host_client.delivered == []
    async with working(AgentHarness(FakeDriver(echo), store=store)) as after:
        await after.recover()
        ended = await after.finished(request)
        await asyncio.wait_for(after.host_client.called.wait(), 5)
        replied = await agent.until_stored(request, lambda task: task.replied == "inferred")
    async with working(AgentHarness(FakeDriver(echo), store=store)) as later:
        await later.recover()

    delivered = [(one.sender_task_id, one.text, one.failed) for one in after.host_client.delivered]
    if end == "answered":
        assert (ended.state, ended.artifacts[0].text) == (TaskState.COMPLETED, "it says: yes")
        assert delivered == [("t-1", "it says: yes", False)]
    else:
        assert (ended.state, ended.reason) == (TaskState.FAILED, "rate_limited")
        assert delivered == [("t-1", ended.note, True)]
    assert later.host_client.delivered == []
    assert await later.task(request.id) == replied


async def test_a_request_that_still_waits_at_a_kill_fails_although_one_answer_has_come() -> None:
    agent = AgentAtWork()
    async with working(agent.harness) as before:
        request = await agent.request()
        waits = [await agent.asks(), await agent.asks()]
        await agent.goes_on(request)
        await before.finished(await agent.answered(waits[0]))
    after = AgentHarness(store=before.store)
    await after.recover()

    assert (await after.task(request.id)).reason == "agent_exited"
