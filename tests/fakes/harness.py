"""A whole agent host without sockets: service, journal, worker and feed over a memory store and a fake driver."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import Driver
from synapse.core.errors import AgentExited
from synapse.core.message import Message, MessageId, Role, Sender, TextPart
from synapse.core.push import Push
from synapse.core.requests import GetTask, SendAndWait, SendMessage
from synapse.core.store import Lease
from synapse.core.task import DEFAULT_PRIORITY, Task
from synapse.external.agents import Externals
from synapse.host.tools import AgentTools, ToolsDriver
from synapse.push.service import PushConfigs
from synapse.tasks import recovery
from synapse.tasks.admission import ANYTHING, Acceptance
from synapse.tasks.deferral import DeferredReplies, unrecorded_ends
from synapse.tasks.feed import Feed
from synapse.tasks.intake import Intake
from synapse.tasks.journal import Journal
from synapse.tasks.questions import Questions
from synapse.tasks.quota import Quota
from synapse.tasks.replies import Replies
from synapse.tasks.rules import Limits
from synapse.tasks.senders import SenderRule
from synapse.tasks.service import AgentTasks, ReadScreen
from synapse.tasks.unfinished import InDoubt, ReplyRecovery
from synapse.tasks.worker import AgentWorker, AnswerAtOnce, never_at_once
from tests.fakes.clock import FakeClock
from tests.fakes.driver import FakeDriver
from tests.fakes.host_client import FakeHostClient
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.fakes.webhooks import FakeGuard

ME = AgentEntry("synapse-codex-8120", "codex", port=8120, endpoint="http://localhost:8120", inbox="codex@/proj")
CLAUDE = AgentEntry("synapse-claude-8100", "claude", port=8100, endpoint="http://localhost:8100", inbox="claude@/proj")


_IDS = itertools.count(1)


class FixedRegistry:
    """Claude and Codex are here."""

    async def agents(self) -> Sequence[AgentEntry]:
        return (ME, CLAUDE)

    async def find(self, agent_id: str) -> AgentEntry | None:
        return next((one for one in await self.agents() if one.agent_id == agent_id), None)

    async def publish(self, entry: AgentEntry) -> None:
        raise AssertionError(f"nobody registers {entry.agent_id} in these tests")

    async def withdraw(self, agent_id: str) -> None:
        raise AssertionError(f"nobody removes {agent_id} in these tests")


def say(text: str, message_id: str = "") -> Message:
    return Message(message_id=MessageId(message_id), role=Role.USER, parts=(TextPart(text=text),))


class AgentHarness:
    """The parts of one host, for tests to talk to."""

    def __init__(  # noqa: PLR0913 - what a test may want otherwise
        self,
        driver: FakeDriver | None = None,
        store: MemoryStore | None = None,
        *,
        queue_limit: int = 100,
        pair_per_minute: int = 0,
        agents_may_answer: bool = False,
        keys_may_answer: bool = True,
        has_push: bool = True,
        me: AgentEntry = ME,
        answer_at_once: AnswerAtOnce = never_at_once,
        new_id: Callable[[], str] | None = None,
        acceptance: Acceptance = ANYTHING,
        quota_bytes: int = 0,
        lease: Lease = ANY_LEASE,
        tools: AgentTools | None = None,
        read_screen: ReadScreen | None = None,
    ) -> None:
        self._me = me
        self.clock = FakeClock()
        self._new_id = new_id or _new_id
        self.driver = driver or FakeDriver()
        self.tools = tools
        self._read_screen = read_screen
        self._driver: Driver = ToolsDriver(self.driver, tools) if tools else self.driver
        self.store = store or MemoryStore()
        self.host_client = FakeHostClient()
        self.journal = Journal(self.store, lease)
        self.feed = Feed(self.journal, self.store)
        self.replies = Replies(me, self.journal, self.host_client, self.clock)
        self.deferred = DeferredReplies(self.journal, self.clock)
        self.worker = AgentWorker(
            self._driver, self.journal, self.clock, self.replies.turn_ended, answer_at_once, deferred=self.deferred
        )
        self.in_doubt = InDoubt(
            self.journal,
            self.worker,
            self.replies,
            self.clock,
            agents_may_decide=False,
            keys_may_decide=keys_may_answer,
        )
        self.questions = Questions(
            me,
            self.journal,
            self.worker,
            self.clock,
            agents_may_answer=agents_may_answer,
            keys_may_answer=keys_may_answer,
        )
        self.saved: list[Push] = []
        self.push_configs = self._push_configs() if has_push else None
        limits = Limits(queue=queue_limit, ttl=timedelta(hours=1), pair_per_minute=pair_per_minute)
        measure = partial(self.store.stored_bytes, inbox=me.inbox)
        self._quota = Quota(quota_bytes, measure, self.clock, whose=me.agent_id, setting="agent_quota_bytes")
        self.intake = self._intake(me, limits, acceptance)
        self.service = self._service(me)

    def _push_configs(self) -> PushConfigs:
        pushes = self.store.pushes
        return PushConfigs(pushes, FakeGuard(), self.journal, new_id=self._new_id, on_saved=self.saved.append)

    def _intake(self, me: AgentEntry, limits: Limits, acceptance: Acceptance) -> Intake:
        return Intake(
            me,
            journal=self.journal,
            store=self.store,
            feed=self.feed,
            worker=self.worker,
            replies=self.replies,
            deferred=self.deferred,
            questions=self.questions,
            registry=FixedRegistry(),
            clock=self.clock,
            new_id=self._new_id,
            new_task_id=self._new_id,
            new_context_id=self._new_id,
            limits=limits,
            push_configs=self.push_configs,
            acceptance=acceptance,
            quota=self._quota,
        )

    def _service(self, me: AgentEntry) -> AgentTasks:
        return AgentTasks(
            me,
            journal=self.journal,
            store=self.store,
            feed=self.feed,
            intake=self.intake,
            worker=self.worker,
            replies=self.replies,
            deferred=self.deferred,
            in_doubt=self.in_doubt,
            questions=self.questions,
            externals=NO_EXTERNALS,
            driver=self._driver,
            clock=self.clock,
            tools=self.tools,
            read_screen=self._read_screen,
            push_configs=self.push_configs,
        )

    async def send(
        self, text: str, *, priority: int = DEFAULT_PRIORITY, caller: Caller | None = None, **more: object
    ) -> Task:
        request = SendMessage(message=say(text), dialect="synapse", priority=priority, **more)  # type: ignore[arg-type] # tests say what
        return await self.service.send(request, caller or Caller())

    async def settled(self, send: SendMessage, caller: Caller | None = None) -> Task:
        """Send, and wait until the task has settled, as a transport does."""
        async with asyncio.timeout(5):
            pending = await self.service.send_and_wait(SendAndWait(send), caller or Caller())
            return await pending.settled()

    async def task(self, task_id: str) -> Task:
        return await self.service.get(GetTask(task_id), Caller())

    async def finished(self, task: Task) -> Task:
        """Wait until the task has ended."""
        last = task
        async with asyncio.timeout(5):
            async for update in self.feed.follow(task.id, None):
                last = update.task
        assert last.state.is_terminal
        return last

    def neighbour(self, entry: AgentEntry) -> AgentHarness:
        """Another agent's host over the same store."""
        return AgentHarness(store=self.store, me=entry)

    async def recover(self, can_resume: Callable[[Task], bool] = recovery.ends_with_us) -> None:
        """Do what a new host does with what an earlier one left."""
        adopted, now = await self.journal.adopt(self._me.inbox), self.clock.now()
        ends = await unrecorded_ends(adopted, self.store, now)
        left = recovery.plan(adopted, now, can_resume, ends, SenderRule.of(self._me).refusal_of)
        missed = ReplyRecovery(self.journal, self.store, self.intake, self.clock)
        await missed.note_waiters_left(left.waiting)
        await self.intake.resume(left)
        await missed.take(left.waiting)

    async def reached(self, task: Task, step: str) -> Task:
        """Wait until the task's receipt has come as far as `step`."""
        async with asyncio.timeout(5):
            async for update in self.feed.follow(task.id, None):
                if any(receipt.step == step for receipt in update.task.receipts):
                    return update.task
        raise AssertionError(f"{task.id} ended without reaching {step}")

    async def raised(self, task: Task) -> Task:
        """Wait until a person is asked about the task."""
        async with asyncio.timeout(5):
            async for update in self.feed.follow(task.id, None):
                if update.task.attention:
                    return update.task
        raise AssertionError(f"{task.id} ended and nobody was asked")


def _new_id() -> str:
    return f"{next(_IDS):08d}-0000-4000-8000-000000000000"


NO_EXTERNALS: Externals = None  # type: ignore[assignment]  # nobody speaks to external agents in these tests


@asynccontextmanager
async def working(harness: AgentHarness) -> AsyncGenerator[AgentHarness]:
    """Run the harness's long-lived parts meanwhile."""
    running = (
        harness.worker.run(),
        harness.replies.run(),
        harness.deferred.run(harness.intake.late_answers.notify_unanswered, harness.intake.late_answers.release),
    )
    jobs = [asyncio.ensure_future(job) for job in running]
    try:
        yield harness
    finally:
        for job in jobs:
            job.cancel()
            with suppress(asyncio.CancelledError, AgentExited):
                await job


def claude() -> Sender:
    return Sender(sender_id=CLAUDE.agent_id, sender_type="claude", sender_endpoint=CLAUDE.endpoint)
