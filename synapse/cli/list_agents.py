"""`synapse list`: who is here, and what they do. Entries of dead hosts are cleaned away."""

from synapse.cli.hold_view import DIALOG, IN_DOUBT, held_in, messages_in, overdue_in, way_out, why_held
from synapse.cli.hosts import open_gateways, open_registry
from synapse.cli.question_view import next_step, question_in, target_of, title_of
from synapse.cli.render import plain, short_path, table
from synapse.cli.speech import give, give_json, say
from synapse.cli.survey import Asked, ask_all, current_task
from synapse.cli.task_view import message_of, sender_of
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import is_marked, short_name
from synapse.core.agent import WAITING
from synapse.core.errors import ConnectionForbidden
from synapse.core.json_text import objects_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXAMPLES = """
synapse list
synapse list --json | jq -r '.[].agent_id'
"""
NOT_RESPONDING = "not_responding"
UNKNOWN = "unknown"
"""The state of an agent whose host this process may not ask."""
QUEUED = "queued"
TITLES = ("AGENT", "STATE", "PORT", "PID", "WORKING ON", "FOLDER")


def run(arguments: list[str]) -> int:
    """List the agents and return the exit code."""
    options = VerbParser("list", examples=EXAMPLES).parse_args(arguments)
    registry = open_registry()
    asked = ask_all([*registry.entries(), *open_gateways().entries()], "GET", "/status")
    for note in registry.notes:
        say(note)
    if options.json:
        give_json([as_fields(one) for one in asked])
    elif asked:
        give(table(TITLES, [_row(one) for one in asked], elastic=4))
        for line in (*attention_lines(asked), *held_lines(asked)):
            say(line)
    else:
        say("no agent is running; start one with `synapse claude` or `synapse start codex`")
    return 0


def as_fields(one: Asked) -> "dict[str, Any]":
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


def state_of(one: Asked) -> str:
    """The agent's state, or that its host does not answer, or that nobody can tell from here."""
    if one.error is None:
        return str(one.body.get("state") or NOT_RESPONDING)
    return UNKNOWN if isinstance(one.error, ConnectionForbidden) else NOT_RESPONDING


def attention_lines(asked: list[Asked]) -> list[str]:
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


def held_lines(asked: list[Asked]) -> list[str]:
    """The messages that are held for longer than they should, one line for each agent, with what to type."""
    lines: list[str] = []
    for one in asked:
        name, held = short_name(one.entry), overdue_in(one.body)
        # What is in doubt, and what is asked, has its line already.
        if held and held.get("reason") not in (IN_DOUBT, DIALOG):
            lines.append(f"! {name} holds {messages_in(held)}: {why_held(held)}  ({way_out(held, name)})")
    return lines


def _task_lines(name: str, items: "list[dict[str, Any]]") -> list[str]:
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


def _row(one: Asked) -> tuple[str, ...]:
    entry = one.entry
    name = f"{entry.name} ({entry.agent_type})" if entry.name else short_name(entry)
    folder = short_path(entry.working_dir)
    return (name, state_of(one).replace("_", " "), str(entry.port or ""), str(entry.pid), _work(one), folder)


def _work(one: Asked) -> str:
    task = current_task(one.body)
    text = message_of(task).strip().partition("\n")[0] if task else ""
    if text and is_marked(sender_of(task)):
        text = f"{text} [from {sender_of(task)}]"
    waiting, held = one.body.get("queue_depth") or 0, held_in(one.body)
    queued = f"+{waiting} queued" if waiting else ""
    notes = ", ".join(note for note in (queued, f"held: {why_held(held)}" if held else "") if note)
    return f"{text} ({notes})".strip() if notes else text
