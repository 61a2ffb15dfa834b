"""`synapse list`: who is here, and what they do. Entries of dead hosts are cleaned away.

`synapse status`: one agent, or one task, in detail.
"""

from __future__ import annotations

import os

from synapse.cli.attention import (
    DIALOG,
    IN_DOUBT,
    held_in,
    how_long,
    messages_in,
    next_step,
    overdue_in,
    question_in,
    question_lines,
    question_of,
    target_of,
    title_of,
    way_out,
    why_held,
)
from synapse.cli.output import give_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.tables import painted, plain, short_path, table
from synapse.cli.task_lookup import find_task, is_task_id
from synapse.cli.views import (
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
from synapse.client.fan_out import HostReply, ask_all, current_task
from synapse.client.hosts import AGENT_VARIABLE, ask, find_agent, open_gateways, open_registry, stands_still, standstill
from synapse.core.address import is_marked, short_name
from synapse.core.agent import WAITING, AgentEntry
from synapse.core.errors import AgentNotFound, AmbiguousTask, ConnectionForbidden, SynapseError, TaskNotFound
from synapse.core.json_text import objects_in
from synapse.registry.files import FileRegistry

# `synapse list` shall be quick, so typing is not loaded for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIST_EXAMPLES = """
synapse list
synapse list --json | jq -r '.[].agent_id'
"""
NOT_RESPONDING = "not_responding"
UNKNOWN = "unknown"
"""The state of an agent whose host this process may not ask."""
QUEUED = "queued"
TITLES = ("AGENT", "STATE", "PORT", "PID", "WORKING ON", "FOLDER")


def run_list(arguments: list[str]) -> int:
    """List the agents and return the exit code."""
    options = VerbParser("list", examples=LIST_EXAMPLES).parse_args(arguments)
    registry = open_registry()
    asked = ask_all([*registry.entries(), *open_gateways().entries()], "GET", "/status")
    for note in registry.notes:
        print_notice(note)
    if options.json:
        give_json([as_fields(one) for one in asked])
    elif asked:
        print_result(table(TITLES, [_row(one) for one in asked], elastic=4))
        for line in (*attention_lines(asked), *held_lines(asked)):
            print_notice(line)
    else:
        print_notice("no agent is running; start one with `synapse claude` or `synapse start codex`")
    return 0


def as_fields(one: HostReply) -> dict[str, Any]:
    """The object of an agent in `--json`: its registry entry, and what its host says of it."""
    fields = dict(one.entry.as_dict())
    fields["status"] = state_of(one)
    for key in (
        "why",
        "source",
        "since",
        "gate",
        "queue_depth",
        "current_task",
        "held",
        "attention",
        "question",
        "store_fault",
    ):
        fields[key] = one.body.get(key)
    if one.error is not None:
        fields["why"] = f"{one.error} {one.error.hint}".strip()
    return fields


def state_of(one: HostReply) -> str:
    """The agent's state, or that its host does not answer, or that nobody can tell from here."""
    if one.error is None:
        return str(one.body.get("state") or NOT_RESPONDING)
    return UNKNOWN if isinstance(one.error, ConnectionForbidden) else NOT_RESPONDING


def attention_lines(asked: list[HostReply]) -> list[str]:
    """What needs a person, one line each, with what to type."""
    lines: list[str] = []
    for one in asked:
        name = short_name(one.entry)
        question = question_in(one.body)
        if state_of(one) == UNKNOWN:
            lines.append(f"! {name}: {plain(str(one.error))} {plain(one.error.hint if one.error else '')}")
        elif one.error is not None:
            lines.append(f"! {name} does not respond: {plain(one.error.hint or str(one.error))}")
        elif question:
            command = next_step(question, target_of(question, name), name)
            lines.append(f"! {name} asks a person: {title_of(question)}  ({command})")
        elif state_of(one) == WAITING:
            lines.append(f"! {name} waits for a person: {plain(str(one.body.get('why', '')))}  (synapse attach {name})")
        if one.body.get("store_fault"):
            fault = plain(str(one.body["store_fault"]))
            lines.append(f"! {name} refuses messages: {fault}  (synapse restart {name})")
        lines += _task_lines(name, objects_in(one.body, "attention"))
    return lines


def held_lines(asked: list[HostReply]) -> list[str]:
    """The messages that are held for longer than they should, one line for each agent, with what to type."""
    lines: list[str] = []
    for one in asked:
        name, held = short_name(one.entry), overdue_in(one.body)
        # What is in doubt, and what is asked, has its line already.
        if held and held.get("reason") not in (IN_DOUBT, DIALOG):
            lines.append(f"! {name} holds {messages_in(held)}: {why_held(held)}  ({way_out(held, name)})")
    return lines


def _task_lines(name: str, items: list[dict[str, Any]]) -> list[str]:
    """One line for each task that needs a person, but one for all that are held for the same reason."""
    lines: list[str] = []
    held: dict[str, list[str]] = {}
    for item in items:
        if item.get("question_id") or item.get("held"):
            continue  # it has its own line
        task_id, receipt = plain(str(item.get("task_id", ""))[:8]), str(item.get("receipt", "typed"))
        text = plain(str(item.get("text", "")))
        if receipt == QUEUED:
            held.setdefault(text, []).append(task_id)
        else:
            lines.append(f"! {name}, task {task_id}: {text}{decision(task_id, receipt)}")
    return lines + [_held_line(name, text, task_ids) for text, task_ids in held.items()]


def _held_line(name: str, text: str, task_ids: list[str]) -> str:
    first, *more = task_ids
    if not more:
        return f"! {name}, task {first}: {text}{decision(first, QUEUED)}"
    return f"! {name}, {len(task_ids)} messages: {text}  (synapse cancel --queue {name} takes all back)"


def decision(task_id: str, receipt: str) -> str:
    """The same in brackets, for the end of a line."""
    command = what_decides(task_id, receipt)
    effect = " takes it back" if receipt == QUEUED else ""
    return f"  ({command}{effect})" if command else ""


def what_decides(task_id: str, receipt: str) -> str:
    """What to type about a task that needs a person: what was typed is in doubt, what waits can be taken back."""
    if receipt == "typed":
        return f"synapse resolve {task_id} --delivered|--retry|--fail"
    return f"synapse cancel {task_id}" if receipt == QUEUED else ""


def _row(one: HostReply) -> tuple[str, ...]:
    entry = one.entry
    name = f"{entry.name} ({entry.agent_type})" if entry.name else short_name(entry)
    folder = short_path(entry.working_dir)
    return (name, state_of(one).replace("_", " "), str(entry.port or ""), str(entry.pid), _work(one), folder)


def _work(one: HostReply) -> str:
    task = current_task(one.body)
    text = message_of(task).strip().partition("\n")[0] if task else ""
    if text and is_marked(sender_of(task)):
        text = f"{text} [from {sender_of(task)}]"
    waiting, held = one.body.get("queue_depth") or 0, held_in(one.body)
    queued = f"+{waiting} queued" if waiting else ""
    notes = ", ".join(note for note in (queued, f"held: {why_held(held)}" if held else "") if note)
    return f"{text} ({notes})".strip() if notes else text


LEAST_OF_AN_ID = 4
STATUS_EXAMPLES = """
synapse status codex               what it does, and since when
synapse status codex --explain     how that is known: what each source says
synapse status 54241e7e            a task: how far it is, and its answer
"""


def run_status(arguments: list[str]) -> int:
    """Show an agent or a task and return the exit code."""
    parser = VerbParser("status", examples=STATUS_EXAMPLES)
    parser.add_argument("target", nargs="?", metavar="AGENT|TASK", default=os.environ.get(AGENT_VARIABLE, ""))
    parser.add_argument("--explain", action="store_true", help="show what each source says")
    options = parser.parse_args(arguments)
    if not options.target:
        return run_list(["--json"] if options.json else [])
    registry = open_registry()
    found = _agent_or_task(options.target, registry)
    if isinstance(found, HostReply):
        _show_agent(found, explain=options.explain, as_json=options.json)
    else:
        _show_task(*found, as_json=options.json)
    return 0


def _agent_or_task(target: str, registry: FileRegistry) -> HostReply | tuple[AgentEntry, dict[str, Any]]:
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
    return HostReply(entry, ask(entry, "GET", "/status"))


def _show_agent(one: HostReply, *, explain: bool, as_json: bool) -> None:
    if as_json:
        sightings = {"sightings": objects_in(one.body, "sightings")} if explain else {}
        give_json({**as_fields(one), **sightings})
        return
    state, body, entry = state_of(one), one.body, one.entry
    print_result(f"{short_name(entry)}  {painted(state, state)}  since {plain(str(body.get('since', '?')))}")
    print_result(f"  why      {plain(str(body.get('why', '')))}  ({plain(str(body.get('source', '')))})")
    if body.get("gate"):
        print_result(f"  gate     nothing is typed: {plain(str(body['gate']))}")
    place = f"in {entry.gateway}" if entry.gateway else f"port {entry.port}"
    print_result(f"  where    {place}, pid {entry.pid}, {plain(short_path(entry.working_dir))}")
    task = current_task(body)
    if task:
        print_result(
            f"  task     {short_id(task)} from {sender_of(task)}, {receipt_of(task)}: {plain(message_of(task))[:200]}"
        )
    print_result(f"  queue    {body.get('queue_depth', 0)} waiting")
    _show_held(held_in(body), entry)
    for line in attention_lines([one]):
        print_result(f"  {line}")
    for line in question_lines(question_in(body))[1:]:
        print_result(f"    {line}")
    if explain:
        _explain(one)


def _explain(one: HostReply) -> None:
    print_result("  sources, the most trusted first:")
    for sighting in objects_in(one.body, "sightings"):
        won = "→" if sighting.get("source") == one.body.get("source") else " "
        source, state, at = (plain(str(sighting.get(key, ""))) for key in ("source", "state", "at"))
        print_result(f"  {won} {source:<12} {state:<9} {at}  {plain(str(sighting.get('detail', '')))}")


def _show_task(entry: AgentEntry, task: dict[str, Any], *, as_json: bool) -> None:
    held = _held_with(entry, task)
    if as_json:
        give_json({"task": task, "reply": reply_of(task) or None, "receipt": receipt_of(task), "held": held or None})
        return
    where = f"at {short_name(entry)}" + ("" if entry.pid else " (not running)")
    print_result(f"task {task.get('id')}  {status_of(task)}  {where}, from {sender_of(task)}")
    print_result(f"  message  {plain(message_of(task))[:500]}")
    if stands_still(entry):
        print_result(f"  ! {short_name(entry)} does not respond: {standstill(entry)}")
    for line in receipt_lines(task):
        print_result(f"  {plain(line)}")
    _show_held(held, entry)
    if attention_of(task):
        print_result(f"  ! {plain(attention_of(task))}{decision(short_id(task), receipt_of(task))}")
    question = question_of(task)
    if question:
        _show_question(question, short_id(task), short_name(entry))
    elif note_of(task):
        print_result(f"  note     {plain(note_of(task))}")
    if reply_of(task):
        title = "answer" if status_of(task) in FINISHED else "said so far"
        print_result("\n".join([f"  {title}", *(plain(line) for line in reply_of(task).splitlines())]))


def _show_held(held: dict[str, Any], entry: AgentEntry) -> None:
    if held:
        from synapse.config.process import SystemClock

        lasting = how_long(held.get("since"), SystemClock().now())
        print_result(
            f"  held     {messages_in(held)} {lasting}: {why_held(held)}  ({way_out(held, short_name(entry))})"
        )


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
    print_result(f"  asks     {title}  ({next_step(question, target, agent)})")
    for line in rest:
        print_result(f"    {line}")
