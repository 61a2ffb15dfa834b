"""Why messages wait for an agent, read from its host's status, and what to type about it. Imports nothing of weight."""

from synapse.cli.render import plain
from synapse.core.json_text import object_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

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
