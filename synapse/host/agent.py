"""Everything between an agent's driver and whoever asks: journal, queue, replies, and the sweep. A host has one of
these, a gateway one for each agent that it runs itself.

    take over what was left → deliver, reply, sweep → say farewell

An agent that was started, as its host sees it, whatever runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from synapse.config.process import SystemClock, new_context_id, new_id, new_task_id
from synapse.config.settings import Settings
from synapse.core.address import short_name
from synapse.core.agent import READY, AgentEntry
from synapse.core.driver import Driver
from synapse.core.errors import AgentExited, StoreFailed, SynapseError
from synapse.core.extension import Extensions
from synapse.core.message import Message
from synapse.core.registry import HostClient, Registry
from synapse.core.store import Lease, TaskStore
from synapse.core.task import Task
from synapse.core.types import Clock, SinceStart
from synapse.drivers.pty.prompt_files import forget_files_before
from synapse.external.agents import Externals
from synapse.host.agent_command import command_path, launch_folder
from synapse.push.service import open_push
from synapse.tasks import recovery
from synapse.tasks.admission import ANYTHING, Acceptance
from synapse.tasks.feed import Feed
from synapse.tasks.instructions import initial_instructions
from synapse.tasks.intake import Intake, Limits
from synapse.tasks.journal import Journal
from synapse.tasks.questions import Questions
from synapse.tasks.quota import Quota
from synapse.tasks.recovery import ends_with_us
from synapse.tasks.replies import Replies
from synapse.tasks.service import AgentTasks, HookEndpoint, HookReports, never
from synapse.tasks.unfinished import InDoubt, ReplyRecovery
from synapse.tasks.waits import LostAgents
from synapse.tasks.worker import AgentWorker, AnswerAtOnce, never_at_once

if TYPE_CHECKING:
    from synapse.server.websocket import WebSocketHandler

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 2.0
PUSH_SECONDS: Final = 10.0
PRUNE_SECONDS: Final = 3600.0
FAREWELL_SECONDS: Final = 2.0


class AgentRuntime:
    """One agent's parts; `service` is what can be asked of it. The caller has acquired the inbox, and releases it."""

    def __init__(  # noqa: PLR0913 - what the parts of an agent are built from
        self,
        me: AgentEntry,
        agent: RunningAgent,
        *,
        store: TaskStore,
        lease: Lease,
        registry: Registry,
        hosts: HostClient,
        settings: Settings,
    ) -> None:
        self._me = me
        self._agent = agent
        self._store = store
        self._registry = registry
        self._settings = settings
        self._clock = SystemClock()
        self._since_start = SinceStart(self._clock)
        self._journal = Journal(store, lease)
        self._feed = Feed(self._journal, store)
        self._replies = Replies(me, self._journal, hosts, self._clock)
        self._worker = AgentWorker(
            agent.driver,
            self._journal,
            self._clock,
            self._replies.turn_ended,
            agent.answer_at_once,
            patience=timedelta(seconds=settings.attention_after),
        )
        may_decide = settings.agents_may_approve
        self._questions = Questions(
            me,
            self._journal,
            self._worker,
            self._clock,
            agents_may_answer=may_decide,
            keys_may_answer=not settings.terminal_decides,
        )
        self._in_doubt = InDoubt(self._journal, self._worker, self._replies, self._clock, agents_may_decide=may_decide)
        self._pushing = open_push(me, store, self._journal, self._clock, settings)
        self._intake = self._new_intake()
        self._missed = ReplyRecovery(self._journal, store, self._intake, self._clock)
        self._delivering: asyncio.Future[None] | None = None
        self._pruned = self._looked_for_pushes = float("-inf")
        self.service = self._new_service()

    @property
    def waiting(self) -> int:
        """How many messages wait in the queue."""
        return self._worker.queue_length

    async def lease_lost(self) -> None:
        """Wait until another process is known to have taken the inbox over."""
        await self._journal.lease_lost()

    async def left(self) -> recovery.RecoveryPlan:
        """What to do with the tasks that an earlier holder of the inbox left."""
        found = await self._journal.adopt(self._me.inbox)
        left = recovery.plan(found, self._clock.now(), self._agent.can_resume)
        await self._missed.note_waiters_left(left.waiting)
        return left

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Deliver, reply and sweep, until these are cancelled; the first ends when the agent is gone."""
        delivering = group.create_task(_until_exit(self._worker.run()))
        self._delivering = delivering
        others = (self._replies.run(), self._sweep(), self._pushing.outbox.run())
        return [delivering, *(group.create_task(job) for job in others)]

    async def instruct(self) -> None:
        """Tell the agent who it is."""
        command = command_path(launch_folder(self._settings.home, self._me.agent_id))
        agents = await self._registry.agents()
        await self._intake.instruct(initial_instructions(self._me, agents, str(command)))

    async def resume(self, left: recovery.RecoveryPlan) -> None:
        """Go on with what an earlier host left, and take the replies that it missed.

        Those who wait for it are told, and can prove by whom.
        """
        await self._intake.resume(left)
        await self._missed.take(left.waiting)

    async def recover_store(self) -> None:
        """Put a store that was deleted back, and record the end of a turn that waits for it: the agent has answered."""
        if not self._store.fault():
            return
        with suppress(StoreFailed):
            if await self._store.recover() and self._agent.driver.view().state == READY:
                await self._worker.turn_over(FAREWELL_SECONDS)

    async def say_farewell(self) -> None:
        """The agent was stopped: let the turn that runs record how it ended, and tell who waits for an answer.

        Without the lease there is nothing to record, and the successor answers those who wait.
        """
        if self._journal.has_lost_lease:
            return
        if self._worker.current is not None and self._delivering is not None:
            # A worker that waits for a message would wait on.
            await asyncio.wait({self._delivering}, timeout=FAREWELL_SECONDS)
        await self._worker.drain(FAREWELL_SECONDS)
        resumable = {task.id for task in self._journal.open_tasks() if self._agent.can_resume(task)}
        why = f"{self._me.agent_id} has ended; a message that it had not taken waits for its next start"
        self._replies.agent_exits(why, resumable)
        await self._replies.drain(FAREWELL_SECONDS)
        await self._pushing.outbox.drain(FAREWELL_SECONDS)

    def still_waiting(self) -> list[Task]:
        """The tasks whose messages wait for the agent's next start; not its instructions, which it is given anew."""
        return [
            task
            for task in self._journal.open_tasks()
            if recovery.is_waiting_in_queue(task) and not recovery.is_instruction(task)
        ]

    async def _sweep(self) -> None:
        """Find what no event woke, every few seconds."""
        lost_agents = LostAgents(self._journal, self._registry, self._clock)
        never = asyncio.Event()
        while True:
            looks = (self._in_doubt.expire, self._intake.release_held, lost_agents.fail_lost, self._look_for_pushes)
            # First: an agent that is idle records nothing, and would not learn that it was replaced.
            for look in (self._journal.verify_lease, *looks, self._prune):
                try:
                    await look()
                except (SynapseError, OSError) as error:
                    # The next sweep tries again; an agent outlives a store that is locked for a while.
                    log.warning("sweep_failed", extra={"error": str(error)})
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), SWEEP_SECONDS)

    async def _look_for_pushes(self) -> None:
        """Find webhooks that another process left or set: rare, and a question to the store."""
        if self._clock.monotonic() - self._looked_for_pushes > PUSH_SECONDS:
            self._looked_for_pushes = self._clock.monotonic()
            await self._pushing.outbox.find_new()

    async def _prune(self) -> None:
        """Forget tasks that are too old to keep, and the files that came with them."""
        if self._settings.keep_days and self._clock.monotonic() - self._pruned > PRUNE_SECONDS:
            self._pruned = self._clock.monotonic()
            before = self._since_start.now() - timedelta(days=self._settings.keep_days)
            await self._store.prune(before)
            await asyncio.to_thread(forget_files_before, self._settings.files, before.timestamp())

    def _new_intake(self) -> Intake:
        ttl = self._settings.message_ttl
        limits = Limits(
            queue=self._settings.queue_limit,
            ttl=timedelta(seconds=ttl) if ttl else None,
            pair_per_minute=self._settings.loop_limit_per_minute,
        )
        return Intake(
            self._me,
            journal=self._journal,
            store=self._store,
            feed=self._feed,
            worker=self._worker,
            replies=self._replies,
            questions=self._questions,
            registry=self._registry,
            clock=self._clock,
            new_id=new_id,
            new_task_id=new_task_id,
            new_context_id=new_context_id,
            limits=limits,
            push_configs=self._pushing.configs,
            acceptance=self._agent.acceptance,
            quota=agent_quota(self._me.inbox, short_name(self._me), self._store, self._settings, self._clock),
        )

    def _new_service(self) -> AgentTasks:
        return AgentTasks(
            self._me,
            journal=self._journal,
            store=self._store,
            feed=self._feed,
            intake=self._intake,
            worker=self._worker,
            replies=self._replies,
            in_doubt=self._in_doubt,
            questions=self._questions,
            externals=self._externals(),
            driver=self._agent.driver,
            clock=self._clock,
            hook_reports=HookReports(self._me, self._agent.hook_door),
            push_configs=self._pushing.configs,
            answers_directly=self._agent.answers_directly,
        )

    def _externals(self) -> Externals:
        from synapse.external.client import open_externals  # noqa: PLC0415 - few agents ever need it

        return open_externals(self._settings.home, allow_private=self._settings.allow_private_agents)


def agent_quota(inbox: str, name: str, store: TaskStore, settings: Settings, clock: Clock) -> Quota:
    """The quota of the agent that has this inbox."""
    measure = partial(store.stored_bytes, inbox=inbox)
    return Quota(settings.agent_quota_bytes, measure, clock, whose=name, setting="agent_quota_bytes")


async def _until_exit(delivering: Awaitable[None]) -> None:
    with suppress(AgentExited):
        await delivering


async def _nothing() -> None:
    """Most agents end all of their work when they are stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAgent:
    """An agent that was started: its driver, when it ends, and how to end it."""

    driver: Driver
    stop: Callable[[], Awaitable[None]]
    exit_status: Callable[[], int | None]
    retire: Callable[[], Awaitable[None]] = _nothing
    """Ends work that no later process will follow; called before `stop` when the agent is removed for good."""
    title: str
    description: str = ""
    """What it says of itself, if anything."""
    ends_with: asyncio.Future[int] | None = None
    """Done when the agent has ended by itself; without it, its end is only seen by the worker."""
    pty_wrapped: bool = True
    cli_pid: int = 0
    say_goodbye: Callable[[Sequence[Task]], None] = lambda _: None
    """Called when all has ended, with the tasks whose messages wait for the next start."""
    on_served: Callable[[], None] = lambda: None
    """Called once the host answers: what is slow to load is loaded then."""
    answers_directly: Callable[[Message], bool] = never
    """Whether it will answer a message with a plain message and no task."""
    answer_at_once: AnswerAtOnce = never_at_once
    """What it answers a message that it needs nothing else for."""
    can_resume: Callable[[Task], bool] = ends_with_us
    """Whether the agent has a task's last message, and can be asked again what came of it after a restart."""
    acceptance: Acceptance = ANYTHING
    input_modes: tuple[str, ...] = ()
    """What its own card says that it takes, if it has one: then it is not us who refuses. Empty is `acceptance`."""
    output_modes: tuple[str, ...] = ()
    extensions: Extensions = ()
    """The extensions of A2A that it declares."""
    lacks: tuple[str, ...] = ()
    """The capabilities of A2A that are switched off."""
    hook_door: HookEndpoint | None = None
    """Where hooks of its CLI report to, if it has any."""
    websockets: Mapping[str, WebSocketHandler] = field(default_factory=dict[str, Any])


StartAgent = Callable[[AgentEntry], Awaitable[RunningAgent]]
"""Starts the agent once its identity is known."""
