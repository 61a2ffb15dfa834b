"""All agents of a gateway as people see them, live: a row for each, what changes in it, and every event of their tasks.

    first viewer ─► follow the status of every agent, look for agents that come and go ─► … ─► last viewer leaves: stop
                                        │ a row changed
    viewer ◄── rows ◄───────────────────┤
           ◄── events of tasks, after the viewer's position in the log ◄── feed

OverviewFollower follows each host once, however many people look. Overviews gives each caller its part of it: rows of
the agents that it may use, and nothing about tasks that it may not see.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from operator import sub
from pathlib import Path
from typing import Any, Final

from synapse.auth.policy import hide_store_details, may_use
from synapse.client.attention import IN_DOUBT
from synapse.client.overview import ASKS, AWAY, DONE, FAILED, NEEDS_PERSON, Row, in_order, row_of
from synapse.client.seen import mark_seen, seen_until
from synapse.core.address import split_machine
from synapse.core.agent import READY, STARTING, WAITING, WORKING, AgentEntry
from synapse.core.caller import APPROVE, Caller
from synapse.core.errors import (
    AgentExited,
    AgentNotFound,
    FeedLagged,
    Forbidden,
    InternalFailure,
    RegistryFailed,
    SynapseError,
    TaskNotFound,
)
from synapse.core.events import TaskHidden, Update
from synapse.core.json_text import object_in, objects_in
from synapse.core.overview import (
    AgentOverview,
    EventsMissed,
    Overview,
    OverviewUpdate,
    RowChanged,
    RowRemoved,
    StreamAlive,
)
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import TaskId, TaskState
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.gateway.directory import GatewayAgent, GatewayDirectory, gateway_name
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.rules import may_see, visible_scope

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often to look for agents that came or left, and for answers that were seen elsewhere."""
RETRY_SECONDS: Final = 1.0
FIRST_SECONDS: Final = 2.0
"""How long an overview waits for the first status of each agent. An agent that takes longer is shown as away."""
AWAY_SECONDS: Final = 60.0
"""How long an agent whose host has ended is still shown."""
PING_SECONDS: Final = 5.0
MOST_MISSED: Final = 1000
"""A viewer that missed more events than this loads its lists anew."""
_QUEUED_UPDATES: Final = 64
_ENDED: Final = "its host has ended"
_PLAIN_STATES: Final = {WORKING: WORKING, WAITING: WORKING, STARTING: STARTING, READY: READY}
"""The state of a row without what needs a person, by the host's own word."""


class OverviewFollower:
    """Follows every agent of the directory while `following` is entered at least once."""

    def __init__(
        self, directory: GatewayDirectory, home: Path, clock: Clock, *, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self.directory = directory
        self._home = home
        self._clock = clock
        self._look_seconds = look_seconds
        self._agents: dict[str, _Followed] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._viewers = 0
        self._looked = asyncio.Event()
        """The directory was read since the first viewer came."""
        self._running: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        """Follows all agents until the block ends. It begins when each has a first status, or FIRST_SECONDS later."""
        self._viewers += 1
        try:
            if self._running is None:
                self._running = asyncio.create_task(self._run())
            await self._wait_for_first()
            yield
        finally:
            self._viewers -= 1
            if not self._viewers and self._running is not None:
                # All of it before the wait: the next viewer may come meanwhile, and starts anew.
                running, self._running = self._running, None
                self._agents, self._looked = {}, asyncio.Event()
                running.cancel()
                await asyncio.wait({running})

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Calls `listener` with the name of each agent whose row has changed; returns a function that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def rows(self) -> list[Row]:
        """Returns the rows of all agents, in their order."""
        return in_order(agent.row for agent in self._agents.values())

    def row(self, name: str) -> Row | None:
        """Returns the row of the agent of this name, or None if it is not shown any more."""
        found = self._agents.get(name)
        return None if found is None else found.row

    def status(self, name: str) -> dict[str, Any]:
        """Returns the last status of an agent; empty before the first, and while its host does not answer."""
        found = self._agents.get(name)
        return {} if found is None or found.status is None else found.status

    def look_at_seen(self, name: str) -> None:
        """Makes the row of an agent again if a person has seen its answers meanwhile."""
        followed = self._agents.get(name)
        if followed is not None and followed.seen != seen_until(self._home, followed.agent.entry.agent_id):
            self._show(followed)

    async def mark_seen(self, agent: AgentEntry, until: datetime) -> None:
        """Records that a person has seen the agent's answers until a time."""
        # Not beyond now: later answers have not been seen.
        await asyncio.to_thread(mark_seen, self._home, agent.agent_id, min(until, self._clock.now()))
        self.look_at_seen(gateway_name(agent))

    async def _wait_for_first(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self._looked.wait()
                for followed in tuple(self._agents.values()):
                    await followed.answered.wait()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self.directory.refresh()
                    self._adjust(group)
                    for name in tuple(self._agents):
                        self.look_at_seen(name)
                except RegistryFailed:
                    # The gateway's own sweep reports it. The agents that are known are followed meanwhile.
                    pass
                except Exception:
                    # All rows depend on this task, so a defect must not end it: they would stay as they are.
                    log.exception("agents_not_followed")
                self._looked.set()
                await pause(self._look_seconds)

    def _adjust(self, group: asyncio.TaskGroup) -> None:
        """Follows the agents that are in the directory, and no others."""
        here = {agent.name: agent for agent in self.directory.agents()}
        for name, agent in here.items():
            known = self._agents.get(name)
            if known is not None and known.following is not None:
                if known.identity == _identity(agent.entry):
                    continue
                known.following.cancel()
            followed = self._agents[name] = _Followed(agent)
            followed.following = group.create_task(self._follow(followed))
        for name in self._agents.keys() - here.keys():
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        """Shows an agent that has left as away for a while: its host may have crashed, or restarts."""
        followed, now = self._agents[name], self._clock.monotonic()
        if followed.following is not None:
            followed.following.cancel()
            followed.following = None
            followed.left_at = now
            self._fail(followed, AgentExited(_ENDED))
        elif now - followed.left_at >= AWAY_SECONDS:
            del self._agents[name]
            self._notify(name)

    async def _follow(self, followed: _Followed) -> None:
        while True:
            try:
                async with aclosing(followed.agent.watch_status()) as statuses:
                    async for status in statuses:
                        followed.status, followed.error = status, None
                        self._show(followed)
                self._fail(followed, AgentExited(_ENDED))
            except SynapseError as error:
                self._fail(followed, error)
            except Exception:
                # A defect with one agent must not end the overview of the others.
                log.exception("status_not_followed", extra={"agent": followed.agent.entry.agent_id})
                self._fail(followed, InternalFailure())
            await pause(RETRY_SECONDS)

    def _fail(self, followed: _Followed, error: SynapseError) -> None:
        followed.status, followed.error = None, error
        self._show(followed)

    def _show(self, followed: _Followed) -> None:
        entry = followed.agent.entry
        followed.seen = seen_until(self._home, entry.agent_id)
        row = row_of(entry, followed.status, followed.seen, followed.error)
        if followed.status is not None or followed.error is not None:
            followed.answered.set()
        if row["state"] == AWAY:
            # The status of an agent that does not answer has no time of its own.
            row["since"] = row["since"] or followed.away_since(self._clock.now())
        else:
            followed.went_away_at = ""
        if row != followed.row:
            followed.row = row
            self._notify(gateway_name(entry))

    def _notify(self, name: str) -> None:
        for listener in tuple(self._listeners):
            listener(name)


class _Followed:
    """One agent: its last status or error, and the row that they make."""

    def __init__(self, agent: GatewayAgent) -> None:
        self.agent = agent
        self.identity = _identity(agent.entry)
        self.status: dict[str, Any] | None = None
        self.error: SynapseError | None = None
        self.seen: datetime | None = None
        """Until when a person had seen its answers when the row was made."""
        self.row = row_of(agent.entry, None, None)
        self.answered = asyncio.Event()
        """There is a first status, or an error in its place."""
        self.following: asyncio.Task[None] | None = None
        """None for an agent that has left."""
        self.left_at = 0.0
        self.went_away_at = ""

    def away_since(self, now: datetime) -> str:
        self.went_away_at = self.went_away_at or now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return self.went_away_at


def _identity(entry: AgentEntry) -> tuple[object, ...]:
    """Returns what is another after a restart of the agent's host."""
    return entry.agent_id, entry.pid, entry.pid_started, entry.socket


class Overviews:
    """What each caller sees of the overview."""

    def __init__(  # noqa: PLR0913 - two of them have defaults
        self,
        follower: OverviewFollower,
        *,
        store: TaskStore,
        feed: Feed,
        tail: LogFollower,
        clock: Clock,
        missed: Callable[[int, int], int] = sub,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        """`missed` returns how many events there are from one cursor to another."""
        self._follower = follower
        self._directory = follower.directory
        self._store = store
        self._feed = feed
        self._tail = tail
        self._clock = clock
        self._missed = missed
        self._ping_seconds = ping_seconds

    async def get(self, caller: Caller) -> Overview:
        """Returns the rows of all agents that the caller may use."""
        # First, so that an event which the rows do not show yet comes after the cursor.
        cursor = await self._store.last_seq()
        async with self._follower.following():
            return await self._overview(cursor, caller)

    async def get_agent(self, agent: str, caller: Caller) -> AgentOverview:
        """Returns the row and the status of one agent. Raises AgentNotFound."""
        if self._directory.find(agent) is None:
            raise AgentNotFound(agent)
        async with self._follower.following():
            row, status = self._follower.row(agent), self._follower.status(agent)
            if row is None:
                raise AgentNotFound(agent)
            shown = await self._row_for(row, caller)
            return AgentOverview(row=shown, status=await self._status_for(agent, status, caller))

    async def mark_seen(self, agent: str, until: datetime, caller: Caller) -> None:
        """Records that a person has seen the agent's answers. Raises Forbidden for all others, and AgentNotFound."""
        if not (caller.is_dashboard or caller.is_person):
            raise Forbidden("only people see answers", hint="`synapse dashboard` opens the page of a person")
        found = self._directory.find(agent)
        if found is None:
            raise AgentNotFound(agent)
        await self._follower.mark_seen(found.entry, until)

    async def watch(self, after: int | None, caller: Caller) -> AsyncGenerator[OverviewUpdate, None]:
        """Yields the overview, then each changed row and each event of a task after the seq `after`.

        Raises StoreFailed.
        """
        viewer = _Viewer(self._ping_seconds)
        with hide_store_details():
            last = await self._store.last_seq()
            is_behind = after is not None and not 0 <= self._missed(last, after) <= MOST_MISSED
            viewer.cursor = last if after is None or is_behind else after
            # The tail runs before the log is read, and rows are listened to before they are shown: nothing is missed.
            async with self._follower.following(), self._tail.running():
                stop_listening = self._follower.listen(viewer.note)
                reading = asyncio.create_task(self._read_log(viewer))
                try:
                    yield await self._overview(viewer.cursor, caller)
                    if is_behind:
                        yield EventsMissed(cursor=viewer.cursor)
                    async with aclosing(self._changes(viewer, caller)) as changes:
                        async for change in changes:
                            yield change
                finally:
                    stop_listening()
                    reading.cancel()
                    await asyncio.wait({reading})

    async def _changes(self, viewer: _Viewer, caller: Caller) -> AsyncGenerator[OverviewUpdate, None]:
        while True:
            viewer.check()
            for name in viewer.take_changed():
                if may_use(caller, name):
                    yield await self._row_change(name, caller)
            for update in viewer.take_updates():
                if isinstance(update, EventsMissed) or self._is_shown(update, caller):
                    yield update
                viewer.cursor = update.cursor
            if viewer.is_ping_due():
                yield StreamAlive(at=self._clock.now(), cursor=viewer.cursor)
            await viewer.wait()

    async def _row_change(self, name: str, caller: Caller) -> RowChanged | RowRemoved:
        row = self._follower.row(name)
        return RowRemoved(agent=name) if row is None else RowChanged(row=await self._row_for(row, caller))

    async def _read_log(self, viewer: _Viewer) -> None:
        position = viewer.cursor
        while True:
            try:
                async with aclosing(self._feed.follow_all(position)) as updates:
                    async for update in updates:
                        await viewer.put(update)
            except FeedLagged:
                position = await self._store.last_seq()
                await viewer.put(EventsMissed(cursor=position))
            except SynapseError as error:
                viewer.fail(error)
                return

    def _is_shown(self, update: Update, caller: Caller) -> bool:
        task = update.task
        is_visible = not task.hidden or isinstance(update.event, TaskHidden)
        return is_visible and may_see(caller, task) and may_use(caller, self._directory.name_of(task))

    async def _overview(self, cursor: int, caller: Caller) -> Overview:
        rows = [row for row in self._follower.rows() if may_use(caller, row["id"])]
        shown = in_order([await self._row_for(row, caller) for row in rows])
        return Overview(rows=tuple(shown), cursor=cursor, at=self._clock.now())

    async def _row_for(self, row: Row, caller: Caller) -> Row:
        """Returns the row without what is about tasks that the caller may not see."""
        if _sees_all_of(row["id"], caller):
            return row
        task = row["task"]
        named = {need["task_id"] or "" for need in row["needs"]} | {one["task_id"] for one in row["owes"]}
        visible = await self._visible(named | ({task["id"]} if task else set()), caller)
        if caller.sees_all:
            return limited_row(row, visible, row["queue"])
        waiting = TaskQuery(inbox=self._inbox_of(row["id"]), scope=caller.scope, states=_WAITING, limit=1)
        return limited_row(row, visible, (await self._store.list(waiting)).total)

    async def _status_for(self, agent: str, status: dict[str, Any], caller: Caller) -> dict[str, Any]:
        if _sees_all_of(agent, caller) or not status:
            return status
        current, finished = object_in(status, "current_task"), objects_in(status, "finished")
        ids = {str(task.get("id", "")) for task in (current, *finished)}
        visible = await self._visible(ids, caller)
        return {
            **{name: value for name, value in status.items() if name in _PUBLIC_STATUS},
            "current_task": current if current.get("id") in visible else None,
            "finished": [task for task in finished if task.get("id") in visible],
        }

    async def _visible(self, task_ids: Iterable[str], caller: Caller) -> set[str]:
        """Returns those of the tasks that the caller may see."""
        visible: set[str] = set()
        for task_id in filter(None, task_ids):
            with suppress(TaskNotFound):
                if may_see(caller, await self._store.load(TaskId(task_id))):
                    visible.add(task_id)
        return visible

    def _inbox_of(self, name: str) -> str:
        agent = self._directory.find(name)
        return name if agent is None else agent.entry.inbox


_WAITING: Final = frozenset({TaskState.SUBMITTED})
_PUBLIC_STATUS: Final = frozenset({"state", "since", "agent_id", "agent_type", "name", "started_at"})
"""The fields of a host's status that say nothing about tasks or this machine."""


def _sees_all_of(agent: str, caller: Caller) -> bool:
    """Decides whether all of the status of an agent's host is for the caller.

    Any process of this user can ask a host on this machine itself. Another machine tells the gateway what it tells
    people, who may decide; its link would not tell agents here.
    """
    if split_machine(agent)[1]:
        return caller.may_decide or caller.is_dashboard or (caller.sees_all and caller.is_granted(APPROVE))
    return not visible_scope(caller) or caller.is_own_user


def limited_row(row: Row, visible: set[str], queue: int) -> Row:
    """Returns the row for a caller that sees only some tasks, of which `queue` wait for the agent."""
    needs = [need for need in row["needs"] if need["task_id"] in visible]
    task = row["task"] if row["task"] is not None and row["task"]["id"] in visible else None
    kinds = {need["kind"] if need["kind"] in (IN_DOUBT, FAILED, DONE) else ASKS for need in needs}
    state, why, since = row["state"], row["why"], row["since"]
    if state in NEEDS_PERSON and needs != row["needs"]:
        # What the row tells may be about a task of somebody else.
        state = next((one for one in NEEDS_PERSON if one in kinds), _PLAIN_STATES.get(row["agent_state"], AWAY))
        why = next((need["title"] for need in needs), "")
        since = next((need["asked_at"] for need in needs), "")
    elif state not in NEEDS_PERSON and task is None:
        why = ""
    return {
        **row,
        "folder": "",
        "state": state,
        "why": why,
        "since": since,
        "queue": queue,
        "unread": sum(need["kind"] == DONE for need in needs),
        "task": task,
        "owes": [one for one in row["owes"] if one["task_id"] in visible],
        "needs": [{**need, "folder": ""} for need in needs],
        "store_fault": "",
    }


class _Viewer:
    """What one stream has not sent yet: names of changed rows, each once, and a bounded number of log updates."""

    def __init__(self, ping_seconds: float) -> None:
        self.cursor = 0
        """The seq of the last event that was sent, or need not be."""
        self._woken = asyncio.Event()
        self._changed: dict[str, None] = {}
        self._updates: asyncio.Queue[Update | EventsMissed] = asyncio.Queue(_QUEUED_UPDATES)
        self._failure: SynapseError | None = None
        self._ping_seconds = ping_seconds
        self._loop = asyncio.get_running_loop()
        self._ping_at = self._loop.time() + ping_seconds

    def note(self, name: str) -> None:
        """Notes that the row of an agent has changed."""
        self._changed[name] = None
        self._woken.set()

    async def put(self, update: Update | EventsMissed) -> None:
        """Adds what was read from the log; waits while the reader is behind."""
        await self._updates.put(update)
        self._woken.set()

    def fail(self, error: SynapseError) -> None:
        """Ends the stream with an error: the log cannot be read."""
        self._failure = error
        self._woken.set()

    def check(self) -> None:
        """Raises the error that ends the stream, if there is one."""
        if self._failure is not None:
            raise self._failure

    def take_changed(self) -> list[str]:
        changed, self._changed = list(self._changed), {}
        return changed

    def take_updates(self) -> list[Update | EventsMissed]:
        return [self._updates.get_nowait() for _ in range(self._updates.qsize())]

    def is_ping_due(self) -> bool:
        """Returns whether it is time to send a sign of life, and plans the next."""
        now = self._loop.time()
        is_due = now >= self._ping_at
        if is_due:
            self._ping_at = now + self._ping_seconds
        return is_due

    async def wait(self) -> None:
        """Waits until there is something to send or to check."""
        self._woken.clear()
        if self._changed or not self._updates.empty():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ping_at):
                await self._woken.wait()
