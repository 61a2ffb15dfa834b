"""Reads the chat file of Gemini CLI (0.61): prompts, answers and failures, but not the end of a turn.

A message that calls a tool looks like the last one until the tool has run. So the last message becomes the answer once
the terminal shows that the agent is ready again (`conclude`).
"""

from __future__ import annotations

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
    tables_at,
    text_at,
)

_CANCELLED: Final = "Request cancelled."
_SESSION_CONTEXT: Final = "<session_context>"
_ERROR_PREFIX: Final = "[API Error: "
_LIMITS: Final = ("429", "RESOURCE_EXHAUSTED", "quota", "rate limit")


class GeminiChat:
    """Reads the records of one chat, in order."""

    def __init__(self) -> None:
        self._turn = ""
        self._answer = ""
        self._calls_tool = False

    def read(self, record: Record) -> SignalReport | None:
        """Returns the report of a record; None if it is not about the turn."""
        match text_at(record, "type"):
            case "user":
                return self._user(record)
            case "gemini":
                self._answer, self._calls_tool = text_at(record, "content"), bool(tables_at(record, "toolCalls"))
                return None
            case "info" if text_at(record, "content") == _CANCELLED:
                return self._failed(INTERRUPTED, INTERRUPTED_IN_TERMINAL)
            case "error":
                note = error_sentence(text_at(record, "content").removeprefix(_ERROR_PREFIX).removesuffix("]"))
                is_limit = any(limit in text_at(record, "content") for limit in _LIMITS)
                return self._failed(RATE_LIMITED if is_limit else API_ERROR, note)
            case _:
                return None

    def conclude(self) -> SignalReport | None:
        """Returns the last message, if any, as the answer; called once the terminal shows that the agent is ready."""
        if not self._turn or not self._answer or self._calls_tool:
            return None
        turn, self._turn = self._turn, ""
        return _report(SignalKind.ANSWERED, "its chat has the answer", self._answer, turn)

    def _user(self, record: Record) -> SignalReport | None:
        texts = [text for content in tables_at(record, "content") if (text := text_at(content, "text"))]
        if not texts:
            # The result of a tool; the model continues.
            self._answer, self._calls_tool = "", False
            return None
        if texts[0].startswith(_SESSION_CONTEXT):
            # Context for the model at the start of a conversation; after a denial it is written again.
            return None
        self._turn, self._answer, self._calls_tool = text_at(record, "id"), "", False
        return _report(SignalKind.SUBMITTED, "its chat has the prompt", "\n".join(texts), self._turn)

    def _failed(self, reason: str, note: str) -> SignalReport | None:
        if not self._turn:
            return None
        turn, self._turn = self._turn, ""
        detail = f"its chat says how it ended: {shortened(note)}"
        return failed(Source.TRANSCRIPT, reason, note, detail=detail, turn=turn)


def _report(kind: SignalKind, detail: str, text: str, turn: str) -> SignalReport:
    return SignalReport(kind=kind, source=Source.TRANSCRIPT, detail=detail, text=text, turn=turn)
