"""`synapse status`: one agent, or one task, in detail."""

from __future__ import annotations

import os
from typing import Any

from synapse.cli.hold_view import held_in, how_long, messages_in, way_out, why_held
from synapse.cli.hosts import AGENT_VARIABLE, ask, find_agent, open_registry, stands_still, standstill
from synapse.cli.list_agents import QUEUED, as_fields, attention_lines, decision, state_of
from synapse.cli.list_agents import run as list_agents
from synapse.cli.question_view import next_step, question_in, question_lines, question_of
from synapse.cli.render import painted, plain, short_path
from synapse.cli.speech import give, give_json
from synapse.cli.survey import Asked, current_task, find_task, is_task_id
from synapse.cli.task_view import (
    FINISHED,
    attention_of,
    message_of,
    note_of,
    receipt_lines,
    receipt_of,
    reply_of,
    sender_of,
    short_id,
    status_of,
)
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, AmbiguousTask, SynapseError, TaskNotFound
from synapse.core.json_text import objects_in
from synapse.registries.files import FileRegistry
from synapse.runtime.system_clock import SystemClock

LEAST_OF_AN_ID = 4
EXAMPLES = """
synapse status codex               what it does, and since when
synapse status codex --explain     how that is known: what each source says
synapse status 54241e7e            a task: how far it is, and its answer
"""


def run(arguments: list[str]) -> int:
    """Show an agent or a task and return the exit code."""
    parser = VerbParser("status", examples=EXAMPLES)
    parser.add_argument("target", nargs="?", metavar="AGENT|TASK", default=os.environ.get(AGENT_VARIABLE, ""))
    parser.add_argument("--explain", action="store_true", help="show what each source says")
    options = parser.parse_args(arguments)
    if not options.target:
        return list_agents(["--json"] if options.json else [])
    registry = open_registry()
    found = _agent_or_task(options.target, registry)
    if isinstance(found, Asked):
        _show_agent(found, explain=options.explain, as_json=options.json)
    else:
        _show_task(*found, as_json=options.json)
    return 0


def _agent_or_task(target: str, registry: FileRegistry) -> Asked | tuple[AgentEntry, dict[str, Any]]:
    try:
        entry = find_agent(target, registry)
    except AgentNotFound as error:
        try:
            return find_task(target, registry)
        except TaskNotFound as missing:
            raise (missing if is_task_id(target) else error) from None
        except AmbiguousTask as several:
            # A name as `d1` begins many an id; nobody types so little of one.
            raise (error if len(target) < LEAST_OF_AN_ID else several) from None
    return Asked(entry, ask(entry, "GET", "/status"))


def _show_agent(one: Asked, *, explain: bool, as_json: bool) -> None:
    if as_json:
        sightings = {"sightings": objects_in(one.body, "sightings")} if explain else {}
        give_json({**as_fields(one), **sightings})
        return
    state, body, entry = state_of(one), one.body, one.entry
    give(f"{short_name(entry)}  {painted(state, state)}  since {plain(str(body.get('since', '?')))}")
    give(f"  why      {plain(str(body.get('why', '')))}  ({plain(str(body.get('source', '')))})")
    if body.get("gate"):
        give(f"  gate     nothing is typed: {plain(str(body['gate']))}")
    place = f"in {entry.gateway}" if entry.gateway else f"port {entry.port}"
    give(f"  where    {place}, pid {entry.pid}, {plain(short_path(entry.working_dir))}")
    task = current_task(body)
    if task:
        give(f"  task     {short_id(task)} from {sender_of(task)}, {receipt_of(task)}: {plain(message_of(task))[:200]}")
    give(f"  queue    {body.get('queue_depth', 0)} waiting")
    _show_held(held_in(body), entry)
    for line in attention_lines([one]):
        give(f"  {line}")
    for line in question_lines(question_in(body))[1:]:
        give(f"    {line}")
    if explain:
        _explain(one)


def _explain(one: Asked) -> None:
    give("  sources, the most trusted first:")
    for sighting in objects_in(one.body, "sightings"):
        won = "→" if sighting.get("source") == one.body.get("source") else " "
        source, state, at = (plain(str(sighting.get(key, ""))) for key in ("source", "state", "at"))
        give(f"  {won} {source:<12} {state:<9} {at}  {plain(str(sighting.get('detail', '')))}")


def _show_task(entry: AgentEntry, task: dict[str, Any], *, as_json: bool) -> None:
    held = _held_with(entry, task)
    if as_json:
        give_json({"task": task, "reply": reply_of(task) or None, "receipt": receipt_of(task), "held": held or None})
        return
    where = f"at {short_name(entry)}" + ("" if entry.pid else " (not running)")
    give(f"task {task.get('id')}  {status_of(task)}  {where}, from {sender_of(task)}")
    give(f"  message  {plain(message_of(task))[:500]}")
    if stands_still(entry):
        give(f"  ! {short_name(entry)} does not respond: {standstill(entry)}")
    for line in receipt_lines(task):
        give(f"  {plain(line)}")
    _show_held(held, entry)
    if attention_of(task):
        give(f"  ! {plain(attention_of(task))}{decision(short_id(task), receipt_of(task))}")
    question = question_of(task)
    if question:
        _show_question(question, short_id(task), short_name(entry))
    elif note_of(task):
        give(f"  note     {plain(note_of(task))}")
    if reply_of(task):
        title = "answer" if status_of(task) in FINISHED else "said so far"
        give("\n".join([f"  {title}", *(plain(line) for line in reply_of(task).splitlines())]))


def _show_held(held: dict[str, Any], entry: AgentEntry) -> None:
    if held:
        lasting = how_long(held.get("since"), SystemClock().now())
        give(f"  held     {messages_in(held)} {lasting}: {why_held(held)}  ({way_out(held, short_name(entry))})")


def _held_with(entry: AgentEntry, task: dict[str, Any]) -> dict[str, Any]:
    """Why a task that waits in its agent's queue is held; nothing if it does not wait, or its host does not say."""
    if receipt_of(task) != QUEUED or status_of(task) in FINISHED or not entry.pid or stands_still(entry):
        return {}
    try:
        return held_in(ask(entry, "GET", "/status"))
    except SynapseError:
        return {}


def _show_question(question: dict[str, Any], target: str, agent: str) -> None:
    title, *rest = question_lines(question)
    give(f"  asks     {title}  ({next_step(question, target, agent)})")
    for line in rest:
        give(f"    {line}")
