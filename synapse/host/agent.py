"""Runs the tasks of one agent around its driver: journal, queue, replies and the periodic sweep.

A host has one AgentRuntime; a gateway has one for each in-process agent.

    plan_recovery → start: deliver, reply, sweep → resume → finish
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from synapse.client.overview import Need, row_of
from synapse.client.seen import seen_until
from synapse.config.process import SystemClock, new_context_id, new_id, new_task_id
from synapse.config.settings import Settings
from synapse.core.address import short_name
from synapse.core.agent import READY, AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import Driver, SendOutcome
from synapse.core.errors import AgentExited, StoreFailed, SynapseError
from synapse.core.extension import Extensions
from synapse.core.message import Message, MessageId
from synapse.core.registry import HostClient, Registry
from synapse.core.requests import MOST_FINISHED, ConversationStatus, HostStatus, WatchStatus
from synapse.core.store import RELAYED_DAYS, Lease, TaskStore
from synapse.core.task import Task, TaskState
from synapse.core.types import SinceStart
from synapse.core.usage import AgentUsage
from synapse.core.waiting import pause
from synapse.dialects.synapse.encode import status_object
from synapse.drivers.pty.prompt_files import forget_files_before
from synapse.host.agent_command import command_path, launch_folder
from synapse.host.stopped import agent_quota
from synapse.host.tools import AgentTools, ToolsDriver
from synapse.notices.sender import NoticeSender, open_notices
from synapse.push.service import open_push
from synapse.tasks import outcomes, recovery
from synapse.tasks.admission import ANYTHING, Acceptance
from synapse.tasks.deferral import DeferredReplies, unrecorded_ends
from synapse.tasks.feed import Feed
from synapse.tasks.instructions import initial_instructions, short_instructions
from synapse.tasks.intake import Intake
from synapse.tasks.journal import Journal
from synapse.tasks.questions import Questions
from synapse.tasks.recovery import ends_with_us
from synapse.tasks.replies import Replies
from synapse.tasks.rules import Limits
from synapse.tasks.senders import SenderRule
from synapse.tasks.service import AgentTasks, HookEndpoint, HookReports, ReadScreen, never
from synapse.tasks.unfinished import InDoubt, ReplyRecovery
from synapse.tasks.waits import LostAgents
from synapse.tasks.worker import AgentWorker, AnswerAtOnce, never_at_once

if TYPE_CHECKING:
    from synapse.server.websocket import WebSocketHandler

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 2.0
PUSH_SECONDS: Final = 10.0
PRUNE_SECONDS: Final = 3600.0
FINISH_SECONDS: Final = 2.0
NOTICES_RETRY_SECONDS: Final = 10.0


async def _nothing() -> None:
    """Does nothing: most agents end all of their work in `stop`."""


async def _unknown(_key: str, _typed: str) -> SendOutcome:
    """Returns UNKNOWN: most agents have no names for messages."""
    return SendOutcome.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAgent:
    """A started agent: its driver, how it ends, and what it declares."""

    driver: Driver
    stop: Callable[[], Awaitable[None]]
    exit_status: Callable[[], int | None]
    retire: Callable[[], Awaitable[None]] = _nothing
    """Ends work that no later process will resume. Called before `stop` when the agent is removed for good."""
    title: str
    description: str = ""
    """Its own description, if it has one."""
    ends_with: asyncio.Future[int] | None = None
    """Resolves when the agent has ended by itself; without it, only the worker notices."""
    pty_wrapped: bool = True
    cli_pid: int = 0
    on_stopped: Callable[[Sequence[Task]], None] = lambda _: None
    """Called after everything has stopped, with the tasks whose messages wait for the next start."""
    on_served: Callable[[], None] = lambda: None
    """Called once the host answers requests, to load what is slow to load."""
    answers_directly: Callable[[Message], bool] = never
    """Whether it answers a message with a plain message instead of a task."""
    answer_at_once: AnswerAtOnce = never_at_once
    """Returns the answer to a message that needs no turn."""
    can_resume: Callable[[Task], bool] = ends_with_us
    """Whether the agent has a task's last message, and can report after a restart what came of it."""
    reconcile: Callable[[str, str], Awaitable[SendOutcome]] = _unknown
    """Finds out what became of a message, by its key and its typed line, that an earlier host gave to the CLI."""
    conversation: ConversationStatus | None = None
    """Whether its CLI goes on with the conversation of the last run; None for an agent without such a CLI."""
    told: str = ""
    """The digest of the instructions that this conversation was given; empty if none."""
    note_told: Callable[[str], None] = lambda _: None
    """Called with that digest once the conversation was given the instructions."""
    acceptance: Acceptance = ANYTHING
    input_modes: tuple[str, ...] = ()
    """The media types of its own card, if it has one, which then decides what it refuses; else empty."""
    output_modes: tuple[str, ...] = ()
    extensions: Extensions = ()
    """The A2A extensions that it declares."""
    lacks: tuple[str, ...] = ()
    """The A2A capabilities that are switched off."""
    hook_endpoint: HookEndpoint | None = None
    """The endpoint for the hooks of its CLI, if it has any."""
    tools: AgentTools | None = None
    """The tools of its CLI's model; None for an agent without a CLI."""
    read_screen: ReadScreen | None = None
    """Reads what its terminal shows; None for an agent without one."""
    usage: Callable[[], AgentUsage | None] = lambda: None
    """Returns what its requests to a model cost, today and in all; None where nothing tells it."""
    websockets: Mapping[str, WebSocketHandler] = field(default_factory=dict[str, Any])


StartAgent = Callable[[AgentEntry], Awaitable[RunningAgent]]
"""Starts the agent once its identity is known."""


class AgentRuntime:
    """The tasks of one agent, served as `service`. The caller acquires the lease of the inbox, and releases it."""

    def __init__(  # noqa: PLR0913 - what the tasks of an agent are built from
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
        self._driver: Driver = agent.driver
        if agent.tools is not None and agent.tools.is_expected:
            self._driver = ToolsDriver(agent.driver, agent.tools)
        self._deferred = DeferredReplies(self._journal, self._clock)
        self._worker = AgentWorker(
            self._driver,
            self._journal,
            self._clock,
            self._turn_ended,
            agent.answer_at_once,
            deferred=self._deferred,
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
        self._in_doubt = InDoubt(
            self._journal,
            self._worker,
            self._replies,
            self._clock,
            agents_may_decide=may_decide,
            keys_may_decide=not settings.terminal_decides,
        )
        self._notices = open_notices(settings, os.environ)
        self._pushing = open_push(me, store, self._journal, self._clock, settings)
        self._intake = self._new_intake()
        self._reply_recovery = ReplyRecovery(self._journal, store, self._intake, self._clock)
        self._delivering: asyncio.Future[None] | None = None
        self._pruned_at = self._pushes_checked_at = float("-inf")
        self._told_fault = self._instructions_digest = ""
        self.service = self._new_service()

    @property
    def queue_length(self) -> int:
        """The number of messages in the queue."""
        return self._worker.queue_length

    async def lease_lost(self) -> None:
        """Waits until another process is known to have taken over the inbox."""
        await self._journal.lease_lost()

    async def plan_recovery(self) -> recovery.RecoveryPlan:
        """Adopts the open tasks that an earlier holder of the inbox left, and plans what happens to each."""
        adopted = await self._journal.adopt(self._me.inbox)
        now = self._clock.now()
        ends = await unrecorded_ends(adopted, self._store, now)
        refusal_of = SenderRule.of(self._me).refusal_of
        plan = recovery.plan(adopted, now, self._agent.can_resume, ends, refusal_of)
        await self._reply_recovery.note_waiters_left(plan.waiting)
        return plan

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Starts to deliver, reply and sweep. Returns the tasks to cancel; the first ends when the agent has exited."""
        delivering = group.create_task(_until_exit(self._worker.run()))
        self._delivering = delivering
        notices = self._deferred.run(self._intake.late_answers.notify_unanswered, self._intake.late_answers.release)
        others = [self._replies.run(), notices, self._sweep(), self._pushing.outbox.run()]
        if self._notices.outlets:
            others.append(self._tell_person())
        return [delivering, *(group.create_task(job) for job in others)]

    async def instruct(self) -> None:
        """Queues the initial instructions, which tell the agent its name and how to reach others.

        A conversation that was given them in an earlier run is not given them again, unless they have changed.
        """
        command = command_path(launch_folder(self._settings.home, self._me.agent_id))
        agents = await self._registry.agents()
        # Without the other agents: those come and go, and `synapse list` shows them.
        basis = f"{initial_instructions(self._me, (), str(command))}\n{bool(self._agent.tools)}"
        self._instructions_digest = hashlib.sha256(basis.encode()).hexdigest()
        if self._agent.told == self._instructions_digest:
            return
        message_id = MessageId(new_id())
        if self._agent.tools is not None:
            self._agent.tools.instruct(message_id, short_instructions(self._me, agents))
        await self._intake.instruct(initial_instructions(self._me, agents, str(command)), message_id)

    def _turn_ended(self, task: Task) -> None:
        if recovery.is_instruction(task) and task.state is TaskState.COMPLETED:
            self._agent.note_told(self._instructions_digest)
        self._replies.turn_ended(task)

    async def resume(self, plan: recovery.RecoveryPlan) -> None:
        """Carries out the recovery plan, and fetches replies that arrived while no host was running.

        Called after `start` and after the registry lists this agent, so that waiting agents can verify its replies.
        """
        await self._intake.resume(plan)
        await self._reply_recovery.take(plan.waiting)

    async def settle_doubts(self) -> None:
        """Asks the agent's CLI, once it is ready, about messages that an earlier host may have given to it."""
        if not self._in_doubt.has_any:
            return
        try:
            await self._agent.driver.wait_ready()
            await self._in_doubt.reconcile(self._agent.reconcile)
        except SynapseError as error:
            # The agent has ended, or the store fails: a person can still decide.
            log.warning("doubt_not_settled", extra={"error": error.code})

    async def recover_store(self) -> None:
        """Restores a store that was deleted, and records the end of a turn whose answer waits for it."""
        if not self._store.fault():
            return
        with suppress(StoreFailed):
            if await self._store.recover() and self._agent.driver.view().state == READY:
                await self._worker.turn_over(FINISH_SECONDS)

    async def finish(self) -> None:
        """Records how the current turn ended, and answers agents that wait for a reply. Called after the agent stopped.

        Without the lease it does nothing: the successor answers them.
        """
        if self._journal.has_lost_lease:
            return
        if self._worker.current is not None and self._delivering is not None:
            # Only with a current turn: a worker that waits for a message would not end.
            await asyncio.wait({self._delivering}, timeout=FINISH_SECONDS)
        await self._worker.drain(FINISH_SECONDS)
        await self._fail_deferred()
        resumable = {task.id for task in self._journal.open_tasks() if self._agent.can_resume(task)}
        why = f"{self._me.agent_id} has ended; a message that it had not taken waits for its next start"
        self._replies.agent_exits(why, resumable)
        await self._replies.drain(FINISH_SECONDS)
        await self._pushing.outbox.drain(FINISH_SECONDS)

    async def _fail_deferred(self) -> None:
        """Fails the requests that wait for an answer to the program, which is gone."""
        note = "the program that waited for an answer to it is gone"
        for task in self._deferred.deferred():
            with suppress(SynapseError):  # it has ended meanwhile, or the next start decides
                self._replies.turn_ended(
                    await self._journal.record(*outcomes.agent_exited(task, self._clock.now(), note))
                )

    def queued_tasks(self) -> list[Task]:
        """Returns the tasks whose messages wait for the next start, except the instructions, which are sent anew."""
        return [
            task
            for task in self._journal.open_tasks()
            if recovery.is_waiting_in_queue(task) and not recovery.is_instruction(task)
        ]

    async def _tell_person(self) -> None:
        """Sends notices about what the agent needs a person for, as the agent's row in every overview shows it."""
        me, home = self._me, self._settings.home

        def needs_in(status: HostStatus) -> Sequence[Need]:
            return row_of(me, status_object(status), seen_until(home, me.agent_id))["needs"]

        while True:
            try:
                statuses = await self.service.watch_status(WatchStatus(MOST_FINISHED), Caller())
                await NoticeSender(me, self._notices, self._clock).run(statuses, needs_in)
            except Exception:
                # Whatever fails, as a store that cannot be read: a notice is not worth the agent's host.
                log.exception("notices_stopped")
            await pause(NOTICES_RETRY_SECONDS)

    async def _sweep(self) -> None:
        """Every few seconds, does what no event triggers."""
        lost_agents = LostAgents(self._journal, self._registry, self._store, self._clock, self._feed.is_followed)
        while True:
            for step in (
                # First: an idle agent records nothing, and would not notice that it was replaced.
                self._journal.verify_lease,
                self._in_doubt.expire,
                self._intake.release_held,
                lost_agents.fail_lost,
                lost_agents.fail_unsent,
                lost_agents.note_left,
                self._check_pushes,
                self._tell_fault,
                self._prune,
            ):
                try:
                    await step()
                except (SynapseError, OSError) as error:
                    # The next sweep tries again: a store that is locked for a while must not end the agent.
                    log.warning("sweep_failed", extra={"error": str(error)})
            await pause(SWEEP_SECONDS)

    async def _check_pushes(self) -> None:
        """Finds webhooks that another process left or set; seldom, because it queries the store."""
        if self._clock.monotonic() - self._pushes_checked_at > PUSH_SECONDS:
            self._pushes_checked_at = self._clock.monotonic()
            await self._pushing.outbox.find_new()

    async def _tell_fault(self) -> None:
        """Tells those who watch the status when the store fails, or is back: nothing is recorded then."""
        if (fault := self._store.fault()) != self._told_fault:
            self._told_fault = fault
            self.service.status_changed()

    async def _prune(self) -> None:
        """Deletes tasks that are older than `keep_days`, and their files.

        Keeps tasks that other machines sent for RELAYED_DAYS at least; see `TaskStore.prune`.
        """
        if self._settings.keep_days and self._clock.monotonic() - self._pruned_at > PRUNE_SECONDS:
            self._pruned_at = self._clock.monotonic()
            now = self._since_start.now()
            before = now - timedelta(days=self._settings.keep_days)
            await self._store.prune(before, relayed_before=now - timedelta(days=RELAYED_DAYS))
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
            deferred=self._deferred,
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
        from synapse.external.client import open_externals  # noqa: PLC0415 - few agents ever need it

        return AgentTasks(
            self._me,
            journal=self._journal,
            store=self._store,
            feed=self._feed,
            intake=self._intake,
            worker=self._worker,
            replies=self._replies,
            deferred=self._deferred,
            in_doubt=self._in_doubt,
            questions=self._questions,
            externals=open_externals(self._settings.home, allow_private=self._settings.allow_private_agents),
            driver=self._driver,
            clock=self._clock,
            hook_reports=HookReports(self._me, self._agent.hook_endpoint),
            tools=self._agent.tools,
            read_screen=self._agent.read_screen,
            conversation=self._agent.conversation,
            push_configs=self._pushing.configs,
            answers_directly=self._agent.answers_directly,
            usage=self._agent.usage,
        )


async def _until_exit(delivering: Awaitable[None]) -> None:
    with suppress(AgentExited):
        await delivering
