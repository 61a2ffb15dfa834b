"""`synapse watch`: follows the events of all tasks, of one agent's tasks, or of one task until it ends.

Those of other machines come from this machine's link; see `cli.fleet_watch`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Final, assert_never
from urllib.parse import quote

from synapse.cli import exit_codes
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.tables import line_width
from synapse.cli.task_lookup import is_task_id
from synapse.cli.tasks import place_of
from synapse.client.fan_out import ask_all
from synapse.client.hosts import current_folder, find_local_agent, open_gateways, open_registry
from synapse.client.lines import cut, plain
from synapse.config import process
from synapse.config.settings import load_settings
from synapse.core.address import split_inbox
from synapse.core.errors import AgentNotFound, FeedLagged, TaskNotFound, WaitCycle
from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
    Update,
)
from synapse.core.json_text import decode_object
from synapse.core.message import Message, TextPart
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.task_metadata import is_about_question, sender_name_in
from synapse.dialects.synapse.encode import encode_update
from synapse.dialects.task_json import STATE_NAMES
from synapse.gateway.directory import left_name
from synapse.host.open_store import open_store
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal
from synapse.tasks.outcomes import AGENT_EXITED, EXPIRED, INTERRUPTED, PARTIAL

EXAMPLES = """
synapse watch                      all agents, until Ctrl-C
synapse watch --agent codex        one agent
synapse watch --task 54241e7e      one task from its beginning until it ends
synapse watch --agent codex@box2   an agent on another machine, as far as it lets this one read
synapse watch --all                the agents of all machines
synapse watch --json | jq .event   one object per event
"""
_EXITS: Final = {TaskState.COMPLETED: exit_codes.DONE, TaskState.REJECTED: exit_codes.REFUSED}
_AGENT_COLUMNS = 13
_WORD_COLUMNS = 14
_OWN_REASONS = frozenset({AGENT_EXITED, EXPIRED, INTERRUPTED, WaitCycle.code})
"""Reasons whose note is our own sentence; with others it may be text of the agent or its script."""


def run_watch(arguments: list[str]) -> int:
    """Follows events and returns the exit code."""
    parser = VerbParser("watch", examples=EXAMPLES)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--task", metavar="TASK", default="", help="only this task, until it ends")
    what.add_argument("--agent", metavar="AGENT", default="", help="only the tasks of this agent")
    what.add_argument("--machine", metavar="NAME", default="", help="only the tasks of this machine of the fleet")
    what.add_argument("--all", action="store_true", help="the tasks of all machines of the fleet")
    options = parser.parse_args(arguments)
    home, show = os.path.dirname(open_registry().folder), partial(_show, as_json=options.json)
    if options.all:
        return process.run(_watch_fleet(home, as_json=options.json))
    agent, machine = place_of(options.agent, options.machine)
    if machine:
        return process.run(_watch_machine(home, agent, machine, show))
    inbox = _inbox_of(agent) if agent else ""
    try:
        return process.run(_watch(options.task, inbox, as_json=options.json))
    except TaskNotFound:
        if not is_task_id(options.task):
            raise
    return _watch_remote_task(home, options.task, show)


async def _watch_fleet(home: str, *, as_json: bool) -> int:
    """Follows this machine and all others."""
    from synapse.cli.fleet_watch import FleetWatch

    others = FleetWatch(home, partial(_show, as_json=as_json))
    are_followed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(others.run(are_followed.set))
        await are_followed.wait()
        return await _watch("", "", as_json=as_json)


async def _watch_machine(home: str, agent: str, machine: str, show: Callable[[Update], None]) -> int:
    """Follows the running agent of that name on another machine, or all agents there."""
    from synapse.cli.fleet_watch import watch_machine
    from synapse.client.link import find_remote

    inbox = split_inbox(find_remote(f"{agent}@{machine}", open_registry()).inbox)[0] if agent else ""
    await watch_machine(home, machine, inbox, show, lambda: print_notice("Watching; Ctrl-C stops."))
    return exit_codes.DONE


def _watch_remote_task(home: str, prefix: str, show: Callable[[Update], None]) -> int:
    """Follows a task on another machine until it ends. Raises TaskNotFound."""
    from synapse.cli.fleet_watch import watch_remote_task
    from synapse.client.fleet_log import FleetLog
    from synapse.client.link import find_remote_task

    entry, task = find_remote_task(prefix, open_registry())
    log = FleetLog(home, split_inbox(entry.inbox)[1])
    return _EXITS.get(process.run(watch_remote_task(log, str(task["id"]), show)), exit_codes.FAILED)


def _inbox_of(agent: str) -> str:
    """Returns the agent's inbox. Raises AgentNotFound, AmbiguousTarget or AgentNotResponding."""
    try:
        return find_local_agent(agent, open_registry(), "watch --agent").inbox
    except AgentNotFound:
        # An in-process agent of a gateway may have no registry entry; its inbox is its name.
        replies = ask_all(open_gateways().entries(), "GET", f"/agents/{quote(agent, safe='')}")
        if any(reply.body.get("id") == agent for reply in replies):
            return agent
        raise


async def _watch(prefix: str, inbox: str, *, as_json: bool) -> int:
    store = await open_store(load_settings(folder=current_folder()))
    try:
        journal = Journal(store)
        tail = LogFollower(store, journal)
        feed = Feed(journal, store, source=tail)
        task_id = await journal.resolve_id(prefix) if prefix else None
        async with tail.running(), aclosing(updates_of(feed, task_id, inbox, 0 if task_id else None)) as updates:
            if not task_id:
                print_notice("Watching; Ctrl-C stops.")
            async for update in updates:
                _show(update, as_json=as_json)
        return _EXITS.get((await store.load(task_id)).state, exit_codes.FAILED) if task_id else exit_codes.DONE
    finally:
        await store.close()


async def updates_of(
    feed: Feed, task_id: TaskId | None, inbox: str, after: int | None = None
) -> AsyncGenerator[Update, None]:
    """Yields updates of one task, or of the tasks of an inbox (empty: of all), from now on or after a seq."""
    while True:
        updates = feed.follow(task_id, after) if task_id else feed.follow_all(after, inbox=inbox)
        try:
            async with aclosing(updates):
                async for update in updates:
                    yield update
                return
        except FeedLagged as lagged:
            # The reader of our output was slow; resume from the log.
            after = lagged.last_seq


def _show(update: Update, *, as_json: bool) -> None:
    if as_json:
        event = decode_object(encode_update(update).data)
        print_json({"seq": update.seq, "agent": left_name(update.task), **event})
    elif line := line_of(update):
        print_result(cut(line, line_width()))


def line_of(update: Update) -> str:
    """Returns time, agent, task and event as a line; empty for events that people need not see."""
    described = _describe(update.event, update.task)
    if described is None:
        return ""
    word, detail = described
    at = update.event.at if update.event is not None else update.task.updated_at
    task = update.task
    agent = left_name(task).removeprefix("synapse-")
    begin = f"{at.astimezone():%H:%M:%S}  {agent:{_AGENT_COLUMNS}}  {task.short_id}  {word:{_WORD_COLUMNS}}"
    return f"{begin}  {plain(detail)}".rstrip()


def logged(event: TaskEvent) -> tuple[str, str] | None:  # noqa: PLR0911 - one case per event
    """Returns a word and a detail for a log, without the text of messages; None for what a log leaves out.

    It leaves out the last step of a receipt, because the state change that comes with it has the reason.
    """
    match event:
        case TaskOpened():
            return (
                "message",
                f"from {sender_name_in(event.metadata)}, {_size(event.message)}, priority {event.priority}",
            )
        case MessageAdded():
            return "message", f"from the {event.message.role.value}, {_size(event.message)}"
        case StateChanged():
            return _logged_state(event)
        case ArtifactAdded() if event.last_chunk and not event.artifact.metadata.get(PARTIAL):
            source = event.artifact.metadata.get("source", "")
            size = f"{len(event.artifact.text)} characters"
            return "answer", f"{size}, source: {source}" if source else size
        case ReceiptChanged() if not event.step.is_final:
            return event.step.value, f"{event.source}: {event.evidence}" if event.evidence else event.source
        case AttentionChanged() if event.attention:
            return "needs a person", event.attention
        case TaskHidden():
            return "deleted", ""
        case _:
            return None


def _logged_state(event: StateChanged) -> tuple[str, str] | None:
    if event.state in (TaskState.SUBMITTED, TaskState.WORKING):
        return None
    if event.state.is_interrupted:
        return STATE_NAMES[event.state], "synapse approvals shows the question"
    is_own_note = event.reason in _OWN_REASONS
    return STATE_NAMES[event.state], ": ".join(filter(None, (event.reason, event.note if is_own_note else "")))


def _size(message: Message) -> str:
    files = sum(not isinstance(part, TextPart) for part in message.parts)
    return f"{len(message.text)} characters" + (f" and {files} files or data" if files else "")


def _describe(event: TaskEvent | None, task: Task) -> tuple[str, str] | None:  # noqa: PLR0911 - one case per event
    match event:
        case None:
            return STATE_NAMES[task.state], task.note or task.message.text
        case TaskOpened():
            return "opened", f"{task.sender_name}: {event.message.text}"
        case StateChanged():
            return STATE_NAMES[event.state], event.note or event.reason
        case MessageAdded():
            return "message", f"{event.message.role.value}: {event.message.text}"
        case ArtifactAdded():
            is_whole = not event.append and event.last_chunk
            return "answer" if is_whole else "says", event.artifact.text or event.artifact.name
        case ReceiptChanged():
            return event.step.value, f"{event.source}: {event.evidence}" if event.evidence else event.source
        case _:
            return _describe_rest(event, task)


def _describe_rest(event: MetadataChanged | AttentionChanged | TaskHidden, task: Task) -> tuple[str, str] | None:
    match event:
        case MetadataChanged():
            question = task.question
            return ("asks", question.title) if question is not None and is_about_question(event) else None
        case AttentionChanged():
            return ("needs a person", event.attention) if event.attention else None
        case TaskHidden():
            return "deleted", ""
        case _:
            assert_never(event)
