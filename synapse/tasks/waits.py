"""Waits for replies: refuses a request that closes a cycle of waiting agents, and fails waits for agents that are lost.

Agents in a cycle would wait for ever, so the request that closes it is refused; of requests that cross, that is the one
opened last. An agent whose host was killed never replies, so tasks that wait for it fail after a grace period.

A machine knows only the waits of its own store. So a request to another machine names the inboxes that wait behind its
sender (`waiting_behind`), with their machines, and the task that it opens keeps them. Waits for agents on other
machines are ended by the link.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from synapse.core.address import on_machine, remote_inbox, short_name, split_inbox
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict, SynapseError, TaskNotFound, WaitCycle
from synapse.core.events import AttentionChanged, TaskOpened
from synapse.core.registry import Registry
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskId, TaskState, WaitTarget
from synapse.core.task_metadata import asked_for, waiter_noted, waiting_behind_sender
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.journal import Journal

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 10.0
"""How long an agent may be missing, to restart; its new host then reports what became of the request."""
UNSENT_SECONDS: Final = 30.0
"""How long a request may take to reach the agent after its waiter has left."""
UNSENT: Final = "not_sent"
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)
_MOST_OPEN_TASKS: Final = 1000
_NO_TASKS: Final[frozenset[TaskId]] = frozenset()


@dataclass(frozen=True, slots=True)
class Party:
    """One side of a wait. An agent's id contains its port, which may change at a restart; its inbox stays."""

    key: str
    """The agent's inbox, or its id where only that is known."""
    agent_id: str = field(compare=False)
    inbox: str = field(compare=False)

    @classmethod
    def of(cls, agent_id: str, inbox: str = "") -> Party:
        return cls(inbox or agent_id, agent_id, inbox)


Wait = tuple[Party, Party]
"""(the agent that waits, the agent that it waits for)"""
Cycle = tuple[Party, ...]
"""Each party waits for the next one; the last one is the first one."""


def find_cycle(waits: Iterable[Wait], new: Wait) -> Cycle:
    """Returns the shortest cycle that `new` would close, starting with its waiter; empty if it closes none."""
    waiter, target = new
    ahead: dict[Party, set[Party]] = {}
    for one, other in waits:
        ahead.setdefault(one, set()).add(other)
    paths: list[Cycle] = [(waiter, target)]
    seen = {target}
    while paths:
        path = paths.pop(0)
        if path[-1] == waiter:
            return (*path[:-1], waiter)
        for following in sorted(ahead.get(path[-1], set()) - (seen - {waiter}), key=lambda party: party.key):
            seen.add(following)
            paths.append((*path, following))
    return ()


class WaitCycles:
    """Refuses requests that would let agents wait for each other."""

    def __init__(self, journal: Journal, registry: Registry, store: TaskStore, clock: Clock) -> None:
        self._journal = journal
        self._registry = registry
        self._store = store
        self._clock = clock

    async def refuse(self, task: Task) -> None:
        """Raises WaitCycle when waiting for the task closes a cycle; fails it, and notes it on those that wait here."""
        try:
            error = await self._end_in_cycle(task)
        except Exception:
            # The message is durable, so it is queued unchecked: a repeated message would only find its task.
            log.exception("cycle_not_checked", extra={"task": task.id})
            return
        if error is not None:
            raise error

    async def _end_in_cycle(self, task: Task) -> WaitCycle | None:
        """Fails the task if waiting for it closes a cycle, and returns the error for its sender."""
        cycle = await _cycle_closed_by(task, self._store)
        if not cycle:
            return None
        agents = await self._registry.agents()
        known = {name: short_name(entry) for entry in agents for name in (entry.agent_id, entry.inbox)}
        error = WaitCycle(tuple(known.get(one.agent_id) or one.agent_id.removeprefix("synapse-") for one in cycle))
        now = self._clock.now()
        await self._journal.record(*outcomes.ended(task, now, TaskState.FAILED, error.code, str(error)))
        for waiting in self._journal.open_tasks():
            if not waiting.queued and _waits_for_one_of(cycle, waiting):
                with suppress(SynapseError):  # the request is refused in any case
                    await self._journal.record(AttentionChanged(task_id=waiting.id, at=now, attention=str(error)))
        return error


async def _cycle_closed_by(new: Task, store: TaskStore) -> Cycle:
    """Returns the cycle that waiting for this task closes among all agents of the store; empty if it closes none."""
    if new.reply_to is None or not new.reply_to.task_id:
        # A person waits for it, who typed `@agent` at the sender's prompt, or a shell: the sender itself works on.
        return ()
    waits, inboxes = await _open_waits(store, new)
    if not find_cycle(waits, _wait(new, inboxes)):
        return ()
    # Each of two requests that cross sees the other. Their hosts must not both refuse: the later one closes the cycle.
    waits, inboxes = await _open_waits(store, new, without=await _opened_after(new, store))
    return find_cycle(waits, _wait(new, inboxes))


async def _opened_after(task: Task, store: TaskStore) -> frozenset[TaskId]:
    """Returns the tasks of all agents that were opened after this one, in the order of the store."""
    read = await store.read_after(0, task_id=task.id, limit=1)
    later = set[TaskId]()
    while read and (read := await store.read_after(read[-1].seq)):
        later |= {one.event.task_id for one in read if isinstance(one.event, TaskOpened)}
    return frozenset(later)


async def waiting_behind(store: TaskStore, inbox: str, machine: str) -> tuple[str, ...]:
    """Returns the inboxes whose agents wait for the one of `inbox`, directly or through others, with their machines.

    `machine` is this machine's name. The link names these inboxes in a request of that agent which waits for an answer
    (`SendMessage.waiting`); the machine that gets it passes them to its host as `named_here` returns them.
    """
    waits, _ = await _open_waits(store)
    behind, last = set[str](), {inbox}
    while last := {waiter.inbox for waiter, target in waits if target.key in last} - behind - {"", inbox}:
        behind |= last
    return tuple(sorted(one if split_inbox(one)[1] else remote_inbox(one, machine) for one in behind))


def named_here(inboxes: Iterable[str], machine: str) -> tuple[str, ...]:
    """Returns inboxes with their machines as `machine` itself names them: its own ones without it."""
    split = ((inbox, *split_inbox(inbox)) for inbox in inboxes)
    return tuple(own if where == machine else inbox for inbox, own, where in split)


async def remote_waits(store: TaskStore) -> tuple[Task, ...]:
    """Returns the open tasks that wait for agents on other machines.

    No host fails them. The link ends those whose request it does not have, because the process that was to send it has
    ended, and those whose agent or machine is lost; see `SendMessage.in_reply_to`.
    """
    page = await store.list(TaskQuery(states=_OPEN, limit=_MOST_OPEN_TASKS))
    return tuple(task for task in page.tasks if _machine_asked(task))


async def _open_waits(
    store: TaskStore, *new: Task, without: frozenset[TaskId] = _NO_TASKS
) -> tuple[list[Wait], Mapping[str, str]]:
    """Returns the waits that the store knows, those behind `new` included, and the inboxes of the agents by their ids.

    The requests `without` count as not made. Of a sender on another machine nobody here knows whether it still waits,
    so it counts until its task ends.
    """
    page = await store.list(TaskQuery(states=_OPEN, limit=_MOST_OPEN_TASKS))
    waited_for = [task for task in page.tasks if task.id not in without and await _is_waited_for(task, store)]
    inboxes = {task.agent_id: task.inbox for task in (*waited_for, *new)}
    waits = [_wait(task, inboxes) for task in waited_for]
    for task in (*waited_for, *new):
        waiter, _ = _wait(task, inboxes)
        waits += [(_party(inbox), waiter) for inbox in waiting_behind_sender(task)]
    for task in page.tasks:
        if task.waits_for and _machine_asked(task) and not task.waiter_left:
            asked = task.waits_for
            waits.append((Party.of(task.agent_id, task.inbox), Party.of(asked.agent_id, asked.inbox)))
    return waits, inboxes


def _party(inbox: str) -> Party:
    """Returns the agent of an inbox of which nothing else is known."""
    own, machine = split_inbox(inbox)
    return Party.of(on_machine(own, machine), inbox)


def _machine_asked(task: Task) -> str:
    """Returns the machine of the agent that the task waits for; empty if it waits for none elsewhere."""
    return task.waits_for.machine if task.waits_for and not task.queued else ""


async def request_of(waiting: Task, store: TaskStore) -> Task | None:
    """Returns the task that the request opened at the agent that was asked, or None."""
    if waiting.waits_for is None:
        return None
    page = await store.list(TaskQuery(inbox=waiting.waits_for.inbox, metadata=asked_for(waiting)))
    # Any sender can name our task as the one that waits; the sender's inbox comes from the registry.
    return next((task for task in page.tasks if task.sender.inbox == waiting.inbox), None)


def _waits_for_one_of(parties: Cycle, task: Task) -> bool:
    """Decides whether the task may wait for one of these agents; a task that names no agent may."""
    asked = task.waits_for
    if asked is None:
        return True
    return any((asked.inbox or asked.agent_id) in (party.key, party.agent_id) for party in parties)


def was_asked(asked: WaitTarget, entry: AgentEntry) -> bool:
    """Decides whether `entry` is the agent that was asked."""
    return entry.is_agent_of(asked.inbox, asked.agent_id)


def _wait(task: Task, inboxes: Mapping[str, str]) -> Wait:
    """Returns the wait for the end of a task; `inboxes` gives the inbox of a waiter that sent only its id."""
    waiter = task.sender
    inbox = waiter.inbox or inboxes.get(waiter.sender_id, "")
    return Party.of(waiter.sender_id, inbox), Party.of(task.agent_id, task.inbox)


async def _is_waited_for(task: Task, store: TaskStore) -> bool:
    if task.reply_to is None or not task.reply_to.task_id:
        return False
    if task.sender.machine:
        return True
    try:
        waiting = await store.load(TaskId(task.reply_to.task_id))
    except TaskNotFound:
        return False
    return not waiting.state.is_terminal and not waiting.waiter_left


class LostAgents:
    """Fails tasks that wait for an agent whose host was killed; a host that stops in order notifies its waiters.

    Also fails tasks whose waiter ended before it had sent its request: no agent will answer them.
    """

    def __init__(
        self,
        journal: Journal,
        registry: Registry,
        store: TaskStore,
        clock: Clock,
        is_followed: Callable[[TaskId], bool] = lambda _task: False,
    ) -> None:
        """`is_followed` tells whether somebody waits for a task now."""
        self._is_followed = is_followed
        self._journal = journal
        self._store = store
        self._registry = registry
        self._clock = clock
        self._lost_since: dict[TaskId, float] = {}
        self._left_since: dict[TaskId, float] = {}
        self._unread_since: dict[TaskId, float] = {}
        self._sent: set[TaskId] = set()

    async def fail_lost(self) -> None:
        """Fails tasks that have waited GRACE_SECONDS for an agent that is not registered."""
        # The link ends the waits for agents on other machines.
        tasks = (task for task in self._journal.open_tasks() if not task.queued)
        waiting = [(task, task.waits_for) for task in tasks if task.waits_for and not task.waits_for.machine]
        agents = await self._registry.agents() if waiting else ()
        lost = [(task, asked) for task, asked in waiting if not any(was_asked(asked, agent) for agent in agents)]
        now = self._clock.monotonic()
        self._lost_since = {task.id: self._lost_since.get(task.id, now) for task, _ in lost}
        for task, asked in lost:
            if now - self._lost_since[task.id] >= GRACE_SECONDS:
                note = f"{asked.agent_id} has exited; messages that it had not started wait for its next start"
                with suppress(Conflict):  # the reply may have just arrived
                    await self._journal.record(*outcomes.agent_exited(task, self._clock.now(), note))

    async def fail_unsent(self) -> None:
        """Fails tasks whose waiter left UNSENT_SECONDS ago and whose request never reached the agent that it names.

        A waiter that was killed before it could follow its task has left too.
        """
        waiting = [task for task in self._journal.open_tasks() if not task.queued and task.waits_for]
        named = [task for task in waiting if task.waits_for and task.waits_for.inbox and not task.waits_for.machine]
        left = [task for task in named if task.waiter_left or not self._is_followed(task.id)]
        now = self._clock.monotonic()
        self._left_since = {task.id: self._left_since.get(task.id, now) for task in left}
        self._sent &= self._left_since.keys()
        for task in left:
            if task.id in self._sent or now - self._left_since[task.id] < UNSENT_SECONDS:
                continue
            if await request_of(task, self._store) is not None:
                self._sent.add(task.id)
                continue
            note = "the request was not sent: the process that was to send it has ended"
            with suppress(Conflict):
                await self._journal.record(*outcomes.ended(task, self._clock.now(), TaskState.FAILED, UNSENT, note))

    async def note_left(self) -> None:
        """Notes on tasks that wait for agents of other machines that nobody has followed them for UNSENT_SECONDS.

        The link, which ends such waits, cannot see who follows them: a waiter that was killed before it could follow
        its task has left too.
        """
        waiting = [task for task in self._journal.open_tasks() if _machine_asked(task) and not task.waiter_left]
        unread = [task for task in waiting if not self._is_followed(task.id)]
        now = self._clock.monotonic()
        self._unread_since = {task.id: self._unread_since.get(task.id, now) for task in unread}
        for task in unread:
            if now - self._unread_since[task.id] >= UNSENT_SECONDS:
                with suppress(Conflict):
                    await self._journal.record(waiter_noted(task, self._clock.now(), left=True))
