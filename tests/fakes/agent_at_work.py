"""An agent at work on a request, whose waiters leave and whose answers come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from synapse.core.caller import Caller
from synapse.core.driver import Answered, Submitted, Turn, TurnEvent, Typing
from synapse.core.events import TaskEvent
from synapse.core.message import TextPart
from synapse.core.override import override
from synapse.core.requests import CreateTask, LeaveTask
from synapse.core.store import Lease
from synapse.core.task import Task, TaskId
from synapse.tasks.deferral import WAITING_FOR_REPLY
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import CLAUDE, ME, AgentHarness, claude, say
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore

CODEX = Caller(agent_id=ME.agent_id, via_socket=True)
PERSON = Caller(via_socket=True)
WAITS = {"waits_for": CLAUDE.agent_id, "waits_for_inbox": CLAUDE.inbox}
STILL_WAITING = "still waiting"


def answers(turn: Turn) -> list[TurnEvent]:
    """Says in the turn of a request that it waits, and in the turn of an answer what that was."""
    said = f"it says: {turn.message.text}" if turn.message.text != "ask claude" else STILL_WAITING
    return [Typing(), Submitted("screen", "seen"), Answered(parts=(TextPart(text=said),), source="screen")]


class StoreKilledBetween(MemoryStore):
    """Keeps the end of a wait, but not the message that delivers it: the host was killed between the two."""

    is_killed = True

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        if task.delivers and self.is_killed:
            raise RuntimeError("the host was killed here")
        return super().append(task, events, lease=lease, digest=digest)


class AgentAtWork:
    """One agent at work on a request, and what it does in its turns."""

    def __init__(self, plot: Callable[[Turn], list[TurnEvent]] = answers, store: MemoryStore | None = None) -> None:
        self.driver = FakeDriver(plot)
        self.harness = AgentHarness(self.driver, store)

    async def takes(self, task: Task) -> Task:
        """Waits until the agent is in the turn of the task, which then goes on only when `goes_on` is called."""
        return await self.harness.reached(task, "submitted")

    async def request(self, sender_task_id: str = "") -> Task:
        self.driver.go_on.clear()
        sent = self.harness.send(
            "ask claude",
            sender=claude(),
            response_expected=bool(sender_task_id),
            sender_task_id=sender_task_id,
        )
        return await self.takes(await sent)

    async def asks(self, *, leaves: bool = True) -> Task:
        wait = await self.harness.service.handle(CreateTask(message=say("?"), dialect="synapse", metadata=WAITS), CODEX)
        return await self.harness.service.handle(LeaveTask(wait.id), CODEX) if leaves else wait

    async def is_deferred(self, request: Task) -> Task:
        return await self.until(request, lambda task: task.reason == WAITING_FOR_REPLY)

    async def goes_on(self, request: Task) -> Task:
        self.driver.go_on.set()
        return await self.is_deferred(request)

    async def answered(self, wait: Task, text: str = "yes") -> Task:
        """Replies to the wait; returns the message that delivers the reply."""
        ended = await self.harness.send(text, in_reply_to=wait.id, sender=claude())
        return await self.harness.task(ended.delivered_as)

    async def notice_of(self, wait: Task) -> Task:
        told = await self.until(wait, lambda task: bool(task.delivered_as))
        message = TaskId(told.delivered_as)
        return await self._until_known(message, lambda task: task is not None)

    async def until(self, task: Task, holds: Callable[[Task], bool]) -> Task:
        return await self._until_known(task.id, lambda now: now is not None and holds(now))

    async def until_stored(self, task: Task, holds: Callable[[Task], bool]) -> Task:
        """Waits until the store has the task so, whichever host has written it."""
        async with asyncio.timeout(5):
            seq = 0
            while not holds(stored := await self.harness.store.load(task.id)):
                seq = await self.harness.store.wait_after(seq, 5)
        return stored

    async def _until_known(self, task_id: TaskId, holds: Callable[[Task | None], bool]) -> Task:
        changed = asyncio.Event()
        stop = self.harness.journal.listen(lambda _update: changed.set(), task_id.__eq__)
        async with asyncio.timeout(5):
            while not holds(now := self.harness.journal.known(task_id)) or now is None:
                changed.clear()
                await changed.wait()
        stop()
        return now
