"""Tasks of agents that do not run, as the verbs see them: read from the store, and taken back there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from synapse.cli.hosts import current_folder
from synapse.core.agent import AgentEntry
from synapse.core.errors import TaskNotFound
from synapse.core.task import Task
from synapse.dialects.synapse.projection import task_object
from synapse.runtime.settings import load_settings
from synapse.runtime.unowned import Unowned, open_unowned

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


def take_back(task_id: str) -> dict[str, Any]:
    """Cancel a task whose agent does not run. Raises TaskNotCancelable, Conflict or StoreFailed."""

    async def cancel(unowned: Unowned) -> Task:
        return await unowned.take_back(await unowned.find(task_id))

    return task_object(_with_store(cancel, task_id))


def owner(task: Task) -> AgentEntry:
    """An entry without a process, for showing."""
    return AgentEntry(task.agent_id, task.agent_id, name=task.agent_id, inbox=task.inbox)


def _with_store(act: Callable[[Unowned], Awaitable[T]], wanted: str) -> T:
    settings = load_settings(folder=current_folder())
    if not settings.store.exists():
        raise TaskNotFound(wanted)

    async def run() -> T:
        async with open_unowned(settings) as unowned:
            return await act(unowned)

    return asyncio.run(run())
