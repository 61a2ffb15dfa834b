"""Reads the rollout file of Codex (0.166), which reports everything but a permission request.

Codex reports that by OSC 7501 (state=blocked).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    INTERRUPTED_IN_TERMINAL,
    RATE_LIMITED,
    Record,
    SignalKind,
    SignalReport,
    error_sentence,
    failed,
    shortened,
    table_at,
    tables_at,
    text_at,
)

_LIMITS: Final = ("usagelimit", "ratelimit", "quota", "httpstatuscode429")


def read_record(record: Record) -> SignalReport | None:
    """Returns the report of a line of the rollout; None if it is not about the turn."""
    if record.get("type") != "event_msg":
        return None
    event = table_at(record, "payload")
    read = _READERS.get(text_at(event, "type"))
    return None if read is None else read(event, text_at(event, "turn_id"))


def is_conversation(record: Record) -> bool:
    """Returns whether this is the first line of a person's own conversation; sub-agents have rollouts too."""
    source: object = table_at(record, "payload").get("source")
    return record.get("type") == "session_meta" and not isinstance(source, Mapping)


def is_limit(info: object) -> bool:
    """Returns whether an error's own name means a usage or rate limit, in old and new spellings."""
    letters = "".join(filter(str.isalnum, json.dumps(info))).lower()
    return any(limit in letters for limit in _LIMITS)


def thread_of(record: Record) -> str:
    """Returns the id of the conversation that begins with this line."""
    return text_at(record, "payload", "id")


def working_dir(record: Record) -> str:
    """Returns the working folder of the conversation that begins with this line."""
    return text_at(record, "payload", "cwd")


def _begun(_event: Record, turn: str) -> SignalReport | None:
    return _report(SignalKind.WORKING, "its rollout says that a turn has begun", turn=turn)


def _item(event: Record, turn: str) -> SignalReport | None:
    item = table_at(event, "item")
    if text_at(item, "type") != "UserMessage":
        return None
    return _submitted("\n".join(text_at(content, "text") for content in tables_at(item, "content")), turn)


def _user_message(event: Record, turn: str) -> SignalReport | None:
    """Reads the prompt as versions before 0.166 write it."""
    return _submitted(text_at(event, "message"), turn)


def _submitted(prompt: str, turn: str) -> SignalReport:
    return _report(SignalKind.SUBMITTED, "its rollout has the prompt", prompt, turn)


def _complete(event: Record, turn: str) -> SignalReport | None:
    error = table_at(event, "error")
    if not error:
        answer = text_at(event, "last_agent_message")
        return _report(SignalKind.ANSWERED, "its rollout says that it is done", answer, turn)
    note = error_sentence(text_at(error, "message"))
    reason = RATE_LIMITED if is_limit(error.get("codex_error_info")) else API_ERROR
    detail = f"its rollout says that it failed: {shortened(note)}"
    return failed(Source.TRANSCRIPT, reason, note, detail=detail, turn=turn)


def _aborted(event: Record, turn: str) -> SignalReport | None:
    detail = f"its rollout says that the turn was aborted: {text_at(event, 'reason') or 'no reason'}"
    return failed(Source.TRANSCRIPT, INTERRUPTED, INTERRUPTED_IN_TERMINAL, detail=detail, turn=turn)


def _report(kind: SignalKind, detail: str, text: str = "", turn: str = "") -> SignalReport:
    return SignalReport(kind=kind, source=Source.TRANSCRIPT, detail=detail, text=text, turn=turn)


_READERS: Final[dict[str, Callable[[Record, str], SignalReport | None]]] = {
    "task_started": _begun,
    "item_completed": _item,
    "user_message": _user_message,
    "task_complete": _complete,
    "turn_aborted": _aborted,
}
