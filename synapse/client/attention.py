"""Reads what needs a person (questions, held messages) from a host's JSON, and names the command to type.

`synapse list` uses it, so it imports nothing heavy.
"""

from synapse.client.lines import plain
from synapse.client.times import lasting
from synapse.client.views import FINISHED, status_of
from synapse.core.address import short_name, split_machine
from synapse.core.agent import WAITING, AgentEntry
from synapse.core.errors import ConnectionForbidden
from synapse.core.json_text import object_in, objects_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from synapse.core.errors import SynapseError

DIALOG = "dialog"
"""The kind of a dialog that is on the screen but not understood, and the reason of messages held by one."""
STORE = "store"
IN_DOUBT = "in_doubt"
UNREACHABLE = "unreachable"
TOOLS = "tools"
HELD = "held"
"""The kind of messages that have been held for too long."""
TYPED = "typed"
QUEUED = "queued"
NOT_RESPONDING = "not_responding"
UNKNOWN = "unknown"
"""The state of an agent whose host this process is not allowed to connect to."""
ATTACH_AFTER = "attach_after"
"""In the status of an agent on another machine: the command there that allows this machine to attach, until it may. The
link of this machine puts it there."""


def agent_state_of(status: "dict[str, Any]", error: "SynapseError | None") -> str:
    """Returns the agent's state in its host's status; NOT_RESPONDING or UNKNOWN if the host did not answer."""
    if error is None:
        return str(status.get("state") or NOT_RESPONDING)
    return UNKNOWN if isinstance(error, ConnectionForbidden) else NOT_RESPONDING


def needs_of(entry: AgentEntry, status: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Returns what an agent needs a person for: its question, messages in doubt, held messages.

    Each is an object of `synapse approvals --json`.
    """
    asks = question_in(status) or status.get("state") == WAITING
    items = [_question_fields(entry, status, question_in(status))] if asks else []
    items += [_question_fields(entry, status, question) for question in own_questions_in(status)]
    items += [
        _task_fields(entry, item)
        for item in objects_in(status, "attention")
        # Questions and held messages have objects of their own.
        if not item.get("question_id") and not item.get("held")
    ]
    held = overdue_in(status)
    if held and held.get("reason") != IN_DOUBT and not (asks and held.get("reason") == DIALOG):
        items.append(_held_fields(entry, held))
    return items


def _question_fields(entry: AgentEntry, status: "dict[str, Any]", question: "dict[str, Any]") -> "dict[str, Any]":
    name = short_name(entry)
    return {
        "agent_id": entry.agent_id,
        "name": name,
        "task_id": (question.get("task_id") if question else _running_task(status)) or None,
        "kind": question.get("kind", DIALOG),
        "title": question.get("title") or status.get("why", ""),
        "asked_at": question.get("asked_at") or status.get("since"),
        "next": next_step(question, target_of(question, name), name) if question else attach_step(status, name),
        "question": question or None,
    }


def _running_task(status: "dict[str, Any]") -> str:
    """Returns the id of the task in whose turn an unknown dialog opened, or an empty string."""
    task = object_in(status, "current_task")
    return str(task.get("id", "")) if task and status_of(task) not in FINISHED else ""


def _task_fields(entry: AgentEntry, item: "dict[str, Any]") -> "dict[str, Any]":
    receipt, task_id, short_id = str(item.get("receipt", TYPED)), str(item.get("task_id", "")), short_task_id(item)
    return {
        "agent_id": entry.agent_id,
        "name": short_name(entry),
        "task_id": task_id or None,
        "kind": IN_DOUBT if receipt == TYPED else HELD,
        "title": item.get("text", ""),
        "asked_at": None,
        "next": resolving_command(short_id, receipt) or _look_at(short_id),
        "question": None,
    }


def _held_fields(entry: AgentEntry, held: "dict[str, Any]") -> "dict[str, Any]":
    return {
        "agent_id": entry.agent_id,
        "name": short_name(entry),
        "task_id": held.get("task_id") or None,
        "kind": HELD,
        "title": f"{messages_in(held)} held: {held.get('why', '')}",
        "asked_at": held.get("since"),
        "next": release_step(held, short_name(entry)),
        "question": None,
    }


def question_in(status: "dict[str, Any]") -> "dict[str, Any]":
    """Returns the open question in a host's status, or an empty object."""
    return object_in(status, "question")


def own_questions_in(status: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Returns the open questions that the agent itself asks people, from a host's status."""
    return objects_in(status, "questions")


def title_of(question: "dict[str, Any]") -> str:
    """Returns the question in one line."""
    return plain(str(question.get("title", "")))


def question_lines(question: "dict[str, Any]") -> "list[str]":
    """Returns the question, its detail and its options as lines."""
    explained = {explanation(question, one) for one in objects_in(question, "options")} - {""}
    detail = [f"  {plain(line)}" for line in str(question.get("detail", "")).splitlines() if line not in explained]
    hint = plain(str(question.get("hint", "")))
    return [title_of(question), *detail, *option_lines(question), *([hint] if hint else [])]


def option_lines(question: "dict[str, Any]") -> "list[str]":
    """Returns a line for each option: its key and its text."""
    lines: list[str] = []
    for one in objects_in(question, "options"):
        key = str(one.get("key"))
        text = explanation(question, one).removeprefix(f"{key}. ") or str(one.get("label"))
        lines.append(f"  {plain(key)}{'.' if key.isdigit() else ':'} {plain(text)}")
    return lines


def explanation(question: "dict[str, Any]", option: "dict[str, Any]") -> str:
    """Returns the line of the detail that explains the option (`1. main: the default`), or an empty string."""
    label = f"{option.get('label')}: "
    begins = (label, f"{option.get('key')}. {label}")
    return next((line for line in str(question.get("detail", "")).splitlines() if line.startswith(begins)), "")


def find_option(question: "dict[str, Any]", name: str) -> str:
    """Returns the key of the option with that key or label, or an empty string."""
    wanted = name.strip().lower()
    for field in ("key", "label"):
        for one in objects_in(question, "options"):
            if str(one.get(field, "")).lower() == wanted:
                return str(one.get("key", ""))
    return ""


def answer_commands(question: "dict[str, Any]", target: str) -> "list[str]":
    """Returns the commands that answer the question; `target` is its task, or the agent if it has none."""
    options = objects_in(question, "options")
    leanings = {str(one.get("leaning")) for one in options}
    commands: list[str] = []
    if leanings & {"allow", "allow_always"}:
        commands.append(f"synapse approve {target}")
    if "deny" in leanings:
        commands.append(f"synapse deny {target}")
    if question.get("takes_text") is True:
        commands.append(f'synapse answer {target} "…"')
    if options and not leanings <= {"allow", "deny"}:
        commands.append(f"synapse answer {target} OPTION")
    return commands


def target_of(question: "dict[str, Any]", agent: str) -> str:
    """Returns what an answer names: the short id of the question's task, or the agent.

    On another machine it is always the agent: that machine can tell the id of a task of this one, whose question would
    be answered then.
    """
    return agent if split_machine(agent)[1] else short_task_id(question) or agent


def short_task_id(item: "dict[str, Any]") -> str:
    """Returns the short id of the task in a part of a status, or an empty string.

    It goes into commands for people to type, and may come from another machine: only letters of ids are left in it.
    """
    return "".join(char for char in str(item.get("task_id") or "")[:8] if char.isalnum() or char in "-_")


def step_elsewhere(item: "dict[str, Any]", agent: str) -> str:
    """Returns the command for an object of `needs_of` of another machine, without a question.

    One that Synapse does not give is not shown: people would type here what that machine has made up.
    """
    task_id, step = short_task_id(item), str(item.get("next", ""))
    known = (resolving_command(task_id, TYPED), resolving_command(task_id, QUEUED), _look_at(task_id))
    return step if task_id and step in known else f"synapse attach {agent}"


def _look_at(task_id: str) -> str:
    return f"synapse status {task_id}"


def next_step(question: "dict[str, Any]", target: str, agent: str) -> str:
    """Returns the commands that answer the question, in one line; `synapse attach` for an unknown dialog."""
    return " | ".join(answer_commands(question, target)) or f"synapse attach {agent}"


def attach_step(status: "dict[str, Any]", agent: str) -> str:
    """Returns the command that opens the agent's terminal, or first the one that allows it on the agent's machine."""
    allow = plain(str(status.get(ATTACH_AFTER) or ""))
    return f"on {split_machine(agent)[1]}: {allow}" if allow else f"synapse attach {agent}"


def held_in(status: "dict[str, Any]") -> "dict[str, Any]":
    """Returns why messages are held, from a host's status, or an empty object."""
    return object_in(status, "held")


def overdue_in(status: "dict[str, Any]") -> "dict[str, Any]":
    """Returns `held_in` if the messages have been held for too long, else an empty object."""
    held = held_in(status)
    return held if held.get("overdue") is True else {}


def why_held(held: "dict[str, Any]") -> str:
    """Returns why messages are held, as a sentence."""
    return plain(str(held.get("why", "")))


def messages_in(held: "dict[str, Any]") -> str:
    """Returns the number of held messages: `1 message`, `3 messages`."""
    count = held.get("messages", 0)
    return f"{count} message" if count == 1 else f"{count} messages"


def release_step(held: "dict[str, Any]", name: str) -> str:
    """Returns the command that releases held messages, or a hint."""
    reason = held.get("reason")
    if reason == IN_DOUBT:
        return resolving_command(short_task_id(held), TYPED)
    if reason == UNREACHABLE:
        return "synapse external list"
    if reason == TOOLS:
        return "a few seconds at most"
    machine = split_machine(name)[1]
    if reason == STORE and machine:
        return f"on {machine}: synapse doctor"
    if reason == STORE:
        return plain(str(held.get("hint") or "")) or "synapse doctor"
    return f"synapse attach {name}"


def resolving_command(task_id: str, receipt: str) -> str:
    """Returns the command for a task that needs a person: resolve a typed message, cancel a queued one."""
    if receipt == TYPED:
        return f"synapse resolve {task_id} --delivered|--retry|--fail"
    return f"synapse cancel {task_id}" if receipt == QUEUED else ""


def how_long(since: object, now: "datetime") -> str:
    """Returns the time since then, as `for 3m`; empty when it is unknown."""
    length = lasting(since, now)
    return f"for {length}" if length else ""
