"""Reads the events of a Copilot CLI (1.0.102) session, a file of JSON lines that reports everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from synapse.core.question import Question, QuestionKind
from synapse.core.text import safe_line, safe_lines
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    INTERRUPTED_IN_TERMINAL,
    RATE_LIMITED,
    Record,
    SignalKind,
    SignalReport,
    failed,
    shortened,
    table_at,
    tables_at,
    text_at,
)

_QUESTION_TOOL: Final = "ask_user"
_LIMITS: Final = ("rate_limit", "quota")
_OF_TURNS: Final = ("user.message", "assistant.message", "assistant.turn_end")
_SUBJECTS: Final = ("fullCommandText", "fileName", "path", "url")
"""Where a permission request says what it is about."""


class CopilotEvents:
    """Reads the events of one session, in order."""

    def __init__(self) -> None:
        self._turn = ""
        self._answer: str | None = None
        """The last message, unless it called a tool."""
        self._question = ""
        """The id of the tool call that asks a person."""
        self._requests: dict[str, SignalReport] = {}
        """The permissions that it waits for, in order."""
        self._readers: dict[str, Callable[[Record], SignalReport | None]] = {
            "user.message": self._submitted,
            "assistant.message": self._said,
            "assistant.turn_end": self._ended,
            "permission.requested": self._permission_asked,
            "permission.completed": self._permission_given,
            "tool.execution_start": self._tool_started,
            "tool.execution_complete": self._tool_ended,
            "abort": self._aborted,
            "session.error": self._broken,
        }

    def read(self, event: Record) -> SignalReport | None:
        """Returns the report of an event; None if it is not about the turn."""
        if text_at(event, "agentId") and text_at(event, "type") in _OF_TURNS:
            # A sub-agent has turns of its own; only its questions are the person's.
            return None
        read = self._readers.get(text_at(event, "type"))
        return None if read is None else read(table_at(event, "data"))

    def _submitted(self, data: Record) -> SignalReport | None:
        self._turn, self._answer = text_at(data, "interactionId"), None
        self._requests.clear()
        return self._report(SignalKind.SUBMITTED, "its events have the prompt", text_at(data, "content"))

    def _said(self, data: Record) -> SignalReport | None:
        # A sub-agent's message is the result of the tool that called it.
        if not text_at(data, "parentToolCallId"):
            self._answer = None if tables_at(data, "toolRequests") else text_at(data, "content")
        return None

    def _ended(self, _data: Record) -> SignalReport | None:
        """Ends our turn with the model's, unless that called a tool. After an abort or an error there is no message."""
        answer, self._answer = self._answer, None
        return None if answer is None else self._report(SignalKind.ANSWERED, "its events say that it is done", answer)

    def _permission_asked(self, data: Record) -> SignalReport | None:
        request, request_id = table_at(data, "permissionRequest"), text_at(data, "requestId")
        kind = text_at(request, "kind") or "permission"
        subject = next((value for key in _SUBJECTS if (value := text_at(request, key))), "")
        about = "\n".join(filter(None, (text_at(request, "intention"), subject)))
        question = Question(id=request_id, kind=QuestionKind.PERMISSION, title="", detail=safe_lines(about))
        self._requests[request_id] = self._asks(f"{kind}: {subject}" if subject else kind, question)
        # Only one dialog is shown at a time.
        return self._requests[request_id] if len(self._requests) == 1 else None

    def _permission_given(self, data: Record) -> SignalReport | None:
        self._requests.pop(text_at(data, "requestId"), None)
        return next(iter(self._requests.values()), None) or self._resumed()

    def _resumed(self) -> SignalReport:
        return self._report(SignalKind.WORKING, "its events say that the question was answered")

    def _tool_started(self, data: Record) -> SignalReport | None:
        if text_at(data, "toolName") != _QUESTION_TOOL:
            return None
        self._question = text_at(data, "toolCallId")
        asked = text_at(data, "arguments", "question") or text_at(data, "arguments", "message")
        return self._asks(asked, Question(id=self._question, kind=QuestionKind.CHOICE, title=safe_line(asked)))

    def _tool_ended(self, data: Record) -> SignalReport | None:
        return self._resumed() if text_at(data, "toolCallId") == self._question != "" else None

    def _aborted(self, _data: Record) -> SignalReport | None:
        return self._failed(INTERRUPTED, INTERRUPTED_IN_TERMINAL)

    def _broken(self, data: Record) -> SignalReport | None:
        is_limit = text_at(data, "errorType") in _LIMITS
        return self._failed(RATE_LIMITED if is_limit else API_ERROR, text_at(data, "message"))

    def _asks(self, asked: str, question: Question) -> SignalReport:
        detail = f"its events say what it asks: {shortened(asked)}"
        return replace(self._report(SignalKind.WAITING, detail, asked), question=question)

    def _failed(self, reason: str, note: str) -> SignalReport:
        detail = f"its events say how it ended: {shortened(note)}"
        return failed(Source.TRANSCRIPT, reason, note, detail=detail, turn=self._turn)

    def _report(self, kind: SignalKind, detail: str, text: str = "") -> SignalReport:
        return SignalReport(kind=kind, source=Source.TRANSCRIPT, detail=detail, text=text, turn=self._turn)
