"""`synapse show`: reads a task, or the last tasks of an agent, like a conversation, and exports them.

All comes from the store, so it makes no difference whether the agent runs. Tasks of another machine come from the store
there, as far as it lets this machine read; see `cli.fleet_tasks`.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

from synapse.cli.agents import SHORTEST_PREFIX
from synapse.cli.fleet_tasks import RemoteTasks, tasks_of_agent, tasks_of_task
from synapse.cli.logs import duration
from synapse.cli.output import print_notice, print_result
from synapse.cli.pager import print_paged
from synapse.cli.parser import VerbParser, whole_number
from synapse.cli.tables import in_colour, line_width, painted
from synapse.cli.task_lookup import is_task_id
from synapse.cli.tasks import find_stored, is_of, owner
from synapse.client.history import TaskHistory, export_fields, history_of
from synapse.client.history_text import as_markdown, as_text
from synapse.client.hosts import current_folder, find_agent, open_registry
from synapse.client.link import allow_step, is_in_fleet, without_own_machine
from synapse.client.seen import person_saw, person_saw_end
from synapse.config import process
from synapse.config.process import SystemClock
from synapse.config.settings import Settings, load_settings
from synapse.core.address import split_machine
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import (
    AgentNotFound,
    AgentNotResponding,
    AmbiguousTask,
    InvalidRequest,
    TaskNotFound,
)
from synapse.core.events import Recorded
from synapse.core.json_text import encode
from synapse.core.requests import GetTask
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskId
from synapse.dialects.proto_json import instant
from synapse.dialects.task_json import task_object
from synapse.gateway.directory import left_name
from synapse.host.open_store import open_store, require_no_lost_store
from synapse.host.stopped import stopped_tasks
from synapse.registry.files import FileRegistry
from synapse.store.codec import encode_events, from_json
from synapse.tasks.recovery import is_instruction, is_waiting_for_reply

EXAMPLES = """
synapse show 54241e7e                 one task: what was said, asked and answered
synapse show 54241e7e --context       with the other tasks of its conversation
synapse show codex                    the last ten tasks of codex, and what it sent to others
synapse show codex --since 2h
synapse show codex --last 50 --markdown --output codex.md
synapse show 54241e7e --json | jq '.tasks[0].entries[].kind'
synapse show 54241e7e --raw           the events as they are stored
synapse show codex@box2               an agent on another machine, as far as it lets this one read
"""
LAST: Final = 10
MOST: Final = 1000
"""How many tasks are shown at most, and among how many recent ones those that an agent sent are looked for."""
_PAGE: Final = 500
_ME: Final = Caller()
_STATE_OF_MARK: Final = {"─": "exited", "·": "exited", "(": "exited", "…": "working", "!": "waiting"}
"""The first character of a line of ours, with the agent state whose colour it has; other lines name who speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The tasks to show, oldest first."""

    tasks: Sequence[Task]
    agent: AgentEntry | None = None
    """The agent whose tasks they are; None for one task or one context."""
    has_earlier: bool = False
    others: int = 0
    """How many other tasks the context of one task has."""


def run_show(arguments: list[str]) -> int:
    """Shows or exports histories and returns the exit code."""
    parser = VerbParser("show", examples=EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    parser.add_argument("--last", metavar="N", type=whole_number(1), help=f"the last N tasks ({LAST})")
    parser.add_argument("--since", type=duration, metavar="TIME", help="what changed in the last 30m, 2h or 1d")
    parser.add_argument("--context", action="store_true", help="all tasks of the context that the task belongs to")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    form.add_argument("--raw", action="store_true", help="print the stored events, a JSON object per line")
    parser.add_argument("--output", metavar="FILE", help="write to this new file; .md and .json choose the form")
    options = parser.parse_args(arguments)
    if options.markdown and options.json:
        parser.error("--markdown and --json exclude each other")
    output = Path(options.output) if options.output is not None else None
    if output is not None:
        _choose_form(options, output)
    registry, now = open_registry(), SystemClock().now()
    remote = _remote(options, registry, now)
    if remote is not None:
        shown, text = _read_remote(remote, options, now, is_file=output is not None)
    else:
        shown, text = process.run(_read(options, registry, now, is_file=output is not None))
    if output is not None:
        _write_new(output, text)
        count = len(shown.tasks)
        print_notice(f"Wrote {count} task{'' if count == 1 else 's'} to {output}")
    elif options.json:
        print_result(text)
    elif not text:
        print_notice(_no_tasks(options, is_remote=remote is not None))
    else:
        print_paged(_painted(text) if in_colour() and not (options.markdown or options.raw) else text)
        if remote is None:
            _mark_seen(registry, shown, now)
    return 0


def _no_tasks(options: argparse.Namespace, *, is_remote: bool) -> str:
    when = " in that time" if options.since else " yet"
    if is_remote:
        machine = split_machine(options.target.removeprefix("@"))[1]
        allow = f"to read all: {allow_step(str(Path(open_registry().folder).parent), machine, 'read')}"
        return f"There are no tasks of '{options.target}'{when} that this machine may read.  ({allow})"
    return f"There are no tasks of '{options.target}'{when}.  (synapse tasks)"


def _remote(options: argparse.Namespace, registry: FileRegistry, now: datetime) -> RemoteTasks | None:
    """Returns the tasks on other machines that the options name; None if they name something here.

    Raises as `tasks_of_agent` and `tasks_of_task` do.
    """
    target = without_own_machine(options.target.removeprefix("@"), registry)
    name, machine = split_machine(target)
    if machine:
        last = min(options.last or (MOST if options.since else LAST), MOST)
        return tasks_of_agent(name, machine, options, registry, last=last, now=now)
    options.target = target
    if not is_task_id(target) or not is_in_fleet(str(Path(registry.folder).parent)):
        return None
    try:
        find_stored(target)
    except AmbiguousTask:
        return None
    except TaskNotFound:
        return tasks_of_task(target, options, registry, most=MOST)
    return None


def _read_remote(
    remote: RemoteTasks, options: argparse.Namespace, now: datetime, *, is_file: bool
) -> tuple[Shown, str]:
    """Returns the tasks of another machine, and their text in the form that the options choose."""
    tasks = [task for task, _ in remote.tasks]
    agent = AgentEntry(remote.agent, "", name=remote.agent) if remote.agent else None
    shown = Shown(tasks=tasks, agent=agent, has_earlier=remote.has_earlier, others=remote.others)
    if remote.kept:
        return shown, remote.kept
    if options.raw:
        return shown, _raw_text([(task.id, one) for task, events in remote.tasks for one in events], options)
    histories = [
        history_of([one.event for one in events], left_name(task).removeprefix("synapse-"))
        for task, events in remote.tasks
    ]
    return shown, _formatted(histories, shown, options, now, is_file=is_file)


def _choose_form(options: argparse.Namespace, output: Path) -> None:
    if not options.raw:
        options.markdown = options.markdown or (output.suffix == ".md" and not options.json)
        options.json = options.json or (output.suffix == ".json" and not options.markdown)


async def _read(
    options: argparse.Namespace, registry: FileRegistry, now: datetime, *, is_file: bool
) -> tuple[Shown, str]:
    """Returns what the options name, and its text in the form that they choose."""
    settings = load_settings(folder=current_folder())
    require_no_lost_store(settings)
    target: str = options.target.removeprefix("@")
    if not settings.store.exists():
        raise TaskNotFound(target) if is_task_id(target) else _not_found(target)
    running = _running(target, registry)
    store = await open_store(settings)
    try:
        shown = await _Selection(store, settings, options, now).find(target, running)
        if options.raw:
            return shown, await _raw(store, shown.tasks, options)
        own = {shown.agent.agent_id: shown.agent.name} if shown.agent else {}
        histories: list[TaskHistory] = []
        for task in shown.tasks:
            events = [one.event async for one in _events(store, task.id)]
            # A task may be pruned while others are read.
            if events:
                histories.append(history_of(events, left_name(task).removeprefix("synapse-"), own))
    finally:
        await store.close()
    return shown, _formatted(histories, shown, options, now, is_file=is_file)


def _running(target: str, registry: FileRegistry) -> AgentEntry | None:
    """Raises AmbiguousTarget."""
    try:
        return find_agent(target, registry)
    except (AgentNotFound, AgentNotResponding):
        return None


def _not_found(target: str) -> AgentNotFound:
    return AgentNotFound(target, hint="`synapse tasks` lists recent tasks and their agents")


class _Selection:
    """Finds the tasks to show, with a bounded number of reads."""

    def __init__(self, store: TaskStore, settings: Settings, options: argparse.Namespace, now: datetime) -> None:
        self._store = store
        self._stopped = stopped_tasks(store, settings)
        self._with_context: bool = options.context
        self._since = now - options.since if options.since else None
        self._is_cut = bool(options.last or options.since)
        self._most = min(options.last or (MOST if options.since else LAST), MOST)

    async def find(self, target: str, running: AgentEntry | None) -> Shown:
        """Returns what `target` names: a running agent, a stopped one, or a task.

        Raises AgentNotFound, TaskNotFound or AmbiguousTask.
        """
        agent = running or await self._stopped_agent(target)
        if agent is None:
            task = await self._task(target)
            if task is not None:
                return await self._of_task(task)
            agent = await self._last_of_profile(target)
        if self._with_context:
            raise InvalidRequest(f"'{target}' is an agent", hint="--context takes a task:  synapse tasks")
        return await self._of_agent(agent)

    async def _stopped_agent(self, target: str) -> AgentEntry | None:
        """Returns the stopped agent with that given name or id."""
        for query in (
            TaskQuery(inbox=target, limit=1),
            TaskQuery(agent_id=target, limit=1),
            TaskQuery(agent_id=f"synapse-{target}", limit=1),
        ):
            page = await self._store.list(query)
            if page.tasks:
                return owner(page.tasks[0])
        return None

    async def _last_of_profile(self, target: str) -> AgentEntry:
        found = await self._stopped.recent(1, lambda task: is_of(target, owner(task)), _ME)
        if not found:
            raise _not_found(target)
        return owner(found[0])

    async def _task(self, target: str) -> Task | None:
        """Returns the task that `target` names; None if it may name an agent.

        Raises TaskNotFound or AmbiguousTask.
        """
        try:
            return await self._stopped.get(GetTask(target), _ME)
        except TaskNotFound:
            if is_task_id(target):
                raise
        except AmbiguousTask:
            # A short name such as `d1` is a prefix of many ids, but not meant as one.
            if len(target) >= SHORTEST_PREFIX:
                raise
        return None

    async def _of_task(self, task: Task) -> Shown:
        query = TaskQuery(context_id=task.context_id, limit=MOST)
        context = (await self._store.list(query)).tasks if task.context_id else (task,)
        if self._with_context:
            tasks, has_earlier = self._last([one for one in context if _is_request(one)])
            return Shown(tasks=tasks, has_earlier=has_earlier)
        if self._is_cut:
            raise InvalidRequest(f"{task.short_id} is a task", hint="--last and --since take an agent, or --context")
        return Shown(tasks=(task,), others=sum(_is_request(one) and one.id != task.id for one in context))

    async def _of_agent(self, agent: AgentEntry) -> Shown:
        """Returns the last tasks of the agent, and those among the recent ones of others that it sent."""
        own = await self._stopped.of(agent.inbox, agent.agent_id).recent(self._most + 1, _is_request, _ME)
        oldest = own[-1].updated_at if len(own) > self._most else None
        query = TaskQuery(limit=MOST, updated_after=self._since or oldest)
        sent = [
            task for task in (await self._store.list(query)).tasks if _is_request(task) and _is_sent_by(agent, task)
        ]
        unique = {task.id: task for task in (*own, *sent)}
        tasks, has_earlier = self._last(list(unique.values()))
        return Shown(tasks=tasks, agent=agent, has_earlier=has_earlier)

    def _last(self, tasks: list[Task]) -> tuple[list[Task], bool]:
        """Returns the last of the tasks, in the order in which they began, and whether there are earlier ones."""
        latest = sorted(tasks, key=lambda task: task.updated_at, reverse=True)
        if self._since is not None:
            latest = [task for task in latest if task.updated_at > self._since]
        kept = sorted(latest[: self._most], key=lambda task: (task.created_at, task.id))
        return kept, len(latest) > len(kept)


def _is_request(task: Task) -> bool:
    """Decides whether people mean the task: no initial instructions, and no wait, whose request is a task elsewhere."""
    return not is_instruction(task) and not is_waiting_for_reply(task)


def _is_sent_by(agent: AgentEntry, task: Task) -> bool:
    if not task.sender_verified:
        return False
    # The id has a port, which another agent may have had before.
    if task.sender.inbox:
        return task.sender.inbox == agent.inbox
    return task.sender.sender_id == agent.agent_id


async def _events(store: TaskStore, task_id: TaskId) -> AsyncGenerator[Recorded]:
    seq = 0
    while page := await store.read_after(seq, task_id=task_id, limit=_PAGE):
        for recorded in page:
            yield recorded
        seq = page[-1].seq


async def _raw(store: TaskStore, tasks: Sequence[Task], options: argparse.Namespace) -> str:
    return _raw_text([(task.id, one) for task in tasks async for one in _events(store, task.id)], options)


def _raw_text(recorded: Sequence[tuple[TaskId, Recorded]], options: argparse.Namespace) -> str:
    """Returns stored events: a list, or an object per line."""
    events: list[dict[str, Any]] = []
    for task_id, (seq, event, _) in recorded:
        kind, _, fields = cast("list[Any]", from_json(encode_events([event]))[0])
        at = instant(event.at)
        events.append({"seq": seq, "task_id": task_id, "at": at, "event": kind, "fields": fields})
    return encode(events) if options.json else "\n".join(map(encode, events))


def _formatted(
    histories: Sequence[TaskHistory], shown: Shown, options: argparse.Namespace, now: datetime, *, is_file: bool
) -> str:
    agent = shown.agent.name or shown.agent.agent_id.removeprefix("synapse-") if shown.agent else ""
    if not histories and not options.json and not is_file:
        return ""
    if options.json:
        return encode(export_fields(histories, agent=agent, at=now))
    if options.markdown:
        return as_markdown(histories, title=agent or f"task {options.target}", now=now)
    lines: list[str] = []
    if shown.has_earlier:
        last, context = min(2 * len(histories), MOST), " --context" if options.context else ""
        lines += [f"(earlier tasks are not shown:  synapse show {options.target}{context} --last {last})", ""]
    lines.append(as_text(histories, columns=10_000 if is_file else line_width(), now=now))
    if shown.others:
        tasks = "1 more task" if shown.others == 1 else f"{shown.others} more tasks"
        lines += ["", f"({tasks} of the same context:  synapse show {shown.tasks[0].short_id} --context)"]
    return "\n".join(lines)


def _write_new(output: Path, text: str) -> None:
    """Writes a file that did not exist. Raises InvalidRequest if it does, or OSError."""
    try:
        file = output.open("x", encoding="utf-8", errors="replace", newline="\n")
    except FileExistsError as error:
        raise InvalidRequest(f"{output} exists already", hint="name a new file, or remove that one first") from error
    try:
        with file:
            file.write(f"{text}\n")
    except OSError:
        # A part of an export would look like a whole one.
        output.unlink(missing_ok=True)
        raise


def _painted(text: str) -> str:
    """Returns the text of histories with colours: lines that begin in the first column are ours."""
    return "\n".join(_painted_line(line) for line in text.split("\n"))


def _painted_line(line: str) -> str:
    if not line or line.startswith(" "):
        return line
    state = _STATE_OF_MARK.get(line[0], "starting")
    return painted(line, state)


def _mark_seen(registry: FileRegistry, shown: Shown, now: datetime) -> None:
    if shown.agent is not None:
        person_saw(registry, shown.agent.agent_id, now)
        return
    for task in shown.tasks:
        person_saw_end(registry, task.agent_id, task_object(task))
