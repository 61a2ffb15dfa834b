"""Gemini CLI (0.61): its chat file has the prompts, the answers and how a turn failed, but not when one has ended.

A message that calls a tool looks like the last one until the tool has run. So what was said last becomes the answer
when the terminal shows that the agent is ready again (`conclude`).
"""

from __future__ import annotations

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
    shortened,
    word,
)

_CANCELLED: Final = "Request cancelled."
_SETTING_UP: Final = "<session_context>"
_ERROR_PREFIX: Final = "[API Error: "
_LIMITS: Final = ("429", "RESOURCE_EXHAUSTED", "quota", "rate limit")


class GeminiChat:
    """Reads one chat's records, in their order."""

    def __init__(self) -> None:
        self._turn = ""
        self._answer = ""
        self._calls_tool = False

    def read(self, record: Record) -> SignalReport | None:
        """Return what a record says of the turn, if anything."""
        match word(record, "type"):
            case "user":
                return self._user(record)
            case "gemini":
                self._answer, self._calls_tool = word(record, "content"), bool(items(record, "toolCalls"))
                return None
            case "info" if word(record, "content") == _CANCELLED:
                return self._failed(INTERRUPTED, "it was interrupted in its terminal")
            case "error":
                note = error_sentence(word(record, "content").removeprefix(_ERROR_PREFIX).removesuffix("]"))
                is_limit = any(limit in word(record, "content") for limit in _LIMITS)
                return self._failed(RATE_LIMITED if is_limit else API_ERROR, note)
            case _:
                return None

    def conclude(self) -> SignalReport | None:
        """The terminal shows that it is ready: what it said last is its answer, if it said anything."""
        if not self._turn or not self._answer or self._calls_tool:
            return None
        turn, self._turn = self._turn, ""
        return self._report(SignalKind.ANSWERED, "its chat has the answer", self._answer, turn)

    def _user(self, record: Record) -> SignalReport | None:
        texts = [text for content in items(record, "content") if (text := word(content, "text"))]
        if not texts:
            # The result of a tool; the model goes on.
            self._answer, self._calls_tool = "", False
            return None
        if texts[0].startswith(_SETTING_UP):
            # What it tells the model at the start of a conversation; after a no it writes that down again.
            return None
        self._turn, self._answer, self._calls_tool = word(record, "id"), "", False
        return self._report(SignalKind.SUBMITTED, "its chat has the prompt", "\n".join(texts), self._turn)

    def _failed(self, reason: str, note: str) -> SignalReport | None:
        if not self._turn:
            return None
        turn, self._turn = self._turn, ""
        heard = f"its chat says how it ended: {shortened(note)}"
        return failed(Source.TRANSCRIPT, reason, note, heard=heard, turn=turn)

    def _report(self, told: SignalKind, heard: str, text: str, turn: str) -> SignalReport:
        return SignalReport(told=told, source=Source.TRANSCRIPT, detail=heard, text=text, turn=turn)
