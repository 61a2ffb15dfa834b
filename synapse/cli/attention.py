"""What an agent asks a person, read from the question's JSON, and what to type about it. Imports nothing of weight.

Why messages wait for an agent, read from its host's status, and what to type about it. Imports nothing of weight.
"""

from synapse.cli.tables import plain
from synapse.core.json_text import object_in, objects_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

WAITING_FOR_PERSON = "waiting_for_person"


def question_of(task: "dict[str, Any]") -> "dict[str, Any]":
    """What is asked in the middle of the task's turn, or an empty object."""
    metadata = object_in(task, "metadata")
    return object_in(metadata, "question") if metadata.get("reason") == WAITING_FOR_PERSON else {}


def question_in(status: "dict[str, Any]") -> "dict[str, Any]":
    """What a host's status says that its agent asks, or an empty object."""
    return object_in(status, "question")


def title_of(question: "dict[str, Any]") -> str:
    """The question in one line."""
    return plain(str(question.get("title", "")))


def question_lines(question: "dict[str, Any]") -> "list[str]":
    """All of it: the question, what it is about, and the answers that are offered."""
    told = {explanation(question, one) for one in objects_in(question, "options")} - {""}
    detail = [f"  {plain(line)}" for line in str(question.get("detail", "")).splitlines() if line not in told]
    hint = plain(str(question.get("hint", "")))
    return [title_of(question), *detail, *option_lines(question), *([hint] if hint else [])]


def option_lines(question: "dict[str, Any]") -> "list[str]":
    """The answers that are offered, with what to type for each."""
    lines: list[str] = []
    for one in objects_in(question, "options"):
        key = str(one.get("key"))
        said = explanation(question, one).removeprefix(f"{key}. ") or str(one.get("label"))
        lines.append(f"  {plain(key)}{'.' if key.isdigit() else ':'} {plain(said)}")
    return lines


def explanation(question: "dict[str, Any]", option: "dict[str, Any]") -> str:
    """The line of the detail that says what the option means (`1. main: the default`), or nothing."""
    label = f"{option.get('label')}: "
    begins = (label, f"{option.get('key')}. {label}")
    return next((line for line in str(question.get("detail", "")).splitlines() if line.startswith(begins)), "")


def option_called(question: "dict[str, Any]", name: str) -> str:
    """The key of the option of that key or label, or nothing."""
    wanted = name.strip().lower()
    for field in ("key", "label"):
        for one in objects_in(question, "options"):
            if str(one.get(field, "")).lower() == wanted:
                return str(one.get("key", ""))
    return ""


def what_to_type(question: "dict[str, Any]", target: str) -> "list[str]":
    """The commands that answer it; `target` is the task, or the agent where there is none."""
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
    """What to name when it is answered: the short id of its task, or the agent."""
    return plain(str(question.get("task_id") or "")[:8]) or agent


def next_step(question: "dict[str, Any]", target: str, agent: str) -> str:
    """The commands in one line; a dialog that nothing is known of is answered at the terminal."""
    return " | ".join(what_to_type(question, target)) or f"synapse attach {agent}"


DIALOG = "dialog"
STORE = "store"
IN_DOUBT = "in_doubt"
UNREACHABLE = "unreachable"


def held_in(status: "dict[str, Any]") -> "dict[str, Any]":
    """What a host's status says of messages that wait, or an empty object."""
    return object_in(status, "held")


def overdue_in(status: "dict[str, Any]") -> "dict[str, Any]":
    """The same if they wait for longer than they should."""
    held = held_in(status)
    return held if held.get("overdue") is True else {}


def why_held(held: "dict[str, Any]") -> str:
    """The reason as a sentence."""
    return plain(str(held.get("why", "")))


def messages_in(held: "dict[str, Any]") -> str:
    """`1 message`, `3 messages`."""
    count = held.get("messages", 0)
    return f"{count} message" if count == 1 else f"{count} messages"


def way_out(held: "dict[str, Any]", name: str) -> str:
    """What to do about it."""
    reason = held.get("reason")
    if reason == IN_DOUBT:
        return f"synapse resolve {str(held.get('task_id', ''))[:8]} --delivered|--retry|--fail"
    if reason == UNREACHABLE:
        return "synapse external list"
    if reason == STORE:
        return plain(str(held.get("hint") or "")) or "synapse doctor"
    return f"synapse attach {name}"


def how_long(since: object, now: "datetime") -> str:
    """`for 3m`: seconds, minutes or hours, whichever says it shortest."""
    from datetime import datetime

    try:
        seconds = max(0, int((now - datetime.fromisoformat(str(since))).total_seconds()))
    except (ValueError, TypeError):
        return ""
    if seconds < 60:
        return f"for {seconds}s"
    return f"for {seconds // 60}m" if seconds < 3600 else f"for {seconds // 3600}h"
