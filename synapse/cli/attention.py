"""Reads what needs a person (questions, held messages) from a host's JSON, and names the command to type.

`synapse list` uses it, so it imports nothing heavy.
"""

from synapse.cli.tables import plain
from synapse.core.json_text import object_in, objects_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

DIALOG = "dialog"
STORE = "store"
IN_DOUBT = "in_doubt"
UNREACHABLE = "unreachable"


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
    """Returns what an answer names: the short id of the question's task, or the agent."""
    return plain(str(question.get("task_id") or "")[:8]) or agent


def next_step(question: "dict[str, Any]", target: str, agent: str) -> str:
    """Returns the commands that answer the question, in one line; `synapse attach` for an unknown dialog."""
    return " | ".join(answer_commands(question, target)) or f"synapse attach {agent}"


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
        return f"synapse resolve {str(held.get('task_id', ''))[:8]} --delivered|--retry|--fail"
    if reason == UNREACHABLE:
        return "synapse external list"
    if reason == STORE:
        return plain(str(held.get("hint") or "")) or "synapse doctor"
    return f"synapse attach {name}"


def how_long(since: object, now: "datetime") -> str:
    """Returns the time since then in seconds, minutes or hours, as `for 3m`."""
    from datetime import datetime

    try:
        seconds = max(0, int((now - datetime.fromisoformat(str(since))).total_seconds()))
    except (ValueError, TypeError):
        return ""
    if seconds < 60:
        return f"for {seconds}s"
    return f"for {seconds // 60}m" if seconds < 3600 else f"for {seconds // 3600}h"
