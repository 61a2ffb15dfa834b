"""Tasks of agents that do not run, as the verbs see them: read from the store, and taken back there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from synapse.cli.hosts import current_folder
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError, TaskNotFound
from synapse.core.task import Task
from synapse.dialects.synapse.projection import task_object
from synapse.runtime import loop
from synapse.runtime.open_store import require_no_lost_store
from synapse.runtime.settings import load_settings
from synapse.runtime.unowned import Unowned, open_unowned
from synapse.service.gateway_directory import left_name
from synapse.service.recovery import is_instruction, is_waiting_for_reply

T = TypeVar("T")


def find_stored(prefix: str) -> tuple[AgentEntry, dict[str, Any]]:
    """Return the task that `prefix` names, with an entry that only says whose it is.

    Raises TaskNotFound, AmbiguousTask or StoreFailed.
    """
    task = _with_store(lambda unowned: unowned.find(prefix), prefix)
    return owner(task), task_object(task)


def stored_queue(living: dict[str, AgentEntry]) -> list[tuple[AgentEntry, dict[str, Any]]]:
    """What waits for agents that do not run, and what `living` ones, by their inbox, hold back: no queue has that."""
    try:
        waiting = _with_store(lambda unowned: unowned.waiting(), "")
    except TaskNotFound:
        return []
    shown = (task for task in waiting if task.inbox not in living or task.attention)
    return [(living.get(task.inbox) or owner(task), task_object(task)) for task in shown]


def recent_tasks(agent: str, limit: int) -> list[Task]:
    """Return the tasks that changed last, of all agents or of one, the latest first.

    Leaves out what each agent is told at its start, and the task in which an asking agent waits for a reply: the
    request itself is a task of the agent that was asked. Raises StoreFailed.
    """
    # An empty list would be a lie: agents that run have tasks, in a store that is gone from its place.
    require_no_lost_store(load_settings(folder=current_folder()))

    def is_wanted(task: Task) -> bool:
        is_request = not is_instruction(task) and not is_waiting_for_reply(task)
        return is_request and (not agent or is_of(agent, owner(task)))

    try:
        return _with_store(lambda unowned: unowned.recent(limit, is_wanted), "")
    except TaskNotFound:
        return []


def is_of(agent: str, owner: AgentEntry) -> bool:
    """Whether what is in the store belongs to `agent`: its name, its id, or its profile."""
    short_id = owner.agent_id.removeprefix("synapse-")
    profile, _, port = short_id.rpartition("-")
    # Before its first start an agent has its given name for an id, and that may have a dash too.
    kind = profile if short_id != owner.agent_id and port.isdigit() else ""
    known = (owner.name, owner.inbox, owner.inbox.partition("@")[0], owner.agent_id, short_id, kind)
    return bool(agent) and agent in known


def take_back_each(task_ids: Sequence[str]) -> list[dict[str, Any] | SynapseError]:
    """Cancel tasks whose agents do not run; one that cannot be canceled has its error instead. Raises StoreFailed."""

    async def cancel(unowned: Unowned) -> list[dict[str, Any] | SynapseError]:
        told = list[dict[str, Any] | SynapseError]()
        for task_id in task_ids:
            try:
                told.append(task_object(await unowned.take_back(await unowned.find(task_id))))
            except SynapseError as error:
                told.append(error)
        return told

    return _with_store(cancel, task_ids[0]) if task_ids else []


def owner(task: Task) -> AgentEntry:
    """An entry without a process, for showing: by the given name, which its next agent has too, or the short id."""
    name = left_name(task).removeprefix("synapse-")
    return AgentEntry(task.agent_id, task.agent_id, name=name, inbox=task.inbox)


def _with_store(act: Callable[[Unowned], Awaitable[T]], wanted: str) -> T:
    settings = load_settings(folder=current_folder())
    if not settings.store.exists():
        raise TaskNotFound(wanted)

    async def run() -> T:
        async with open_unowned(settings) as unowned:
            return await act(unowned)

    return loop.run(run())
