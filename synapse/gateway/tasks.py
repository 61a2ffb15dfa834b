"""The tasks of all agents behind a gateway: reads come from the shared store, commands go to the agent's host.

    read      from the store, if the caller may see the task
    command   to the agent's host, or to the in-process agent ─► durable there ─► read from the store
    follow    the store's log; see `tasks.feed.LogFollower`
    wait      until the log has an event that settles the task, then read from the store

A machine of the fleet that ships no log is asked for its tasks; see `gateway.unshipped`. A message that is kept for a
machine which is away is read from the link's outbox.
The tasks of an agent that does not run stay readable. They can be canceled, changed and deleted; see `StoppedTasks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from synapse.auth.policy import hide_store_details, may_use
from synapse.core.address import on_machine, remote_inbox, split_inbox, split_machine
from synapse.core.caller import MACHINE_SCOPE, Caller
from synapse.core.errors import (
    AgentExited,
    AgentNotFound,
    Conflict,
    LinkDown,
    MachineAway,
    OutcomeUnknown,
    SynapseError,
    TaskNotCancelable,
    TaskNotFound,
    Unauthenticated,
)
from synapse.core.events import Recorded, StateChanged, TaskOpened, Update
from synapse.core.message import MessageId
from synapse.core.overview import Timeline
from synapse.core.push import PushConfig
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    CommandResult,
    CreateTask,
    DeletePushConfig,
    DeleteTask,
    FollowTask,
    GetMessage,
    GetPushConfig,
    GetStatus,
    GetTask,
    GetTimeline,
    HostStatus,
    LeaveTask,
    ListPushConfigs,
    ListTasks,
    PendingTask,
    Replied,
    Reply,
    ResolveTask,
    SendAndFollow,
    SendAndWait,
    SendMessage,
    SetPushConfig,
    SubscribeTask,
    TaskStream,
)
from synapse.core.store import TaskPage, TaskQuery, TaskStore
from synapse.core.task import SHORT_ID_LENGTH, Task, TaskId, TaskState
from synapse.core.types import Clock
from synapse.gateway.directory import GatewayAgent, GatewayDirectory, left_name
from synapse.gateway.fleet_store import FleetStore
from synapse.gateway.remote import QUEUE, RemoteAgents
from synapse.gateway.unshipped import UnshippedTasks
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal, rebuild
from synapse.tasks.rules import (
    find_message,
    is_settled,
    may_see,
    query_of,
    require_updates,
    require_visible,
    unsupported,
    visible_scope,
)


@dataclass(frozen=True, slots=True)
class GatewayFleet:
    """The other machines of the fleet, for a gateway."""

    agents: RemoteAgents
    store: FleetStore
    clock: Clock
    new_message_id: Callable[[], str]


OUTBOX: Final = "outbox"
"""In the metadata of a task: its message is in the outbox of the gateway's machine, because the agent's is away."""
REPLICA_SECONDS: Final = 2.0
"""How long the answer to a command on another machine waits for the replica to have the task."""
OUTBOX_SECONDS: Final = 3.0
"""How long a stream waits for the replica to have a task before it looks at the outbox again."""
_NO_LONGER_VALID: Final = "the credentials of this stream are no longer valid"
_STATES: Final = frozenset(state.value for state in TaskState)
AboutTask = AnswerQuestion | ResolveTask | SetPushConfig | GetPushConfig | ListPushConfigs | DeletePushConfig
"""Commands about a task that only its running agent can carry out."""
READ_AT_ONCE: Final = 250
MOST_READS: Final = 16
"""How often so many tasks are read from the store to fill one page of those that pass a filter."""
MAX_MISSES: Final = 5
"""How many rechecks in a row may find no agent for an awaited task: an agent that is restarted resumes its tasks."""


class Stopped(Protocol):
    """The part of TaskService that a gateway uses for agents that do not run; see `StoppedTasks`."""

    async def cancel(self, request: CancelTask, caller: Caller, /) -> Task:
        """Raises TaskNotFound, TaskNotCancelable, or Conflict when the agent runs after all."""
        ...

    async def change(self, request: ChangeTask, caller: Caller, /) -> Task:
        """Raises TaskNotFound, InvalidField, IllegalTransition, or Conflict when the agent runs after all."""
        ...

    async def delete(self, request: DeleteTask, caller: Caller, /) -> Task:
        """Raises TaskNotFound, or Conflict when the agent runs after all."""
        ...


class GatewayTasks:
    """TaskService for the tasks of all agents behind a gateway; `of` narrows it to one agent.

    Tasks are found by their whole id: a prefix could match tasks that the caller must not know of.
    """

    def __init__(  # noqa: PLR0913 - what reads and what commands, one of them optional
        self,
        directory: GatewayDirectory,
        *,
        store: TaskStore,
        journal: Journal,
        feed: Feed,
        tail: LogFollower,
        stopped: Stopped,
        fleet: GatewayFleet | None = None,
    ) -> None:
        """`fleet` has the agents and tasks of other machines; `store` is then its store."""
        self._agent = ""
        """The name of the agent that `of` narrows to; empty for all."""
        self._queue = False
        """Whether messages are kept for an agent whose machine is away."""
        self._fleet = fleet
        self._directory = directory
        self._store = store
        self._journal = journal
        self._feed = feed
        self._tail = tail
        self._stopped = stopped
        self._waits = GatewayWaits(store, tail, self._has_agent)

    def of(self, agent: str, *, queue: bool = False) -> GatewayTasks:
        """Returns the service for the tasks of one agent, by its name at the gateway.

        With `queue`, messages are kept for an agent whose machine is away.
        """
        # Called for every request: `copy` takes several times as long.
        one = object.__new__(GatewayTasks)
        one.__dict__.update(self.__dict__)
        one._agent = agent
        one._queue = queue
        return one

    def recheck(self) -> None:
        """Ends the streams of callers whose credentials are no longer valid, and the waits for agents that are gone."""
        self._feed.recheck()
        self._waits.recheck()

    async def send(self, request: SendMessage, caller: Caller) -> Task:
        agent, sent, done = await self._send(request, caller)
        return await self._load(done, agent, caller, sent)

    async def send_and_wait(self, request: SendAndWait, caller: Caller) -> PendingTask:
        task = await self.send(request.send, caller)
        # A message in the outbox waits for a machine that is away, perhaps for a day: its caller does not.
        if is_settled(task.state) or OUTBOX in task.metadata:
            return PendingTask(task)
        return PendingTask(task, asyncio.ensure_future(self._settled(task, caller)))

    async def send_and_follow(self, request: SendAndFollow, caller: Caller) -> TaskStream:
        agent, sent, done = await self._send(request.send, caller)
        task_id, version = TaskId(done.task_id), done.version
        if agent.machine and self._fleet is not None:
            task = await self._load(done, agent, caller, sent)
            # The link names no version of the task of a message that it kept.
            version = done.version or task.version
            unshipped = self._unshipped(task)
            if unshipped is not None:
                return (
                    unshipped.final(task_id, caller)
                    if done.direct
                    else unshipped.until_settled(task_id, caller, version)
                )
            if self._fleet.store.is_expected(task_id):
                return self._until_arrived(task, self._fleet, caller, None, until_settled=True)
        return self._final_update(task_id) if done.direct else self._until_settled(task_id, version, caller)

    async def get(self, request: GetTask, caller: Caller) -> Task:
        wanted = request.task_id if request.exact else await self._whole_id(request.task_id, caller)
        return await self._find(wanted, caller)

    async def timeline(self, request: GetTimeline, caller: Caller) -> Timeline:
        """Returns a page of the task's events. Raises TaskNotFound."""
        task = await self._find(request.task_id, caller)
        limit = request.limit + 1
        if unshipped := self._unshipped(task):
            found: Sequence[Recorded] = await unshipped.events(task.id, caller, after=request.after, limit=limit)
        else:
            found = await self._store.read_after(request.after, task_id=task.id, limit=limit)
        events = tuple(found[: request.limit])
        return Timeline(task=task, events=events, next_after=events[-1].seq if len(found) > len(events) else None)

    async def get_message(self, request: GetMessage, caller: Caller) -> Task:
        return await self._find(await find_message(request, caller, self._store), caller)

    async def list(self, request: ListTasks, caller: Caller) -> TaskPage:
        wanted = self._agent or request.agent
        if wanted and not may_use(caller, wanted):
            raise AgentNotFound(wanted)
        query = query_of(request, caller)
        here = self._directory.find(wanted) if wanted else None
        if here is not None:
            query = replace(query, inbox=here.entry.inbox)
        elif wanted:
            stopped = await self._query_for_stopped(wanted, caller)
            if stopped is None:
                raise AgentNotFound(wanted)
            query = replace(query, inbox=stopped.inbox, agent_id=stopped.agent_id)

        is_of_some_agents = caller.agents is not None and not wanted
        if not (is_of_some_agents or request.sender or caller.only_from):
            return await self._store.list(query)

        def is_shown(task: Task) -> bool:
            is_usable = not is_of_some_agents or may_use(caller, self._directory.name_of(task))
            return is_usable and may_see(caller, task) and request.sender in ("", task.sender_name)

        return await self._filtered(query, is_shown)

    async def cancel(self, request: CancelTask, caller: Caller) -> Task:
        task = await self._find(request.task_id, caller)
        exact = CancelTask(task.id, exact=True)
        if self._fleet is not None and self._fleet.store.is_expected(task.id):
            recalled = await self._recall(task, self._fleet)
            if recalled is not None:
                return recalled
        owner = self._directory.owner(task)
        owner = owner or self._stopped_remote(task)
        if owner is None:
            return await self._stopped.cancel(exact, caller)
        done = await owner.command(exact, caller)
        return await self._load(done, owner, caller) if owner.machine else await self._store.load(task.id)

    async def change(self, request: ChangeTask, caller: Caller) -> Task:
        task = await self._find(request.task_id, caller)
        exact = replace(request, task_id=task.id)
        owner = self._directory.owner(task)
        owner = owner or self._stopped_remote(task)
        if owner is None:
            return await self._stopped.change(exact, caller)
        return await self._load(await owner.command(exact, caller), owner, caller)

    async def delete(self, request: DeleteTask, caller: Caller) -> Task:
        task = await self._find(request.task_id, caller)
        exact = DeleteTask(task_id=task.id)
        owner = self._directory.owner(task)
        owner = owner or self._stopped_remote(task)
        if owner is None:
            return await self._stopped.delete(exact, caller)
        return await self._load(await owner.command(exact, caller), owner, caller)

    async def answer(self, request: AnswerQuestion, caller: Caller) -> Task | None:
        if request.task_id:
            agent, done = await self._command(request, caller)
        else:
            agent = await self._running(caller)
            done = await agent.command(request, caller)
        return await self._load(done, agent, caller) if done.task_id else None

    async def resolve(self, request: ResolveTask, caller: Caller) -> Task:
        agent, done = await self._command(request, caller)
        return await self._load(done, agent, caller)

    async def set_push(self, request: SetPushConfig, caller: Caller) -> PushConfig:
        task = await self._find(request.task_id, caller)
        signed = replace(request, config=self._with_key(request.config, caller, split_inbox(task.inbox)[1]))
        return _push_config((await self._command(signed, caller))[1])

    async def get_push(self, request: GetPushConfig, caller: Caller) -> PushConfig:
        return _push_config((await self._command(request, caller))[1])

    async def list_push(self, request: ListPushConfigs, caller: Caller) -> tuple[PushConfig, ...]:
        _, done = await self._command(request, caller)
        if isinstance(done.result, tuple):
            return done.result
        raise _not_understood()

    async def delete_push(self, request: DeletePushConfig, caller: Caller) -> None:
        await self._command(request, caller)

    async def subscribe(self, request: SubscribeTask, caller: Caller) -> TaskStream:
        task = await self._find(request.task_id, caller)
        return self._stream(task, request.after, caller)

    async def follow(self, request: FollowTask, caller: Caller) -> TaskStream:
        task = await self._find(request.task_id, caller)
        require_updates(task, request.after)
        return self._stream(task, request.after, caller)

    async def create(self, request: CreateTask, _caller: Caller) -> Task:
        raise unsupported("a gateway", request)

    async def leave(self, request: LeaveTask, _caller: Caller) -> Task:
        raise unsupported("a gateway", request)

    async def reply(self, request: Reply, _caller: Caller) -> Replied:
        raise unsupported("a gateway", request)

    async def status(self, request: GetStatus, _caller: Caller) -> HostStatus:
        raise unsupported("a gateway", request)

    async def _send(self, request: SendMessage, caller: Caller) -> tuple[GatewayAgent, SendMessage, CommandResult]:
        """Sends a message to the agent of this service; returns the message as it was sent, too."""
        if request.task_id:
            # Fails with TaskNotFound for a task that the caller may not see, as everywhere.
            task = await self._find(request.task_id, caller)
            request = replace(request, task_id=task.id, exact=True)
        agent = await self._running(caller)
        if request.push is not None:
            request = replace(request, push=self._with_key(request.push, caller, agent.machine))
        if agent.machine and self._fleet is not None:
            request = _for_remote(request, queue=self._queue, new_id=self._fleet.new_message_id)
        return agent, request, await agent.command(request, caller)

    async def _command(self, request: AboutTask, caller: Caller) -> tuple[GatewayAgent, CommandResult]:
        """Sends a command to the agent of the task. Raises AgentNotFound when it does not run."""
        task = await self._find(request.task_id, caller)
        owner = self._directory.owner(task) or self._stopped_remote(task)
        if owner is None:
            raise _not_running(self._directory.name_of(task))
        return owner, await owner.command(replace(request, task_id=task.id), caller)

    def _with_key(self, config: PushConfig, caller: Caller, machine: str) -> PushConfig:
        """Returns the configuration with the key of its caller: revoking the key stops its webhooks.

        The host of an agent on another machine is told where the key comes from: it may not know it yet.
        """
        is_foreign = machine and caller.key_id and self._fleet is not None
        own = self._fleet.agents.machine if is_foreign and self._fleet is not None else ""
        return replace(config, set_by=on_machine(caller.key_id, own))

    async def _recall(self, task: Task, fleet: GatewayFleet) -> Task | None:
        """Takes a message back that waits in the outbox. Its task stays open until it is certain that no agent gets it.

        Returns None if it does not wait there: its machine has the task. Raises TaskNotCancelable if it has ended
        otherwise.
        """
        try:
            state, reason, note = await fleet.agents.recall(task.id)
        except (TaskNotFound, Conflict):
            return None
        recalled = replace(task, state=state, reason=reason, note=note, version=task.version + 1)
        fleet.store.expect(recalled)
        if state.is_terminal and state is not TaskState.CANCELED:
            raise TaskNotCancelable(f"task {task.short_id} is {state.value}", hint=note)
        return recalled

    def _stopped_remote(self, task: Task) -> GatewayAgent | None:
        """Returns the agent of a task on another machine that is not listed; None for a task of this machine.

        Raises LinkDown, MachineAway or MachineNotFound when its machine cannot be asked.
        """
        machine = split_inbox(task.inbox)[1]
        if self._fleet is None or not machine:
            return None
        self._fleet.agents.require_present(machine)
        return self._fleet.agents.absent(left_name(task), keeps=True)

    async def _filtered(self, query: TaskQuery, is_shown: Callable[[Task], bool]) -> TaskPage:
        """Returns a page of the tasks that are shown. If they are few of many, it is short, and yet has a next one."""
        shown: list[Task] = []
        cursor = query.cursor
        for _ in range(MOST_READS):
            page = await self._store.list(replace(query, limit=READ_AT_ONCE, cursor=cursor))
            found = [number for number, task in enumerate(page.tasks, 1) if is_shown(task)]
            missing = query.limit - len(shown)
            if len(found) > missing:
                # The next page begins after the last task that fits.
                page = await self._store.list(replace(query, limit=found[missing - 1], cursor=cursor))
            shown += filter(is_shown, page.tasks)
            cursor = page.next_cursor
            if not cursor or len(shown) >= query.limit:
                break
        return TaskPage(tuple(shown), cursor, len(shown), is_counted=False)

    async def _load(
        self, result: CommandResult, agent: GatewayAgent, caller: Caller, sent: SendMessage | None = None
    ) -> Task:
        """Returns the task that a command resulted in.

        For an agent on another machine it waits a moment for the replica, or asks a machine that ships no log; then it
        answers with what the command returned.
        """
        task_id = TaskId(result.task_id)
        if not agent.machine or self._fleet is None:
            return await self._store.load(task_id)
        ships_log = self._fleet.agents.ships_log(agent.machine)
        if not ships_log and not agent.is_away:
            # The command is done, whatever becomes of this read: a caller that is told an error does it twice.
            with suppress(SynapseError):
                return await self._tasks_on(agent.machine, self._fleet).load(task_id, caller)
        seconds = REPLICA_SECONDS if ships_log and not agent.is_away else 0.0
        task = await self._fleet.store.wait_for(task_id, result.version, seconds)
        if task is not None:
            return task if task.version >= result.version else _as_returned(task, result)
        # The link names no version of a task that its machine has not opened. It has taken the message in any case.
        with suppress(SynapseError):
            kept = None if result.version else await self._with_outbox(task_id, None, self._fleet)
            if kept is not None:
                return kept
        if sent is None:
            return _answered(await self._store.load(task_id), result, self._fleet)
        expected = _expected_task(sent, result, agent, caller, self._fleet.clock.now())
        self._fleet.store.expect(expected)
        return expected

    async def _running(self, caller: Caller) -> GatewayAgent:
        """Returns the agent of this service.

        Raises AgentNotFound when it does not run, or MachineAway.
        """
        found = self._directory.find(self._agent)
        if found is None and self._fleet is not None:
            found = self._fleet.agents.absent(self._agent, keeps=self._queue)
        if found is None:
            # Only a caller that can see tasks of the agent learns that it exists.
            stopped = await self._query_for_stopped(self._agent, caller)
            raise _not_running(self._agent) if stopped else AgentNotFound(self._agent)
        return found

    async def _query_for_stopped(self, name: str, caller: Caller) -> TaskQuery | None:
        """Returns the query for the tasks of an agent that does not run; None when the caller can see none."""
        scope = visible_scope(caller)
        own, machine = split_machine(name)
        if on_machine(own, machine) != name:
            # `@bob@box2` is how people address an agent, no name of one.
            return None
        inbox = remote_inbox(own, machine) if self._fleet is not None and machine else name
        # The replica finds the agents of other machines by their names here.
        for query in (TaskQuery(inbox=inbox, scope=scope, limit=1), TaskQuery(agent_id=name, scope=scope, limit=1)):
            if (await self._store.list(query)).tasks:
                return query
        return None

    async def _find(self, wanted: str, caller: Caller) -> Task:
        """Returns the task with that whole id.

        Raises TaskNotFound, also for a task of another caller, or AgentNotFound when the agent is unknown.
        """
        agent = self._agent
        here = self._directory.find(agent) if agent else None
        wanted = wanted.removeprefix(f"{agent}:") if agent else wanted
        missing = TaskNotFound(wanted)
        try:
            task = require_visible(await self._read(TaskId(wanted), caller), caller, wanted)
        except TaskNotFound as error:
            task, missing.hint = None, error.hint
        if task is not None and self._is_ours(task, here, caller):
            return task
        raise AgentNotFound(agent) if agent and here is None else missing

    async def _read(self, task_id: TaskId, caller: Caller) -> Task:
        """Returns a task from the store, from the outbox, or as a machine that ships no log has it now.

        Raises TaskNotFound, or LinkDown, MachineAway or OutcomeUnknown if only the link or that machine could tell.
        """
        fleet = self._fleet
        try:
            known: Task | None = await self._store.load(task_id)
        except TaskNotFound:
            known = None
        if known is not None and (fleet is None or not split_inbox(known.inbox)[1]):
            return known
        if fleet is None or (self._agent and not split_machine(self._agent)[1]):
            raise TaskNotFound(task_id)
        known = await self._with_outbox(task_id, known, fleet)
        if known is None:
            return await self._find_unshipped(task_id, caller, fleet)
        unshipped = self._unshipped(known)
        try:
            return known if unshipped is None else await unshipped.load(task_id, caller)
        except (LinkDown, MachineAway, OutcomeUnknown):
            return known
        except TaskNotFound:
            # The machine shipped it before it stopped to ship its log.
            if fleet.store.is_expected(task_id):
                raise
            return known

    async def _with_outbox(self, task_id: TaskId, known: Task | None, fleet: GatewayFleet) -> Task | None:
        """Returns a task as the outbox has it if the replica does not have it; else `known`.

        The replica's task of a message that was taken back is that of this machine: the outbox knows whose it was.
        Raises LinkDown, or another SynapseError, if the link alone could tell of a task of this service's agent.
        """
        is_expected = fleet.store.is_expected(task_id)
        if known is not None:
            is_own = known.scope == MACHINE_SCOPE + fleet.agents.machine
            # An earlier copy of the message may have opened another task.
            if known.id != task_id or self._unshipped(known) is not None or not (is_own or is_expected):
                return known
        try:
            kept = await fleet.agents.read_outbox(task_id)
        except SynapseError:
            if known is None and self._agent:
                raise
            return known
        if kept is None:
            return known
        if known is not None and not is_expected:
            return replace(known, scope=kept.scope)
        fleet.store.expect(kept)
        return kept

    async def _find_unshipped(self, task_id: TaskId, caller: Caller, fleet: GatewayFleet) -> Task:
        """Returns a task that the store does not know from the machines that ship no log; raises as `_read`."""
        machine = split_machine(self._agent)[1]
        if machine and not fleet.agents.ships_log(machine):
            return await self._tasks_on(machine, fleet).load(task_id, caller)
        machines = () if self._agent else fleet.agents.unshipped()
        reads = await asyncio.gather(
            *(self._ask_present(one, task_id, caller, fleet) for one in machines), return_exceptions=True
        )
        for read in reads:
            if isinstance(read, Task):
                return read
        missing = TaskNotFound(task_id)
        silent = [
            machine
            for machine, read in zip(machines, reads, strict=True)
            if not isinstance(read, TaskNotFound) and _may_use_any(caller, machine)
        ]
        if silent:
            missing.hint = f"it may be on {', '.join(silent)}, whose log stays there and which cannot be asked now"
        raise missing

    async def _ask_present(self, machine: str, task_id: TaskId, caller: Caller, fleet: GatewayFleet) -> Task:
        """Asks a machine for a task, unless it is known to be away; raises as `_read`."""
        fleet.agents.require_present(machine)
        return await self._tasks_on(machine, fleet).load(task_id, caller)

    def _unshipped(self, task: Task) -> UnshippedTasks | None:
        """Returns the tasks of the task's machine if that has the task and ships no log."""
        machine = split_inbox(task.inbox)[1]
        if self._fleet is None or not machine or OUTBOX in task.metadata or self._fleet.agents.ships_log(machine):
            return None
        return self._tasks_on(machine, self._fleet)

    def _tasks_on(self, machine: str, fleet: GatewayFleet) -> UnshippedTasks:
        return UnshippedTasks(machine, fleet.agents, fleet.store, self._has_agent)

    def _has_agent(self, task: Task) -> bool:
        return self._directory.owner(task) is not None

    async def _whole_id(self, prefix: str, caller: Caller) -> str:
        """Returns the id of the only task that begins with `prefix`, at least a short id, and that the caller may see.

        Returns `prefix` if there is none, or several: a caller learns nothing of tasks of others.
        """
        if len(prefix) < SHORT_ID_LENGTH:
            return prefix
        found = list[str]()
        for task_id in await self._store.find(prefix):
            with suppress(TaskNotFound):
                found.append((await self._find(task_id, caller)).id)
        return found[0] if len(found) == 1 else prefix

    def _is_ours(self, task: Task, here: GatewayAgent | None, caller: Caller) -> bool:
        """Returns whether the task belongs to the agent of this service, or to one that the caller may use."""
        if not self._agent:
            return may_use(caller, self._directory.name_of(task))
        if here is not None and task.inbox == here.entry.inbox:
            return True
        # A message is kept for a name: its machine could not be asked for the inbox of the agent.
        is_kept = self._fleet is not None and self._fleet.store.is_expected(task.id)
        return (here is None or is_kept) and self._agent in (task.inbox, left_name(task))

    async def _settled(self, task: Task, caller: Caller) -> Task:
        """Returns the task once it has ended or needs input. Raises AgentExited when its agent is gone."""
        unshipped = self._unshipped(task)
        if unshipped is not None:
            return (await unshipped.settled(task.id, caller)).task
        return await self._waits.settled(task.id)

    async def _final_update(self, task_id: TaskId) -> AsyncGenerator[Update, None]:
        """Yields only the final snapshot: the agent answers with a plain message, and shows no task."""
        task = await self._waits.settled(task_id)
        yield Update((await self._journal.snapshot(task_id)).seq, None, task)

    async def _until_settled(self, task_id: TaskId, version: int, caller: Caller) -> AsyncGenerator[Update, None]:
        """Yields the task as of `version`, then each update until it has settled."""
        first = await self._as_of(task_id, version)
        yield first
        if is_settled(first.task.state):
            return
        async with aclosing(self._followed(task_id, first.seq, caller)) as updates:
            async for update in updates:
                yield update
                if isinstance(update.event, StateChanged) and is_settled(update.event.state):
                    return

    async def _until_arrived(
        self, task: Task, fleet: GatewayFleet, caller: Caller, after: int | None, *, until_settled: bool
    ) -> AsyncGenerator[Update, None]:
        """Yields a task that its machine has not shipped yet, as far as it is known; then its updates.

        They end with the task, or `until_settled` as `_until_settled`.
        """
        if after is None:
            yield Update(0, None, task)
        if task.state.is_terminal:
            return
        task, is_there = await self._arrival(task, fleet, caller)
        if not is_there:
            yield Update(0, None, task)
            return
        unshipped, after = self._unshipped(task), after or 0
        rest = self._followed(task.id, after, caller) if unshipped is None else unshipped.follow(task.id, caller, after)
        async with aclosing(rest) as updates:
            async for update in updates:
                yield update
                if until_settled and isinstance(update.event, StateChanged) and is_settled(update.event.state):
                    return

    async def _arrival(self, task: Task, fleet: GatewayFleet, caller: Caller) -> tuple[Task, bool]:
        """Returns a task once its machine has it and True, or once it has ended without reaching it and False.

        It never reaches its machine if its message is refused there, expires, or is taken back.
        Raises AgentExited when its agent is gone, and Unauthenticated.
        """
        task_id, misses = task.id, 0
        while await fleet.store.wait_for(task_id, 1, OUTBOX_SECONDS) is None:
            with suppress(LinkDown):
                task = await self._read(task_id, caller)
            if task.id != task_id or self._unshipped(task) is not None:
                return task, True
            if task.state.is_terminal:
                return task, False
            misses = 0 if OUTBOX in task.metadata or self._has_agent(task) else misses + 1
            if misses > MAX_MISSES:
                raise _gone(task)
            if not caller.holds():
                raise Unauthenticated(_NO_LONGER_VALID)
        return task, True

    async def _as_of(self, task_id: TaskId, version: int) -> Update:
        async with aclosing(self._journal.updates(task_id)) as updates:
            async for update in updates:
                if update.task.version == version:
                    return Update(update.seq, None, update.task)
        raise TaskNotFound(task_id)

    def _stream(self, task: Task, after: int | None, caller: Caller) -> AsyncGenerator[Update, None]:
        """Yields the task as it is now, or its updates after the seq `after`, then further ones until it ends."""
        unshipped = self._unshipped(task)
        if unshipped is not None:
            return unshipped.follow(task.id, caller, after)
        if self._fleet is not None and self._fleet.store.is_expected(task.id):
            return self._until_arrived(task, self._fleet, caller, after, until_settled=False)
        return self._followed(task.id, after, caller)

    async def _followed(self, task_id: TaskId, after: int | None, caller: Caller) -> AsyncGenerator[Update, None]:
        def check() -> None:
            if not caller.holds():
                raise Unauthenticated(_NO_LONGER_VALID)

        # The tail runs before the feed reads the log, so that no event between the two is missed.
        following = self._feed.follow(task_id, after, check=check)
        with hide_store_details():
            async with self._tail.running(), aclosing(following) as updates:
                async for update in updates:
                    yield update


def _for_remote(request: SendMessage, *, queue: bool, new_id: Callable[[], str]) -> SendMessage:
    """Returns the message for an agent on another machine; the link keeps it if its metadata says so.

    It always has an id: by its id the other machine knows a copy.
    """
    metadata = {key: value for key, value in request.metadata.items() if key != QUEUE}
    message = request.message
    if not message.message_id:
        message = replace(message, message_id=MessageId(new_id()))
    return replace(request, message=message, metadata={**metadata, QUEUE: True} if queue else metadata)


def _as_returned(task: Task, result: CommandResult) -> Task:
    """Returns a task that the replica has at an earlier version, in the state that the command returned."""
    state = TaskState(result.state) if result.state in _STATES else task.state
    return replace(task, state=state, version=result.version)


def _answered(expected: Task, result: CommandResult, fleet: GatewayFleet) -> Task:
    """Returns a task that its machine has, and has not shipped, after a command: perhaps it ships no log."""
    metadata = {key: value for key, value in expected.metadata.items() if key != OUTBOX}
    answered = replace(_as_returned(expected, result), metadata=metadata)
    fleet.store.expect(answered)
    return answered


def _expected_task(
    sent: SendMessage, result: CommandResult, agent: GatewayAgent, caller: Caller, now: datetime
) -> Task:
    """Returns the task of a message to another machine before the replica has it."""
    metadata = {key: value for key, value in sent.metadata.items() if key != QUEUE}
    opened = TaskOpened(
        task_id=TaskId(result.task_id),
        at=now,
        agent_id=split_machine(agent.entry.agent_id)[0],
        inbox=agent.entry.inbox,
        context_id=sent.context_id,
        scope=caller.scope,
        dialect=sent.dialect,
        message=sent.message,
        priority=sent.priority,
        # The link names no version of a task that its machine has not opened.
        metadata=metadata if result.version else {**metadata, OUTBOX: "open"},
        parent_id=sent.parent_id,
    )
    task = rebuild(None, (opened,))
    return _as_returned(task, result) if result.version else task


def _may_use_any(caller: Caller, machine: str) -> bool:
    """Decides whether a caller may use agents of a machine, and so learn of it."""
    return caller.agents is None or any(split_machine(agent)[1] == machine for agent in caller.agents)


def _push_config(done: CommandResult) -> PushConfig:
    if isinstance(done.result, PushConfig):
        return done.result
    raise _not_understood()


def _not_understood() -> SynapseError:
    return SynapseError("the agent's host sent an answer that cannot be understood")


def _gone(task: Task) -> AgentExited:
    return AgentExited(
        f"the agent of task {task.short_id} is gone", hint="the task is kept until the agent is started again"
    )


def _not_running(agent: str) -> AgentNotFound:
    return AgentNotFound(agent, hint="it does not run now; its tasks can still be read")


class GatewayWaits:
    """Lets any number of callers wait for tasks to settle, without rebuilding tasks from their events.

    `has_agent` decides whether a running agent can work on a task: a wait ends when its agent is gone.
    """

    def __init__(self, store: TaskStore, tail: LogFollower, has_agent: Callable[[Task], bool]) -> None:
        self._store = store
        self._tail = tail
        self._has_agent = has_agent
        self._waiting: dict[TaskId, set[asyncio.Event]] = {}
        tail.listen_events(self._on_event)

    async def settled(self, task_id: TaskId) -> Task:
        """Returns the task once it has ended or needs input.

        Raises StoreFailed, TaskNotFound, or AgentExited when its agent is gone and does not come back.
        """
        # The tail runs before the task is read, so that no event between the two is missed.
        with hide_store_details():
            async with self._tail.running():
                return await self._wait(task_id)

    async def _wait(self, task_id: TaskId) -> Task:
        settled = asyncio.Event()
        misses = 0
        self._waiting.setdefault(task_id, set()).add(settled)
        try:
            while not is_settled((task := await self._store.load(task_id)).state):
                misses = 0 if self._has_agent(task) else misses + 1
                if misses > MAX_MISSES:
                    raise _gone(task)
                await settled.wait()
                settled.clear()
            return task
        finally:
            waiting = self._waiting[task_id]
            waiting.discard(settled)
            if not waiting:
                del self._waiting[task_id]

    def recheck(self) -> None:
        """Wakes every wait, to look again at its task and its agent."""
        for waiting in self._waiting.values():
            for settled in waiting:
                settled.set()

    def _on_event(self, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, StateChanged) and event.task_id in self._waiting and is_settled(event.state):
            for settled in self._waiting[event.task_id]:
                settled.set()
