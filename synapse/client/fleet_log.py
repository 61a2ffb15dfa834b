"""Reads tasks and events of other machines from the link of this one, as the store's codec writes them.

The link keeps nothing for a reader: each answer has the seq with which the next request goes on. So a reader misses
nothing when either link, or the connection, was away meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from synapse.client.link import LINK_SECONDS, ask_link, not_found_there
from synapse.core.address import on_machine, remote_inbox, split_inbox
from synapse.core.errors import AgentNotFound, AmbiguousTarget, SynapseError
from synapse.core.events import Recorded, TaskEvent, Update
from synapse.core.json_text import objects_in
from synapse.core.task import Task, TaskId
from synapse.store.codec import UNREADABLE, read_events, read_task
from synapse.tasks.journal import rebuild

POLL_SECONDS: Final = 3
"""How long a reader of events lets the other machine wait for something new."""
BEGIN: Final = -1
"""The position of a reader that begins now."""
MOST_IN_PAGE: Final = 100
_MOST_PAGES: Final = 50
_SPARE: Final = 10


class EventPage(NamedTuple):
    """The next events of another machine."""

    updates: tuple[Update, ...]
    seq: int
    """With which the next request goes on."""
    more: bool
    left_out: int
    """How many events are too large to be sent."""
    kept: Task | None
    """The task that was asked for, if only the outbox of this machine knows it, or how it ended."""


class FleetLog:
    """The tasks and events of one other machine, as far as this one may read them."""

    def __init__(self, home: str, machine: str) -> None:
        self._home = home
        self.machine = machine
        self._followed: dict[str, Task] = {}
        """The task that is followed alone, after its last event that was read."""

    def tasks(self, limit: int, wanted: Callable[[Task], bool], *, agent: str = "", **query: str) -> list[Task]:
        """Returns the wanted tasks that changed last, latest first, of all agents or of one, running or not.

        `query` has fields of `GET /fleet/tasks`: `context_id`, `updated_after`.

        Raises AgentNotFound or AmbiguousTarget for the agent, and what `ask_link` raises.
        """
        found: list[Task] = []
        cursor = ""
        for _ in range(_MOST_PAGES):
            try:
                # Some more than wanted: initial instructions, for one, are tasks that nobody wants.
                page = {"agent": agent, "cursor": cursor, "limit": min(limit + _SPARE, MOST_IN_PAGE)}
                answer = self._ask("tasks", {**query, **page})
            except (AgentNotFound, AmbiguousTarget) as error:
                raise not_found_there(error, on_machine(agent, self.machine)) from None
            texts: list[str] = answer.get("tasks") or []
            found += [task for text in texts if wanted(task := self.shown(task_of_answer(text)))]
            cursor = str(answer.get("next_cursor") or "")
            if not cursor or len(found) >= limit:
                break
        return found[:limit]

    def events_of(self, task_id: str) -> list[Recorded]:
        """Returns all events of a task; none if it is in the outbox, or if its machine is away and the task has ended.

        Raises what `ask_link` raises.
        """
        events: list[Recorded] = []
        after, more = 0, True
        while more:
            page = self.follow_task(task_id, after)
            events += [Recorded(update.seq, update.event) for update in page.updates if update.event is not None]
            after, more = page.seq, page.more
        return events

    def follow_task(self, task_id: str, after: int, seconds: int = 0) -> EventPage:
        """Returns the events of a task after a seq; waits for one for `seconds`. Begin with 0, and go on in order."""
        if after == 0:
            self._followed.clear()
        return self._page(self._ask("events", {"task": task_id, "after": after, "seconds": seconds}), self._followed)

    def follow_all(self, agent: str, after: int, seconds: int = 0) -> EventPage:
        """Returns the events of all tasks after a seq, or of an agent's, by its inbox; waits for one for `seconds`."""
        # Each answer has a snapshot of every task in it.
        return self._page(self._ask("events", {"agent": agent, "after": after, "seconds": seconds}), {})

    def _ask(self, what: str, query: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value != ""}
        path = f"/fleet/{what}?{urlencode({'machine': self.machine, **given})}"
        return ask_link(self._home, "GET", path, timeout=LINK_SECONDS + 2 * POLL_SECONDS)

    def _page(self, answer: dict[str, Any], tasks: dict[str, Task]) -> EventPage:
        updates: list[Update] = []
        for fields in objects_in(answer, "events"):
            task_id = str(fields.get("task_id"))
            for event in events_of_answer(task_id, str(fields.get("event"))):
                known = fields.get("task")
                task = task_of_answer(known) if known else rebuilt(tasks.get(task_id), event)
                tasks[task_id] = task
                updates.append(Update(int(fields["seq"]), event, self.shown(task)))
        kept = answer.get("task")
        return EventPage(
            tuple(updates),
            int(answer.get("seq") or 0),
            more=answer.get("more") is True,
            left_out=int(answer.get("left_out") or 0),
            kept=self.shown(task_of_answer(kept)) if kept else None,
        )

    def shown(self, task: Task) -> Task:
        """Returns a task with its agent as it is known here: `codex@box2`."""
        if split_inbox(task.inbox)[1]:
            return task
        agent_id = on_machine(task.agent_id, self.machine)
        return replace(task, agent_id=agent_id, inbox=remote_inbox(task.inbox, self.machine))


def task_of_answer(text: str) -> Task:
    """Reads a task that another machine sent. Raises SynapseError."""
    try:
        return read_task(text)
    except UNREADABLE as error:
        raise _unreadable("a task") from error


def events_of_answer(task_id: str, text: str) -> list[TaskEvent]:
    """Reads events of a task that another machine sent. Raises SynapseError."""
    try:
        return read_events(TaskId(task_id), text)
    except UNREADABLE as error:
        raise _unreadable("an event") from error


def rebuilt(known: Task | None, event: TaskEvent) -> Task:
    """Returns the task after an event that another machine sent. Raises SynapseError."""
    try:
        return rebuild(known, (event,))
    except UNREADABLE as error:
        raise _unreadable("an event") from error


def _unreadable(what: str) -> SynapseError:
    return SynapseError(f"the other machine sent {what} that cannot be read", hint="update Synapse on both machines")
