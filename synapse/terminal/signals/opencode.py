"""Reads the events of OpenCode's own server (1.18), and answers its questions.

The events report everything, with the answer's text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any, Final, cast

from synapse.core.question import Choice, OptionEffect, Question, QuestionKind
from synapse.core.text import safe_line, safe_lines
from synapse.terminal.evidence import Source
from synapse.terminal.picture import Picture
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    INTERRUPTED_IN_TERMINAL,
    RATE_LIMITED,
    SEVERAL_QUESTIONS,
    Record,
    SignalKind,
    SignalReport,
    TextSoFar,
    failed,
    numbered,
    position,
    shortened,
    table_at,
    tables_at,
    text_at,
)

_TOO_MANY_REQUESTS: Final = 429
_LATEST_TIME: Final = 1 << 47
_ABORTED: Final = "MessageAbortedError"
_QUESTION_EVENTS: Final = (
    "permission.asked",
    "permission.replied",
    "question.asked",
    "question.replied",
    "question.rejected",
)
_TEXT_EVENTS: Final = ("message.part.updated", "message.part.delta")
_TITLE_BEGIN: Final = "OC | "
_NO_TITLE: Final = "OpenCode"
_UNTITLED: Final = re.compile(r"(?:New|Child) session - \d{4}-")
_LOGO: Final = "█▀▀█ █▀▀█ █▀▀█ █▀▀▄"
"""A row of the name at the top of its start page."""
_REPLIES: Final = (
    ("once", "Allow once", OptionEffect.ALLOW),
    ("always", "Allow always", OptionEffect.ALLOW_ALWAYS),
    ("reject", "Reject", OptionEffect.DENY),
)
"""The replies to a permission request, with the labels of its TUI."""


@dataclass(slots=True)
class _Session:
    """One conversation: the turn that runs, and the assistant's messages in it."""

    turn: str = ""
    """The id of the user's message."""
    is_submitted: bool = False
    """The prompt's text was reported."""
    is_over: bool = False
    """Its end was reported; after an error the server says twice that it is idle."""
    answer: str = ""
    """The id of the assistant's last message; a turn with tools has several."""
    parts: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """The parts of the messages in the turn. Also of one that is not known yet: the stream may begin in its middle."""
    is_finished: bool = False
    """That message came to its regular end."""
    is_rejected: bool = False
    """A person denied something in the turn, which ends it unless they said what to do instead."""
    error: Record = field(default_factory=dict[str, object])
    settings: Record = field(default_factory=dict[str, object])
    """The agent and the model of the user's message, as its server expects them in a request."""

    @property
    def text(self) -> str:
        """The text of the assistant's last message so far."""
        return "".join(self.parts.get(self.answer, {}).values())


class ShownConversation(Enum):
    """Which conversation its terminal shows, compared with the one of the last message."""

    SAME = auto()
    NONE = auto()
    """Its start page: a person typed `/new`, and the next message begins a conversation."""
    ANOTHER = auto()
    """Another one, or an unknown one: typed text goes there."""


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """The HTTP request that gives its server the answer to a question."""

    path: str
    body: Mapping[str, Any]


class OpenCodeEvents:
    """Reads the events of one server, in order."""

    def __init__(self) -> None:
        self.session = ""
        """The conversation of the last message, or the one that its server selected; empty before the first."""
        self.asked: dict[str, Record] = {}
        """Its open questions, by the id of the request."""
        self._sessions: dict[str, _Session] = {}
        self._of_sub_agents: set[str] = set()
        self._new_text: TextSoFar | None = None

    def settings_of(self, session: str) -> Record:
        """Returns the agent and the model of a conversation's last message; empty before the first."""
        return self._sessions.get(session, _Session()).settings

    def take_text(self) -> TextSoFar | None:
        """Returns the text of the running turn if it has grown since the last call."""
        new_text, self._new_text = self._new_text, None
        return new_text

    def read(self, event: Record) -> SignalReport | None:
        """Returns the report of an event; None if it is not about the turn."""
        name, given = text_at(event, "type"), table_at(event, "properties")
        session_id = text_at(given, "sessionID") or text_at(given, "info", "id")
        if text_at(given, "info", "parentID") and name.startswith("session."):
            self._of_sub_agents.add(session_id)
        if not session_id:
            return None
        session = self._sessions.setdefault(session_id, _Session())
        if name in _QUESTION_EVENTS:
            # Also those of a sub-agent: its permissions are asked in the same terminal.
            return self._read_question(name, given, session)
        if session_id in self._of_sub_agents:
            return None
        if name in _TEXT_EVENTS:
            return self._read_text(name, given, session)
        return self._read_turn(name, given, session, session_id)

    def _read_turn(self, name: str, given: Record, session: _Session, session_id: str) -> SignalReport | None:
        match name:
            case "tui.session.select":
                self.session = session_id
            case "session.deleted":
                self.session = "" if self.session == session_id else self.session
            case "message.updated":
                if text_at(given, "info", "role") == "user":
                    self.session = session_id
                _note_message(table_at(given, "info"), session)
            case "session.error":
                session.error = table_at(given, "error")
            case "session.status":
                return _status(table_at(given, "status"), session)
            case _:
                pass
        return None

    def _read_text(self, name: str, given: Record, session: _Session) -> SignalReport | None:
        before, report = session.text, None
        if name != "message.part.delta":
            report = _note_part(table_at(given, "part"), session)
        elif text_at(given, "field") == "text":
            # Thoughts come as deltas too; only parts that began as text belong to the answer.
            parts, part_id = session.parts.get(text_at(given, "messageID"), {}), text_at(given, "partID")
            if part_id in parts:
                parts[part_id] += text_at(given, "delta")
        if session.text not in ("", before):
            self._new_text = TextSoFar(session.turn, session.text)
        return report

    def _read_question(self, name: str, given: Record, session: _Session) -> SignalReport | None:
        if name.endswith(".asked"):
            self.asked[text_at(given, "id")] = given
            return _asked(given, session)
        self.asked.pop(text_at(given, "requestID"), None)
        session.is_rejected = session.is_rejected or name == "question.rejected" or text_at(given, "reply") == "reject"
        if self.asked:
            # It asks several questions, one after the other.
            return _asked(next(iter(self.asked.values())), session)
        return _report(SignalKind.WORKING, "its server says that the question was answered", turn=session.turn)


def conversation_shown(picture: Picture | None, session: str, sessions: Sequence[Record]) -> ShownConversation:
    """Returns which conversation the terminal shows; `sessions` are all that its server knows.

    No event reports it, so the title and the page decide. The title is `OC | ` and that of the conversation; it is
    `OpenCode` on the start page, and while the conversation has no title yet.
    """
    if picture is None:
        return ShownConversation.SAME
    if picture.title.startswith(_TITLE_BEGIN):
        shown = picture.title.removeprefix(_TITLE_BEGIN)
        matching = [one for one in sessions if _is_titled(text_at(one, "title"), shown)]
        # A person may look at a sub-agent of the conversation.
        ours = [one for one in matching if session in (text_at(one, "id"), text_at(one, "parentID"))]
        return ShownConversation.SAME if ours and len(ours) == len(matching) else ShownConversation.ANOTHER
    if any(_LOGO in line for line in picture.lines):
        return ShownConversation.NONE
    title = next((text_at(one, "title") for one in sessions if text_at(one, "id") == session), "")
    is_untitled = not title or _UNTITLED.match(title) is not None
    return ShownConversation.SAME if is_untitled or picture.title != _NO_TITLE else ShownConversation.ANOTHER


def read_question(request: Record) -> Question:
    """Returns the question of a request, `permission.asked` or `question.asked`."""
    return _choice(request) if "questions" in request else _permission(request)


def reply_to(request: Record, choice: Choice) -> ReplyRequest | None:
    """Returns the request that tells its server the choice; None if its server has no way to express it."""
    if "questions" not in request:
        place = position(choice.option, len(_REPLIES))
        body = None if place is None else {"reply": _REPLIES[place][0]}
        return None if body is None else ReplyRequest(f"/permission/{text_at(request, 'id')}/reply", body)
    answer = _answer(request, choice)
    return ReplyRequest(f"/question/{text_at(request, 'id')}/reply", {"answers": [[answer]]}) if answer else None


def _note_message(info: Record, session: _Session) -> None:
    if text_at(info, "role") == "user":
        if text_at(info, "id") != session.turn:
            if session.turn:
                session.parts.clear()
            session.turn, session.answer, session.error = text_at(info, "id"), "", {}
            session.is_submitted = session.is_over = session.is_rejected = False
        session.settings = _settings(info) or session.settings
    elif text_at(info, "parentID") == session.turn:
        if text_at(info, "id") != session.answer:
            session.answer = text_at(info, "id")
            session.parts = {session.answer: session.parts.get(session.answer, {})}
        session.error = table_at(info, "error") or session.error
        session.is_finished = bool(text_at(info, "finish"))


def _note_part(given: Record, session: _Session) -> SignalReport | None:
    if text_at(given, "type") != "text" or given.get("synthetic") is True:
        return None
    message, text = text_at(given, "messageID"), text_at(given, "text")
    if message != session.turn:
        session.parts.setdefault(message, {})[text_at(given, "id")] = text
    elif not session.is_submitted:
        session.is_submitted = True
        return _report(SignalKind.SUBMITTED, "its server has the prompt", text, session.turn)
    return None


def _status(status: Record, session: _Session) -> SignalReport | None:
    match text_at(status, "type"):
        case "busy":
            return _report(SignalKind.WORKING, "its server says that it works", turn=session.turn)
        case "retry":
            detail = f"its server tries again{_at(status.get('next'))}: {shortened(text_at(status, 'message'))}"
            return _report(SignalKind.WORKING, detail, turn=session.turn)
        case "idle" if session.turn and not session.is_over:
            return _ended(session)
        case _:
            return None


def _at(milliseconds: object) -> str:
    if not isinstance(milliseconds, int) or not 0 < milliseconds < _LATEST_TIME:
        return ""
    return f" at {datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ended(session: _Session) -> SignalReport | None:
    session.is_over = True
    if session.error:
        return _failure(session.error, session.turn)
    if session.answer and not session.is_finished:
        # An abort while it waits to try again comes without an error.
        return _failure({"name": _ABORTED}, session.turn)
    text = session.text
    if session.is_rejected and not text:
        note, detail = "a person said no, which ended the turn", "its server says that it is done: a person said no"
        return failed(Source.SIGNAL, INTERRUPTED, note, detail=detail, turn=session.turn)
    if not text and not session.is_submitted:
        # The stream began in the middle of the turn, and what was said before is not known: the screen shows it.
        return None
    return _report(SignalKind.ANSWERED, "its server says that it is done", text, session.turn)


def _failure(error: Record, turn: str) -> SignalReport:
    if text_at(error, "name") == _ABORTED:
        detail = "its server says that the turn was aborted"
        return failed(Source.SIGNAL, INTERRUPTED, INTERRUPTED_IN_TERMINAL, detail=detail, turn=turn)
    note = text_at(error, "data", "message") or text_at(error, "name")
    is_limit = table_at(error, "data").get("statusCode") == _TOO_MANY_REQUESTS
    detail = f"its server says that it failed: {shortened(note)}"
    return failed(Source.SIGNAL, RATE_LIMITED if is_limit else API_ERROR, note, detail=detail, turn=turn)


def _asked(given: Record, session: _Session) -> SignalReport:
    question = read_question(given)
    asked = f"{text_at(given, 'permission')}: {question.detail}" if text_at(given, "permission") else question.title
    report = _report(SignalKind.WAITING, f"its server says what it asks: {shortened(asked)}", asked, session.turn)
    return replace(report, question=question)


def _settings(info: Record) -> Record:
    model = {key: text_at(info, "model", key) for key in ("providerID", "modelID")}
    settings = {
        "agent": text_at(info, "agent"),
        "model": model if all(model.values()) else "",
        "variant": text_at(info, "model", "variant"),
    }
    return {key: value for key, value in settings.items() if value}


def _report(kind: SignalKind, detail: str, text: str = "", turn: str = "") -> SignalReport:
    return SignalReport(kind=kind, source=Source.SIGNAL, detail=detail, text=text, turn=turn)


def _is_titled(title: str, shown: str) -> bool:
    """Returns whether the terminal shows this title; it cuts a long one."""
    begin = shown.removesuffix("...").removesuffix("…")
    return title == shown or (begin != shown and title.startswith(begin))


def _permission(request: Record) -> Question:
    always = ", ".join(_words(request, "always"))
    labels = [
        (f"{label}: {always}" if reply == "always" and always else label, effect) for reply, label, effect in _REPLIES
    ]
    title = f"Permission required: {text_at(request, 'permission') or 'something'}"
    # The command, or the file with the change.
    described = filter(None, (text_at(request, "metadata", key) for key in ("command", "filepath", "diff")))
    about = "\n".join(described) or "\n".join(_words(request, "patterns"))
    return Question(
        id=text_at(request, "id"),
        kind=QuestionKind.PERMISSION,
        title=safe_line(title),
        detail=safe_lines(about),
        options=numbered(labels),
        source=Source.SIGNAL,
    )


def _choice(request: Record) -> Question:
    asked = tables_at(request, "questions")
    is_one = len(asked) == 1
    options = tables_at(asked[0], "options") if is_one else []
    described = [
        f"{text_at(one, 'label')}: {text_at(one, 'description')}" for one in options if text_at(one, "description")
    ]
    return Question(
        id=text_at(request, "id"),
        kind=QuestionKind.CHOICE,
        title=safe_line(text_at(asked[0], "question")) if asked else "",
        detail=safe_lines("\n".join(described if is_one else [text_at(one, "question") for one in asked])),
        options=numbered((text_at(option, "label"), OptionEffect.OTHER) for option in options),
        takes_text=is_one and asked[0].get("custom") is not False,
        source=Source.SIGNAL,
        hint="" if is_one else SEVERAL_QUESTIONS,
    )


def _answer(request: Record, choice: Choice) -> str:
    asked = tables_at(request, "questions")
    if len(asked) != 1:
        return ""
    options = tables_at(asked[0], "options")
    place = position(choice.option, len(options))
    return choice.text if place is None else text_at(options[place], "label")


def _words(request: Record, key: str) -> list[str]:
    value: object = request.get(key)
    return [each for each in cast("list[object]", value) if isinstance(each, str)] if isinstance(value, list) else []
