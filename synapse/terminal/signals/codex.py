"""Codex (0.166): its rollout file tells everything but a permission request, which OSC 7501 tells (state=blocked)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    RATE_LIMITED,
    Record,
    SignalKind,
    SignalReport,
    error_sentence,
    failed,
    items,
    part,
    shortened,
    word,
)

_LIMITS: Final = ("usagelimit", "ratelimit", "quota", "httpstatuscode429")


def read_record(record: Record) -> SignalReport | None:
    """Return what a line of the rollout says of the turn, if anything."""
    if record.get("type") != "event_msg":
        return None
    event = part(record, "payload")
    read = _READERS.get(word(event, "type"))
    return None if read is None else read(event, word(event, "turn_id"))


def is_conversation(record: Record) -> bool:
    """True for the first line of a rollout that a person's own conversation has; sub-agents have theirs too."""
    source: object = part(record, "payload").get("source")
    return record.get("type") == "session_meta" and not isinstance(source, Mapping)


def is_limit(info: object) -> bool:
    """True if its own name of an error says that the model's server wants to be asked less; old and new spellings."""
    letters = "".join(filter(str.isalnum, json.dumps(info))).lower()
    return any(limit in letters for limit in _LIMITS)


def working_dir(record: Record) -> str:
    """Where the conversation of this first line takes place."""
    return word(record, "payload", "cwd")


def _report(told: SignalKind, heard: str, text: str = "", turn: str = "") -> SignalReport:
    return SignalReport(told=told, source=Source.TRANSCRIPT, detail=heard, text=text, turn=turn)


def _begun(_event: Record, turn: str) -> SignalReport | None:
    return _report(SignalKind.WORKING, "its rollout says that a turn has begun", turn=turn)


def _item(event: Record, turn: str) -> SignalReport | None:
    item = part(event, "item")
    if word(item, "type") != "UserMessage":
        return None
    return _taken("\n".join(word(content, "text") for content in items(item, "content")), turn)


def _user_message(event: Record, turn: str) -> SignalReport | None:
    """How versions before the one that this was read on have it."""
    return _taken(word(event, "message"), turn)


def _taken(prompt: str, turn: str) -> SignalReport:
    return _report(SignalKind.SUBMITTED, "its rollout has the prompt", prompt, turn)


def _complete(event: Record, turn: str) -> SignalReport | None:
    if error := part(event, "error"):
        return _failure(error, turn)
    return _report(SignalKind.ANSWERED, "its rollout says that it is done", word(event, "last_agent_message"), turn)


def _aborted(event: Record, turn: str) -> SignalReport | None:
    heard = f"its rollout says that the turn was aborted: {word(event, 'reason') or 'no reason'}"
    return failed(Source.TRANSCRIPT, INTERRUPTED, "it was interrupted in its terminal", heard=heard, turn=turn)


_READERS: Final[dict[str, Callable[[Record, str], SignalReport | None]]] = {
    "task_started": _begun,
    "item_completed": _item,
    "user_message": _user_message,
    "task_complete": _complete,
    "turn_aborted": _aborted,
}


def _failure(error: Record, turn: str) -> SignalReport:
    note = error_sentence(word(error, "message"))
    reason = RATE_LIMITED if is_limit(error.get("codex_error_info")) else API_ERROR
    heard = f"its rollout says that it failed: {shortened(note)}"
    return failed(Source.TRANSCRIPT, reason, note, heard=heard, turn=turn)
