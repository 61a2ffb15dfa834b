"""`synapse show` for agents and tasks on other machines: what this machine may read of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from synapse.cli.tables import line_width
from synapse.client.fleet_log import FleetLog
from synapse.client.lines import plain
from synapse.client.link import OPEN, OUTBOX, find_remote_task
from synapse.client.times import ago
from synapse.client.views import FINISHED, message_of, note_of, reply_of, sender_of, short_id, status_of
from synapse.config.process import SystemClock
from synapse.core.address import short_name, split_inbox
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict, InvalidRequest, MachineAway
from synapse.core.events import Recorded
from synapse.core.json_text import object_in
from synapse.core.task import Task
from synapse.registry.files import FileRegistry
from synapse.tasks.journal import rebuild
from synapse.tasks.recovery import is_instruction, is_waiting_for_reply


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTasks:
    """Tasks on another machine, oldest first, with their events."""

    tasks: Sequence[tuple[Task, Sequence[Recorded]]] = ()
    agent: str = ""
    """The agent whose tasks they are; empty for one task or one context."""
    has_earlier: bool = False
    others: int = 0
    """How many other tasks the context of one task has."""
    kept: str = ""
    """The text of the task, if this machine cannot read its events now."""


def tasks_of_agent(
    agent: str, machine: str, options: argparse.Namespace, registry: FileRegistry, *, last: int, now: datetime
) -> RemoteTasks:
    """Returns the last tasks of an agent, which need not run. Raises AgentNotFound, or what `ask_link` raises."""
    name = f"{agent}@{machine}"
    if options.context:
        raise InvalidRequest(f"'{name}' is an agent", hint=f"--context takes a task:  synapse tasks {name}")
    log = FleetLog(os.path.dirname(registry.folder), machine)
    since = (now - options.since).isoformat() if options.since else ""
    found = log.tasks(last + 1, _is_request, agent=agent, updated_after=since)
    return RemoteTasks(tasks=_read(log, found[:last]), agent=name, has_earlier=len(found) > last)


def tasks_of_task(prefix: str, options: argparse.Namespace, registry: FileRegistry, *, most: int) -> RemoteTasks:
    """Returns a task, or with --context also the others of its conversation.

    Raises:
        TaskNotFound, AmbiguousTask: no task or several match, or what `ask_link` raises.
        Conflict, MachineAway: only its events could be shown so, and they cannot be read now.
    """
    entry, fields = find_remote_task(prefix, registry)
    log = FleetLog(os.path.dirname(registry.folder), split_inbox(entry.inbox)[1])
    events = log.events_of(str(fields["id"]))
    if not events:
        if given := [name for name in ("json", "markdown", "raw", "context", "output") if getattr(options, name)]:
            raise _no_events(given[0], log.machine, fields)
        return RemoteTasks(kept=_conversation(entry, fields))
    task = rebuild(None, [one.event for one in events])
    context = log.tasks(most, _is_request, context_id=task.context_id) if task.context_id else []
    if options.context:
        return RemoteTasks(tasks=_read(log, context))
    if options.last or options.since:
        raise InvalidRequest(f"{task.short_id} is a task", hint="--last and --since take an agent")
    return RemoteTasks(tasks=[(log.shown(task), events)], others=sum(one.id != task.id for one in context))


def _is_request(task: Task) -> bool:
    return not is_instruction(task) and not is_waiting_for_reply(task)


def _read(log: FleetLog, tasks: Sequence[Task]) -> list[tuple[Task, Sequence[Recorded]]]:
    """Returns the tasks in the order in which they began, each with its events."""
    in_order = sorted(tasks, key=lambda task: (task.created_at, task.id))
    return [(log.shown(task), events) for task in in_order if (events := log.events_of(task.id))]


def _no_events(option: str, machine: str, task: dict[str, Any]) -> Conflict | MachineAway:
    hint = f"`synapse show {short_id(task)}` shows what this machine knows of it"
    if object_in(task, "metadata").get(OUTBOX) == OPEN:
        return Conflict(
            f"--{option} needs the events of the task, and {machine} has not taken its message yet", hint=hint
        )
    away = MachineAway(machine, "")
    away.args = (f"--{option} needs the events of the task, and {machine} is away",)
    away.hint = hint
    return away


def _conversation(entry: AgentEntry, task: dict[str, Any]) -> str:
    """Returns a task of another machine like a conversation. without its events."""
    name, sender = short_name(entry), sender_of(task).removeprefix("synapse-")
    changed = ago(task.get("updated_at"), SystemClock().now())
    head = f"─── {short_id(task)}  {name}  {status_of(task).replace('_', ' ')}  {changed} "
    lines = [head.ljust(min(line_width(), 100), "─"), f"{sender} → {name}", *_indented(message_of(task))]
    if reply := reply_of(task):
        so_far = "" if status_of(task) in FINISHED else "  (so far)"
        lines += [f"{name} → {sender}{so_far}", *_indented(reply)]
    if note := note_of(task):
        lines.append(f"· {plain(note)}")
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return [f"  {plain(line)}" for line in text.splitlines()]
