"""OpenCode (1.18): the events of its own server tell everything, and hold the answer's text."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    RATE_LIMITED,
    Record,
    Report,
    Told,
    failed,
    items,
    part,
    shortened,
    word,
)

_TOO_MANY_REQUESTS: Final = 429
_END_OF_TIME: Final = 1 << 47
_ABORTED: Final = {"name": "MessageAbortedError"}


@dataclass(slots=True)
class _Conversation:
    """What is known of one session: the turn that runs, and what its assistant has said in it."""

    turn: str = ""
    """The id of the user's message."""
    is_taken: bool = False
    """The prompt's text was seen."""
    is_over: bool = False
    """Its end was told; after an error the server says twice that it is idle."""
    answer: str = ""
    """The id of the assistant's last message; a turn with tools has several."""
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """The parts of that message."""
    is_finished: bool = False
    """That message has come to its own end."""
    error: Record = field(default_factory=dict[str, object])


class OpenCodeEvents:
    """Reads one server's events, in their order."""

    def __init__(self) -> None:
        self._conversations: dict[str, _Conversation] = {}
        self._of_agents: set[str] = set()

    def read(self, event: Record) -> Report | None:
        """Return what an event says of the turn, if anything."""
        given = part(event, "properties")
        session = word(given, "sessionID") or word(given, "info", "id")
        if word(given, "info", "parentID") and word(event, "type").startswith("session."):
            self._of_agents.add(session)
        if not session or session in self._of_agents:
            return None
        return self._read(word(event, "type"), given, self._conversations.setdefault(session, _Conversation()))

    def _read(self, name: str, given: Record, talk: _Conversation) -> Report | None:
        match name:
            case "message.updated":
                _note_message(part(given, "info"), talk)
            case "message.part.updated":
                return _part(part(given, "part"), talk)
            case "session.error":
                talk.error = part(given, "error")
            case "session.status":
                return _status(part(given, "status"), talk)
            case "permission.asked" | "question.asked":
                return _asked(given, talk)
            case "permission.replied" | "question.replied" | "question.rejected":
                return _report(Told.WORKING, "its server says that the question was answered", turn=talk.turn)
            case _:
                pass
        return None


def _note_message(info: Record, talk: _Conversation) -> None:
    if word(info, "role") == "user":
        if word(info, "id") != talk.turn:
            talk.turn, talk.is_taken, talk.is_over = word(info, "id"), False, False
            talk.answer, talk.error = "", {}
            talk.texts.clear()
    elif word(info, "parentID") == talk.turn:
        if word(info, "id") != talk.answer:
            talk.answer = word(info, "id")
            talk.texts.clear()
        talk.error = part(info, "error") or talk.error
        talk.is_finished = bool(word(info, "finish"))


def _part(given: Record, talk: _Conversation) -> Report | None:
    if word(given, "type") != "text" or given.get("synthetic") is True:
        return None
    message, text = word(given, "messageID"), word(given, "text")
    if message == talk.answer:
        talk.texts[word(given, "id")] = text
    elif message == talk.turn and not talk.is_taken:
        talk.is_taken = True
        return _report(Told.SUBMITTED, "its server has the prompt", text, talk.turn)
    return None


def _status(status: Record, talk: _Conversation) -> Report | None:
    match word(status, "type"):
        case "busy":
            return _report(Told.WORKING, "its server says that it works", turn=talk.turn)
        case "retry":
            heard = f"its server tries again{_at(status.get('next'))}: {shortened(word(status, 'message'))}"
            return _report(Told.WORKING, heard, turn=talk.turn)
        case "idle" if talk.turn and not talk.is_over:
            return _ended(talk)
        case _:
            return None


def _at(milliseconds: object) -> str:
    if not isinstance(milliseconds, int) or not 0 < milliseconds < _END_OF_TIME:
        return ""
    return f" at {datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ended(talk: _Conversation) -> Report:
    talk.is_over = True
    if talk.error:
        return _failure(talk.error, talk.turn)
    if talk.answer and not talk.is_finished:
        # It is aborted without an error while it waits to try again.
        return _failure(_ABORTED, talk.turn)
    return _report(Told.ANSWERED, "its server says that it is done", "".join(talk.texts.values()), talk.turn)


def _failure(error: Record, turn: str) -> Report:
    if word(error, "name") == "MessageAbortedError":
        heard = "its server says that the turn was aborted"
        return failed(Source.SIGNAL, INTERRUPTED, "it was interrupted in its terminal", heard=heard, turn=turn)
    note = word(error, "data", "message") or word(error, "name")
    is_limit = part(error, "data").get("statusCode") == _TOO_MANY_REQUESTS
    heard = f"its server says that it failed: {shortened(note)}"
    return failed(Source.SIGNAL, RATE_LIMITED if is_limit else API_ERROR, note, heard=heard, turn=turn)


def _asked(given: Record, talk: _Conversation) -> Report:
    questions = " ".join(filter(None, (word(question, "question") for question in items(given, "questions"))))
    about = word(given, "metadata", "command") or word(given, "metadata", "filepath")
    tool = word(given, "permission") or "permission"
    asked = questions or (f"{tool}: {about}" if about else tool)
    return _report(Told.WAITING, f"its server says what it asks: {shortened(asked)}", asked, talk.turn)


def _report(told: Told, heard: str, text: str = "", turn: str = "") -> Report:
    return Report(told=told, source=Source.SIGNAL, detail=heard, text=text, turn=turn)
