"""A script behind the real worker and journal: its steps become the task that callers see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from synapse.core.errors import AgentExited
from synapse.core.events import MessageAdded, StateChanged, TaskOpened
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.task import ReceiptStep, Task, TaskId, TaskState
from synapse.drivers.scripted.driver import ScriptedDriver
from synapse.drivers.scripted.script import read_script
from synapse.tasks.deferral import DeferredReplies
from synapse.tasks.journal import Journal
from synapse.tasks.worker import AgentWorker
from tests.fakes.clock import FakeClock
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.fakes.script_player import Pauses

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


class Agent:
    """A scripted agent whose queue is delivered."""

    def __init__(self, example: str) -> None:
        self._clock = FakeClock()
        self._journal = Journal(MemoryStore(), ANY_LEASE)
        self._ended: asyncio.Queue[Task] = asyncio.Queue()
        self.driver = ScriptedDriver(read_script(EXAMPLES / example), self._clock, pause=Pauses())
        deferred = DeferredReplies(self._journal, self._clock)
        self.worker = AgentWorker(self.driver, self._journal, self._clock, self._ended.put_nowait, deferred=deferred)

    async def send(self, text: str, message_id: str = "m-1") -> Task:
        """Open a task and return it as it is when its turn has ended."""
        message = _message(text, message_id)
        task = await self._journal.record(
            TaskOpened(
                task_id=TaskId(f"task-of-{message_id}"),
                at=self._clock.now(),
                agent_id="synapse-scripted-8200",
                inbox="scripted",
                context_id="c-1",
                scope="local",
                dialect="synapse",
                message=message,
            )
        )
        await self.worker.enqueue(task, message)
        return await self._next()

    async def follow_up(self, task: Task, text: str, message_id: str) -> Task:
        """Say more on a task that waits."""
        message, now = _message(text, message_id), self._clock.now()
        task = await self._journal.record(
            MessageAdded(task_id=task.id, at=now, message=message),
            StateChanged(task_id=task.id, at=now, state=TaskState.SUBMITTED),
        )
        await self.worker.enqueue(task, message, first=False)
        return await self._next()

    async def _next(self) -> Task:
        async with asyncio.timeout(10):
            return await self._ended.get()


def _message(text: str, message_id: str) -> Message:
    return Message(message_id=MessageId(message_id), role=Role.USER, parts=(TextPart(text=text),))


@asynccontextmanager
async def at_work(example: str) -> AsyncGenerator[Agent]:
    agent = Agent(example)
    working = asyncio.ensure_future(agent.worker.run())
    try:
        yield agent
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError, AgentExited):
            await working


async def test_an_answer_completes_the_task() -> None:
    async with at_work("hello.toml") as agent:
        task = await agent.send("hello you")

    assert task.state is TaskState.COMPLETED
    assert [artifact.text for artifact in task.artifacts] == ["Hello! You said: hello you"]
    assert [receipt.step for receipt in task.receipts] == [
        ReceiptStep.QUEUED,
        ReceiptStep.SUBMITTED,
        ReceiptStep.TURN_STARTED,
        ReceiptStep.ANSWERED,
    ]


async def test_a_refusal_rejects_the_task() -> None:
    async with at_work("hello.toml") as agent:
        task = await agent.send("rm -rf everything")

    assert (task.state, task.note) == (TaskState.REJECTED, "I do not delete things.")


async def test_a_conversation_goes_through_its_questions_to_the_answer() -> None:
    async with at_work("conversation.toml") as agent:
        first = await agent.send("deploy web")
        second = await agent.follow_up(first, "staging", "m-2")
        first, second, third = [first, second, await agent.follow_up(second, "token", "m-3")]

    assert (first.state, first.note) == (TaskState.INPUT_REQUIRED, "Staging or production?")
    assert (second.state, second.note) == (TaskState.AUTH_REQUIRED, "I need your token for staging.")
    assert third.state is TaskState.COMPLETED
    assert [artifact.name for artifact in third.artifacts] == ["log", "answer"]
    assert [len(artifact.parts) for artifact in third.artifacts] == [3, 1]


async def test_artifacts_alone_complete_the_task() -> None:
    async with at_work("artifacts.toml") as agent:
        task = await agent.send("report")

    assert task.state is TaskState.COMPLETED
    assert [artifact.name for artifact in task.artifacts] == ["report", "pixel", "notes", "manual", "figures"]


async def test_an_agent_that_exits_fails_the_task_and_ends_the_worker() -> None:
    async with at_work("conversation.toml") as agent:
        task = await agent.send("crash")
        with pytest.raises(AgentExited):
            await agent.driver.wait_ready()

    assert (task.state, task.reason) == (TaskState.FAILED, "agent_exited")
