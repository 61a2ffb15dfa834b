"""`synapse tasks` and `synapse queue`: recent tasks, and queued messages in the order of delivery.

Also the tasks of stopped agents, for other verbs: read from the store and canceled there.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from synapse.cli.output import print_json, print_notice, print_result, warn_unanswered
from synapse.cli.parser import VerbParser, whole_number
from synapse.cli.tables import table
from synapse.client.attention import held_in, messages_in, release_step, why_held
from synapse.client.fan_out import ask_all
from synapse.client.history import sender_label
from synapse.client.hosts import ask, current_folder, find_agent, open_registry
from synapse.client.times import ago
from synapse.client.views import attention_of, message_of, sender_of, short_id
from synapse.config import process
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.address import short_name, split_machine
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import (
    AgentNotFound,
    AgentNotResponding,
    AmbiguousTarget,
    LinkDown,
    MachineAway,
    SynapseError,
    TaskNotFound,
)
from synapse.core.json_text import object_in, objects_in
from synapse.core.requests import CancelTask, GetTask
from synapse.core.store import SearchProgress
from synapse.core.task import Task
from synapse.dialects.task_json import STATE_NAMES, task_object
from synapse.gateway.directory import left_name
from synapse.host.open_store import require_no_lost_store
from synapse.host.stopped import open_stopped
from synapse.registry.files import FileRegistry
from synapse.tasks.recovery import is_instruction, is_waiting_for_reply
from synapse.tasks.stopped import StoppedTasks

TASKS_EXAMPLES = """
synapse tasks                      of all agents, latest change first
synapse tasks codex -n 5           the last five of codex
synapse tasks --search parser      those that have this word in their messages or answers
synapse tasks --search '"not a mistake" pars'   a phrase, and a word that begins with `pars`
synapse status 54241e7e            one task, with its answer
synapse show 54241e7e              the same like a conversation
synapse tasks --machine box2       of the agents of another machine, as far as it lets this one read
synapse tasks --json | jq -r '.[].id'
"""
TASK_TITLES = ("TASK", "STATE", "CHANGED", "AGENT", "FROM", "MESSAGE")
QUEUE_EXAMPLES = """
synapse queue                 of all agents, running or not
synapse queue codex
synapse cancel 54241e7e       cancel a message
synapse cancel --queue codex  cancel all messages queued for codex
"""
OwnedTask = tuple[AgentEntry, dict[str, Any]]
"""A task as JSON, after its agent."""
QUEUE_TITLES = ("AGENT", "TASK", "PRIORITY", "QUEUED", "FROM", "MESSAGE")
T = TypeVar("T")
_ME: Final = Caller()
"""The user of this machine."""
_NOTICE_SECONDS: Final = 1.0


def run_tasks(arguments: list[str]) -> int:
    """Shows recent tasks and returns the exit code."""
    parser = VerbParser("tasks", examples=TASKS_EXAMPLES)
    parser.add_argument("agent", nargs="?", metavar="AGENT", default="")
    parser.add_argument("-n", "--limit", type=whole_number(1), default=20, help="how many to show (20)")
    parser.add_argument(
        "--search",
        metavar="TEXT",
        help='only tasks with all these words in their messages or answers; "several words" in quotes are a phrase',
    )
    parser.add_argument("--machine", metavar="NAME", default="", help="of this machine of the fleet")
    options = parser.parse_args(arguments)
    if options.search is not None and not options.search.strip():
        parser.error("--search needs a text")
    name, machine = place_of(options.agent, options.machine)
    if machine:
        if options.search:
            parser.error(f"--search finds tasks of this machine only; type it on {machine}")
        tasks = remote_tasks(name.removeprefix("@"), machine, options.limit)
    else:
        tasks = recent_tasks(name.removeprefix("@"), options.limit, text=(options.search or "").strip())
    if options.json:
        print_json([task_object(task) for task in tasks])
    elif tasks:
        now = SystemClock().now()
        print_result(table(TASK_TITLES, [_row(task, now) for task in tasks], elastic=5))
    else:
        print_notice(_no_tasks(name, machine, options.search))
    return 0


def _no_tasks(agent: str, machine: str, text: str | None) -> str:
    owner = f" of '{agent}'" if agent else ""
    if text:
        return f"No task{owner} has '{text}' in its messages or answers.  (synapse tasks)"
    if machine:
        from synapse.client.link import allow_step

        all_of_them = allow_step(os.path.dirname(open_registry().folder), machine, "read")
        may_read = f"it may read what it has sent; to read all: {all_of_them}"
        return f"There are no tasks{owner} on {machine} that this machine may read.  ({may_read})"
    return f"There are no tasks{owner}.  (synapse list)" if agent else "There are no tasks yet."


def place_of(agent: str, machine: str) -> tuple[str, str]:
    """Returns the name of the agent and its machine; the machine is empty if it is this one."""
    name, named = split_machine(agent)
    wanted = machine or named
    if not wanted:
        return agent, ""
    from synapse.client.link import own_machine

    return name, "" if wanted == own_machine(os.path.dirname(open_registry().folder)) else wanted


def _row(task: Task, now: datetime) -> tuple[str, ...]:
    return (
        task.short_id,
        STATE_NAMES[task.state].replace("_", " "),
        ago(task.updated_at, now),
        left_name(task).removeprefix("synapse-"),
        sender_label(task),
        task.message.text.strip().partition("\n")[0][:200],
    )


def run_queue(arguments: list[str]) -> int:
    """Shows the queues and returns the exit code."""
    parser = VerbParser("queue", examples=QUEUE_EXAMPLES)
    parser.add_argument("agent", nargs="?", metavar="AGENT")
    options = parser.parse_args(arguments)
    waiting = queued_for(options.agent, open_registry())
    if options.json:
        print_json([{"agent_id": entry.agent_id, "task": task} for entry, task in waiting])
        return 0
    if not waiting:
        print_notice("No messages are queued.")
        return 0
    now = SystemClock().now()
    rows = [
        (
            short_name(entry),
            short_id(task),
            str(object_in(task, "metadata").get("priority", "")),
            ago(task.get("created_at"), now),
            sender_of(task),
            f"{message_of(task)} [{attention_of(task)}]" if attention_of(task) else message_of(task),
        )
        for entry, task in waiting
    ]
    print_result(table(QUEUE_TITLES, rows, elastic=5))
    running = {entry.agent_id: entry for entry, _ in waiting if entry.pid}
    for reply in ask_all([*running.values()], "GET", "/status"):
        held, name = held_in(reply.body), short_name(reply.entry)
        if held:
            print_notice(f"{name} holds {messages_in(held)}: {why_held(held)}  ({release_step(held, name)})")
    return 0


def queued_for(agent: str | None, registry: FileRegistry) -> list[OwnedTask]:
    """Returns queued tasks of all agents, or of those that `agent` may name, running or not. Raises AgentNotFound."""
    if agent and (queued := _queued_there(agent, registry)) is not None:
        return queued
    stored = _stored(registry)
    if agent:
        stored = [(owner, task) for owner, task in stored if is_of(agent.removeprefix("@"), owner)]
    left = [(owner, task) for owner, task in stored if not owner.pid]
    replies = ask_all(_running(agent, registry, is_known=bool(left)), "GET", "/queue")
    warn_unanswered(replies)
    waiting = [(reply.entry, task) for reply in replies for task in objects_in(reply.body, "tasks")]
    listed = {task.get("id") for _, task in waiting}
    return waiting + [(owner, task) for owner, task in stored if task.get("id") not in listed]


def queued_for_one(agent: str, registry: FileRegistry) -> list[OwnedTask]:
    """Returns queued tasks of exactly one agent, to cancel them: not of others with its profile.

    Raises AgentNotFound, AgentNotResponding or AmbiguousTarget.
    """
    if (there := _queued_there(agent, registry)) is not None:
        return there
    try:
        entry = find_agent(agent, registry)
    except (AgentNotFound, AgentNotResponding):
        left = _queued_for_stopped(agent.removeprefix("@"), registry)
        if not left:
            raise
        return left
    queued = objects_in(ask(entry, "GET", "/queue"), "tasks")
    listed = {task.get("id") for task in queued}
    held = [task for owner, task in _stored(registry) if owner.pid and owner.agent_id == entry.agent_id]
    return [(entry, task) for task in (*queued, *(task for task in held if task.get("id") not in listed))]


def _queued_there(agent: str, registry: FileRegistry) -> list[OwnedTask] | None:
    """Returns queued tasks of an agent on another machine, running or not, that this one may read; None for one here.

    Raises AgentNotFound, AmbiguousTarget, LinkDown, MachineAway or MachineNotFound.
    """
    if not split_machine(agent)[1]:
        return None
    from synapse.client.link import look_up_remote, without_own_machine

    target = without_own_machine(agent, registry)
    if not split_machine(target)[1]:
        return None
    try:
        entry = look_up_remote(target, registry, keeps=True)[0]
        waiting = objects_in(ask(entry, "GET", "/queue"), "tasks")
        # The other machine lists its tasks with the newest first, and a host its queue in the order of delivery.
        in_order = sorted(waiting, key=lambda task: (-_priority(task), str(task.get("created_at"))))
        return [(entry, task) for task in in_order]
    except (LinkDown, MachineAway) as error:
        error.hint = f"`synapse fleet outbox` lists messages that it has not taken yet\n{error.hint}"
        raise


def _priority(task: dict[str, Any]) -> int:
    priority = object_in(task, "metadata").get("priority")
    return priority if isinstance(priority, int) else 0


def _queued_for_stopped(agent: str, registry: FileRegistry) -> list[OwnedTask]:
    """Returns queued tasks of a stopped agent: with that name or id, else the only one of that profile."""
    left = [(owner, task) for owner, task in _stored(registry) if not owner.pid and is_of(agent, owner)]
    exact = [(owner, task) for owner, task in left if agent in (owner.name, owner.inbox, owner.agent_id)]
    inboxes = sorted({owner.inbox for owner, _ in exact or left})
    if len(inboxes) > 1:
        raise AmbiguousTarget(agent, inboxes)
    return exact or left


def _stored(registry: FileRegistry) -> list[OwnedTask]:
    return stored_queue({entry.inbox: entry for entry in registry.entries() if entry.inbox})


def _running(agent: str | None, registry: FileRegistry, *, is_known: bool) -> list[AgentEntry]:
    """Returns the running agents to ask: all, or the one that `agent` names, if it is running."""
    if not agent:
        return registry.entries()
    try:
        return [find_agent(agent, registry)]
    except (AgentNotFound, AgentNotResponding):
        if not is_known:
            raise
        return []


def find_stored(prefix: str) -> OwnedTask:
    """Returns the task that `prefix` names, and its agent as an entry without a process.

    Raises TaskNotFound, AmbiguousTask or StoreFailed.
    """
    task = _with_store(lambda stopped: stopped.get(GetTask(prefix), _ME), prefix)
    return owner(task), task_object(task)


def stored_queue(running: dict[str, AgentEntry]) -> list[OwnedTask]:
    """Returns queued tasks of stopped agents, and of `running` ones (by inbox) those that need attention.

    A host's own queue does not have the latter.
    """
    try:
        waiting = _with_store(lambda stopped: stopped.waiting(_ME), "")
    except TaskNotFound:
        return []
    shown = (task for task in waiting if task.inbox not in running or task.attention)
    return [(running.get(task.inbox) or owner(task), task_object(task)) for task in shown]


def recent_tasks(agent: str, limit: int, *, text: str = "") -> list[Task]:
    """Returns the tasks that changed last, of all agents or of one, latest first; with a `text`, those that have it.

    Leaves out initial instructions, and tasks in which an agent waits for a reply: the request itself is a task of the
    agent that received it. Raises StoreFailed, UnsupportedOperation when search is switched off, or InvalidField.
    """
    # An empty list would be wrong: running agents have tasks in a store that was removed from its place.
    require_no_lost_store(load_settings(folder=current_folder()))

    def is_wanted(task: Task) -> bool:
        is_request = not is_instruction(task) and not is_waiting_for_reply(task)
        return is_request and (not agent or is_of(agent, owner(task)))

    async def read(stopped: StoppedTasks) -> tuple[Task, ...]:
        if text:
            await stopped.update_search(_report_progress())
        return await stopped.recent(limit, is_wanted, _ME, text=text)

    try:
        return list(_with_store(read, ""))
    except TaskNotFound:
        return []


def remote_tasks(agent: str, machine: str, limit: int) -> list[Task]:
    """Returns the tasks of another machine as `recent_tasks` does, as far as it lets this one read.

    Raises AgentNotFound, AmbiguousTarget, or what `ask_link` raises.
    """
    from synapse.client.fleet_log import FleetLog

    log = FleetLog(os.path.dirname(open_registry().folder), machine)
    return log.tasks(limit, lambda task: not is_instruction(task) and not is_waiting_for_reply(task), agent=agent)


def _report_progress() -> Callable[[SearchProgress], None]:
    """Returns a function that says now and then how far the search index is, if it takes long."""
    clock = SystemClock()
    said = clock.monotonic()

    def report(progress: SearchProgress) -> None:
        nonlocal said
        if clock.monotonic() - said >= _NOTICE_SECONDS:
            said = clock.monotonic()
            print_notice(f"Indexing the tasks for the search: {progress.percent} %")

    return report


def is_of(agent: str, owner: AgentEntry) -> bool:
    """Returns whether `agent` names the owner of a stored task: by name, id or profile."""
    short_id = owner.agent_id.removeprefix("synapse-")
    profile, _, port = short_id.rpartition("-")
    # Before its first start an agent's id is its given name, which may contain a dash too.
    kind = profile if short_id != owner.agent_id and port.isdigit() else ""
    known = (owner.name, owner.inbox, owner.inbox.partition("@")[0], owner.agent_id, short_id, kind)
    return bool(agent) and agent in known


def cancel_stored(task_ids: Sequence[str]) -> list[dict[str, Any] | SynapseError]:
    """Cancels tasks of stopped agents; returns each task, or why it could not be canceled. Raises StoreFailed."""

    async def cancel(stopped: StoppedTasks) -> list[dict[str, Any] | SynapseError]:
        results = list[dict[str, Any] | SynapseError]()
        for task_id in task_ids:
            try:
                results.append(task_object(await stopped.cancel(CancelTask(task_id), _ME)))
            except SynapseError as error:
                results.append(error)
        return results

    return _with_store(cancel, task_ids[0]) if task_ids else []


def owner(task: Task) -> AgentEntry:
    """Returns the task's agent as an entry without a process; its name is the given name or the short id."""
    name = left_name(task).removeprefix("synapse-")
    return AgentEntry(task.agent_id, task.agent_id, name=name, inbox=task.inbox)


def _with_store(act: Callable[[StoppedTasks], Awaitable[T]], wanted: str) -> T:
    settings = load_settings(folder=current_folder())
    if not settings.store.exists():
        raise TaskNotFound(wanted)

    async def run() -> T:
        async with open_stopped(settings) as stopped:
            return await act(stopped)

    return process.run(run())
