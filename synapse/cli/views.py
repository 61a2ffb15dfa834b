"""What a person or a script wants to know of a task, read from the task's JSON. Imports nothing of weight."""

from synapse.core.json_text import object_in, objects_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FINISHED = ("completed", "failed", "canceled")
_RECEIPTS = {"completed": "answered", "failed": "failed", "canceled": "canceled"}


def short_id(task: "dict[str, Any]") -> str:
    """The form of the id that people type."""
    return str(task.get("id", ""))[:8]


def status_of(task: "dict[str, Any]") -> str:
    return str(task.get("status", ""))


def receipt_of(task: "dict[str, Any]") -> str:
    """The last step that the task's message has reached."""
    return str(object_in(task, "metadata").get("receipt") or _RECEIPTS.get(status_of(task), "queued"))


def receipt_lines(task: "dict[str, Any]") -> "list[str]":
    """Each step of the message's way, with its time and evidence."""
    return [_receipt_line(step) for step in objects_in(object_in(task, "metadata"), "receipts")]


def _receipt_line(step: "dict[str, Any]") -> str:
    evidence = f": {step['evidence']}" if step.get("evidence") else ""
    return f"{step.get('step', ''):<13} {step.get('at', '')}  {step.get('source', '')}{evidence}"


def attention_of(task: "dict[str, Any]") -> str:
    """What a person has to decide about the task, or nothing."""
    return str(object_in(task, "metadata").get("attention") or "")


def note_of(task: "dict[str, Any]") -> str:
    """Why the task is in its state, as a sentence, or nothing."""
    return str(object_in(task, "metadata").get("note") or "")


def reason_of(task: "dict[str, Any]") -> str:
    """The same as a stable word, or nothing."""
    return str(object_in(task, "metadata").get("reason") or "")


def sender_of(task: "dict[str, Any]") -> str:
    """Who sent the task, in the words of the header that its message is typed with."""
    from synapse.core.text import typed_sender

    return typed_sender(object_in(task, "metadata"))


def message_of(task: "dict[str, Any]") -> str:
    """The text that opened the task."""
    return _text(object_in(task, "message"))


def reply_of(task: "dict[str, Any]") -> str:
    """What the agent answered: the text of its artifacts, else its last message, else nothing."""
    # An artifact that came in chunks has a part for each: together they are one text.
    texts = [text for artifact in objects_in(task, "artifacts") if (text := "".join(_texts(artifact)))]
    if texts:
        return "\n".join(texts)
    spoken = [message for message in objects_in(task, "history") if message.get("role") == "agent"]
    return _text(spoken[-1]) if spoken else ""


def is_inferred(task: "dict[str, Any]") -> bool:
    """True when the answer is what the agent's turn ended with, not a reply that it sent."""
    return any(object_in(artifact, "metadata").get("inferred") is True for artifact in objects_in(task, "artifacts"))


def _text(holder: "dict[str, Any]") -> str:
    return "\n".join(_texts(holder))


def _texts(holder: "dict[str, Any]") -> "list[str]":
    return [str(part.get("text", "")) for part in objects_in(holder, "parts") if part.get("type") == "text"]
