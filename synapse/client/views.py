"""Reads what people and models see of a task or an agent from its JSON. Light: `synapse send` imports it."""

from synapse.core.json_text import object_in, objects_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FINISHED = ("completed", "failed", "canceled")
ASKS = "input_required"
WAITING_FOR_PERSON = "waiting_for_person"
_RECEIPTS = {"completed": "answered", "failed": "failed", "canceled": "canceled"}


def short_id(task: "dict[str, Any]") -> str:
    """Returns the first eight characters of the id, which people type."""
    return str(task.get("id", ""))[:8]


def status_of(task: "dict[str, Any]") -> str:
    return str(task.get("status", ""))


def receipt_of(task: "dict[str, Any]") -> str:
    """Returns the last receipt step that the task's message has reached."""
    return str(object_in(task, "metadata").get("receipt") or _RECEIPTS.get(status_of(task), "queued"))


def receipt_lines(task: "dict[str, Any]", show_time: "Callable[[object], str]" = str) -> "list[str]":
    """Returns a line for each receipt step, with its time, as `show_time` says it, and its evidence."""
    return [
        f"{step.get('step', ''):<13} {show_time(step.get('at', ''))}  {proof_of(step)}"
        for step in objects_in(object_in(task, "metadata"), "receipts")
    ]


def proof_of(step: "dict[str, Any]") -> str:
    """Returns what proves a receipt step: its source and the evidence."""
    evidence = f": {step['evidence']}" if step.get("evidence") else ""
    return f"{step.get('source', '')}{evidence}"


def ended_at(task: "dict[str, Any]") -> str:
    """Returns when the task ended; its `updated_at` may be later, as when the answer was passed on."""
    receipts = objects_in(object_in(task, "metadata"), "receipts")
    return str((receipts[-1].get("at") if receipts else None) or task.get("updated_at") or "")


def is_answered(task: "dict[str, Any]") -> bool:
    """Returns whether the task has ended or asks its sender. A question to a person does not end the wait."""
    return status_of(task) in FINISHED or (status_of(task) == ASKS and not question_of(task))


def has_left(task: "dict[str, Any]") -> bool:
    """Returns whether the answer of a waiting task is delivered as a message, because its waiter had left."""
    return object_in(task, "metadata").get("waiter_left") is True


def question_of(task: "dict[str, Any]") -> "dict[str, Any]":
    """Returns the open question of the task's turn to a person, or an empty object."""
    metadata = object_in(task, "metadata")
    return object_in(metadata, "question") if metadata.get("reason") == WAITING_FOR_PERSON else {}


def attention_of(task: "dict[str, Any]") -> str:
    """Returns what a person has to decide about the task, or an empty string."""
    return str(object_in(task, "metadata").get("attention") or "")


def note_of(task: "dict[str, Any]") -> str:
    """Returns why the task is in its state, as a sentence, or an empty string."""
    return str(object_in(task, "metadata").get("note") or "")


def reason_of(task: "dict[str, Any]") -> str:
    """Returns the reason code of the task's state, or an empty string."""
    return str(object_in(task, "metadata").get("reason") or "")


def sender_of(task: "dict[str, Any]") -> str:
    """Returns the sender as the envelope of the typed message names it."""
    from synapse.core.text import sender_name

    metadata = object_in(task, "metadata")
    sender, verified = object_in(metadata, "sender"), metadata.get("sender_verified") is True
    return sender_name(str(sender.get("sender_id") or ""), verified=verified, user=str(metadata.get("user") or ""))


def message_of(task: "dict[str, Any]") -> str:
    """Returns the text of the message that opened the task."""
    return _text(object_in(task, "message"))


def reply_of(task: "dict[str, Any]") -> str:
    """Returns the agent's answer: the text of its artifacts, else of its last message, else an empty string."""
    # An artifact that arrived in chunks has one part per chunk; joined, they are one text.
    texts = [text for artifact in objects_in(task, "artifacts") if (text := "".join(_texts(artifact)))]
    if texts:
        return "\n".join(texts)
    spoken = [message for message in objects_in(task, "history") if message.get("role") == "agent"]
    return _text(spoken[-1]) if spoken else ""


def tools_of(status: "dict[str, Any]") -> str:
    """Returns how the model of an agent reaches others, and why not better; empty for an agent without a CLI."""
    tools = object_in(status, "tools")
    if not tools.get("since"):
        return ""  # also for a host of a version that does not say it
    if tools.get("way") == "mcp":
        client, protocol = str(tools.get("client") or "its CLI"), str(tools.get("protocol") or "")
        return f"by MCP, in {client}" + (f" (version {protocol})" if protocol else "")
    way = "by shell commands only" if tools.get("way") == "shell" else "none"
    return f"{way}: {tools.get('why') or 'unknown'}"


def conversation_of(status: "dict[str, Any]") -> str:
    """Returns whether an agent goes on with the conversation of its last run; empty if nothing is to be said of it."""
    told = object_in(status, "conversation")
    if told.get("resumed"):
        return "goes on with its last one"
    return f"begun anew: {told['why']}" if told.get("why") else ""


def is_inferred(task: "dict[str, Any]") -> bool:
    """Returns whether the answer was taken from the end of the agent's turn instead of a reply that it sent."""
    return any(object_in(artifact, "metadata").get("inferred") is True for artifact in objects_in(task, "artifacts"))


def _text(holder: "dict[str, Any]") -> str:
    return "\n".join(_texts(holder))


def _texts(holder: "dict[str, Any]") -> "list[str]":
    return [str(part.get("text", "")) for part in objects_in(holder, "parts") if part.get("type") == "text"]
