"""`synapse watch`: what happens to tasks, while it happens; of all agents, of one, or of one task until its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final
from urllib.parse import quote

from synapse.cli import exit_codes
from synapse.cli.event_view import line_of
from synapse.cli.hosts import current_folder, find_agent, open_gateways, open_registry
from synapse.cli.render import cut, line_width
from synapse.cli.speech import give, give_json, say
from synapse.cli.survey import ask_all
from synapse.cli.verb_parser import VerbParser
from synapse.core.errors import AgentNotFound, FeedLagged
from synapse.core.events import Update
from synapse.core.json_text import decode_object
from synapse.core.task import TaskId, TaskState
from synapse.dialects.synapse.updates import encode_update
from synapse.runtime import loop
from synapse.runtime.open_store import open_store
from synapse.runtime.settings import load_settings
from synapse.service.feed import Feed
from synapse.service.gateway_directory import left_name
from synapse.service.journal import Journal
from synapse.service.store_tail import StoreTail

EXAMPLES = """
synapse watch                      all agents, until Ctrl-C
synapse watch --agent codex        what one of them does
synapse watch --task 54241e7e      one task from its beginning, until it has ended
synapse watch --json | jq .event   one object for each event
"""
LOOK_SECONDS: Final = 0.05
_EXITS: Final = {TaskState.COMPLETED: exit_codes.DONE, TaskState.REJECTED: exit_codes.REFUSED}


def run(arguments: list[str]) -> int:
    """Follow, and return the exit code."""
    parser = VerbParser("watch", examples=EXAMPLES)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--task", metavar="TASK", default="", help="this task, until it has ended")
    what.add_argument("--agent", metavar="AGENT", default="", help="the tasks of this agent")
    options = parser.parse_args(arguments)
    inbox = _inbox_of(options.agent) if options.agent else ""
    return loop.run(_watch(options.task, inbox, as_json=options.json))


def _inbox_of(agent: str) -> str:
    """Raises AgentNotFound, AmbiguousTarget or AgentNotResponding."""
    try:
        return find_agent(agent, open_registry()).inbox
    except AgentNotFound:
        # One that a gateway runs itself has no entry of its own; its inbox has its name.
        asked = ask_all(open_gateways().entries(), "GET", f"/agents/{quote(agent, safe='')}")
        if any(one.body.get("id") == agent for one in asked):
            return agent
        raise


async def _watch(prefix: str, inbox: str, *, as_json: bool) -> int:
    store = await open_store(load_settings(folder=current_folder()))
    try:
        journal = Journal(store)
        tail = StoreTail(store, journal, look_seconds=LOOK_SECONDS)
        feed = Feed(journal, store, source=tail)
        task_id = await journal.resolve_id(prefix) if prefix else None
        async with tail.running(), aclosing(updates_of(feed, task_id, inbox, 0 if task_id else None)) as updates:
            if not task_id:
                say("watching; Ctrl-C ends it")
            async for update in updates:
                _show(update, as_json=as_json)
        return _EXITS.get((await store.load(task_id)).state, exit_codes.FAILED) if task_id else exit_codes.DONE
    finally:
        await store.close()


async def updates_of(
    feed: Feed, task_id: TaskId | None, inbox: str, after: int | None = None
) -> AsyncGenerator[Update, None]:
    """Yields what happens to one task, or to the tasks of an inbox (empty: of all), from now on or after a seq."""
    while True:
        updates = feed.follow(task_id, after) if task_id else feed.follow_all(after, inbox=inbox)
        try:
            async with aclosing(updates):
                async for update in updates:
                    yield update
                return
        except FeedLagged as lagged:
            # The reader of our output was slow; the log has what it missed.
            after = lagged.last_seq


def _show(update: Update, *, as_json: bool) -> None:
    if as_json:
        told = decode_object(encode_update(update).data)
        give_json({"seq": update.seq, "agent": left_name(update.task), **told})
    elif line := line_of(update):
        give(cut(line, line_width()))
