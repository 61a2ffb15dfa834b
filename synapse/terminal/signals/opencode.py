"""OpenCode (1.18): the events of its own server tell everything, and hold the answer's text.

What OpenCode (1.18) asks a person, and how its server is told the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    RATE_LIMITED,
    Record,
    Saying,
    SignalKind,
    SignalReport,
    failed,
    items,
    numbered,
    part,
    position,
    shortened,
    word,
)

_TOO_MANY_REQUESTS: Final = 429
_END_OF_TIME: Final = 1 << 47
_ABORTED: Final = {"name": "MessageAbortedError"}
_QUESTIONS: Final = (
    "permission.asked",
    "permission.replied",
    "question.asked",
    "question.replied",
    "question.rejected",
)
_TITLE_BEGIN: Final = "OC | "
_NO_TITLE: Final = "OpenCode"
_UNTITLED: Final = re.compile(r"(?:New|Child) session - \d{4}-")
_LOGO: Final = "█▀▀█ █▀▀█ █▀▀█ █▀▀▄"
"""A row of the name that its start page is headed with."""
_TEXTS: Final = ("message.part.updated", "message.part.delta")


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
    is_rejected: bool = False
    """A person said no to something in it, which ends it unless they said what to do instead."""
    error: Record = field(default_factory=dict[str, object])
    way: Record = field(default_factory=dict[str, object])
    """The agent and the model that the user's message was for, as its server wants them told."""


class Shown(Enum):
    """Which conversation its terminal shows, beside the one that was last spoken in."""

    SAME = auto()
    NONE = auto()
    """Its start page: a person typed `/new`, and the next message begins a conversation."""
    ANOTHER = auto()
    """Another one, or it cannot be told which: what is typed goes there."""


def conversation_shown(picture: Picture | None, session: str, sessions: Sequence[Record]) -> Shown:
    """Tell it by the terminal's title and page, since no event does; `sessions` are all that its server knows.

    The title is `OC | ` with that of the conversation; `OpenCode` on the start page, and while that has no title yet.
    """
    if picture is None:
        return Shown.SAME
    if picture.title.startswith(_TITLE_BEGIN):
        shown = picture.title.removeprefix(_TITLE_BEGIN)
        fitting = [one for one in sessions if _is_called(word(one, "title"), shown)]
        # A person may look at a helper of the conversation.
        ours = [one for one in fitting if session in (word(one, "id"), word(one, "parentID"))]
        return Shown.SAME if ours and len(ours) == len(fitting) else Shown.ANOTHER
    if any(_LOGO in line for line in picture.lines):
        return Shown.NONE
    title = next((word(one, "title") for one in sessions if word(one, "id") == session), "")
    is_untitled = not title or _UNTITLED.match(title) is not None
    return Shown.SAME if is_untitled or picture.title != _NO_TITLE else Shown.ANOTHER


def _is_called(title: str, shown: str) -> bool:
    """Whether the terminal's title shows this one; a long one is cut."""
    begin = shown.removesuffix("...").removesuffix("…")
    return title == shown or (begin != shown and title.startswith(begin))


class OpenCodeEvents:
    """Reads one server's events, in their order."""

    def __init__(self) -> None:
        self.session = ""
        """The conversation that was last spoken in, or shown by its server's order; empty before the first."""
        self.asked: dict[str, Record] = {}
        """What it asks now, by the id of the request."""
        self._conversations: dict[str, _Conversation] = {}
        self._of_agents: set[str] = set()
        self._saying: Saying | None = None

    def way_of(self, session: str) -> Record:
        """With which agent and model the last message of a conversation was sent; empty before the first."""
        return self._conversations.get(session, _Conversation()).way

    def take_saying(self) -> Saying | None:
        """What it has said so far, once for each time that it has said more."""
        saying, self._saying = self._saying, None
        return saying

    def read(self, event: Record) -> SignalReport | None:
        """Return what an event says of the turn, if anything."""
        given = part(event, "properties")
        session = word(given, "sessionID") or word(given, "info", "id")
        if word(given, "info", "parentID") and word(event, "type").startswith("session."):
            self._of_agents.add(session)
        if not session:
            return None
        talk = self._conversations.setdefault(session, _Conversation())
        name = word(event, "type")
        if name in _QUESTIONS:
            # Also of a sub-agent: its permissions are asked in the same terminal.
            return self._read_question(name, given, talk)
        if session in self._of_agents:
            return None
        if name in _TEXTS:
            return self._read_text(name, given, talk)
        return self._read(name, given, talk, session)

    def _read(self, name: str, given: Record, talk: _Conversation, session: str) -> SignalReport | None:
        match name:
            case "tui.session.select":
                self.session = session
            case "session.deleted":
                self.session = "" if self.session == session else self.session
            case "message.updated":
                if word(given, "info", "role") == "user":
                    self.session = session
                _note_message(part(given, "info"), talk)
            case "session.error":
                talk.error = part(given, "error")
            case "session.status":
                return _status(part(given, "status"), talk)
            case _:
                pass
        return None

    def _read_text(self, name: str, given: Record, talk: _Conversation) -> SignalReport | None:
        before, report = dict(talk.texts), None
        if name == "message.part.delta":
            _grow(given, talk)
        else:
            report = _part(part(given, "part"), talk)
        if talk.texts != before and (text := "".join(talk.texts.values())):
            self._saying = Saying(talk.turn, text)
        return report

    def _read_question(self, name: str, given: Record, talk: _Conversation) -> SignalReport | None:
        if name.endswith(".asked"):
            self.asked[word(given, "id")] = given
            return _asked(given, talk)
        self.asked.pop(word(given, "requestID"), None)
        talk.is_rejected = talk.is_rejected or name == "question.rejected" or word(given, "reply") == "reject"
        if self.asked:
            # It asks several things, one after the other.
            return _asked(next(iter(self.asked.values())), talk)
        return _report(SignalKind.WORKING, "its server says that the question was answered", turn=talk.turn)


def _note_message(info: Record, talk: _Conversation) -> None:
    if word(info, "role") == "user":
        if word(info, "id") != talk.turn:
            talk.turn, talk.is_taken, talk.is_over, talk.is_rejected = word(info, "id"), False, False, False
            talk.answer, talk.error = "", {}
            talk.texts.clear()
        talk.way = _way(info) or talk.way
    elif word(info, "parentID") == talk.turn:
        if word(info, "id") != talk.answer:
            talk.answer = word(info, "id")
            talk.texts.clear()
        talk.error = part(info, "error") or talk.error
        talk.is_finished = bool(word(info, "finish"))


def _part(given: Record, talk: _Conversation) -> SignalReport | None:
    if word(given, "type") != "text" or given.get("synthetic") is True:
        return None
    message, text = word(given, "messageID"), word(given, "text")
    if message == talk.answer:
        talk.texts[word(given, "id")] = text
    elif message == talk.turn and not talk.is_taken:
        talk.is_taken = True
        return _report(SignalKind.SUBMITTED, "its server has the prompt", text, talk.turn)
    return None


def _grow(given: Record, talk: _Conversation) -> None:
    # What it thinks comes in the same way; only parts that were begun as text are part of the answer.
    known = word(given, "partID")
    if word(given, "messageID") == talk.answer and known in talk.texts and word(given, "field") == "text":
        talk.texts[known] += word(given, "delta")


def _status(status: Record, talk: _Conversation) -> SignalReport | None:
    match word(status, "type"):
        case "busy":
            return _report(SignalKind.WORKING, "its server says that it works", turn=talk.turn)
        case "retry":
            heard = f"its server tries again{_at(status.get('next'))}: {shortened(word(status, 'message'))}"
            return _report(SignalKind.WORKING, heard, turn=talk.turn)
        case "idle" if talk.turn and not talk.is_over:
            return _ended(talk)
        case _:
            return None


def _at(milliseconds: object) -> str:
    if not isinstance(milliseconds, int) or not 0 < milliseconds < _END_OF_TIME:
        return ""
    return f" at {datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ended(talk: _Conversation) -> SignalReport:
    talk.is_over = True
    if talk.error:
        return _failure(talk.error, talk.turn)
    if talk.answer and not talk.is_finished:
        # It is aborted without an error while it waits to try again.
        return _failure(_ABORTED, talk.turn)
    text = "".join(talk.texts.values())
    if talk.is_rejected and not text:
        heard = "its server says that it is done: a person said no"
        return failed(Source.SIGNAL, INTERRUPTED, "a person said no, which ended the turn", heard=heard, turn=talk.turn)
    return _report(SignalKind.ANSWERED, "its server says that it is done", text, talk.turn)


def _failure(error: Record, turn: str) -> SignalReport:
    if word(error, "name") == "MessageAbortedError":
        heard = "its server says that the turn was aborted"
        return failed(Source.SIGNAL, INTERRUPTED, "it was interrupted in its terminal", heard=heard, turn=turn)
    note = word(error, "data", "message") or word(error, "name")
    is_limit = part(error, "data").get("statusCode") == _TOO_MANY_REQUESTS
    heard = f"its server says that it failed: {shortened(note)}"
    return failed(Source.SIGNAL, RATE_LIMITED if is_limit else API_ERROR, note, heard=heard, turn=turn)


def _asked(given: Record, talk: _Conversation) -> SignalReport:
    question = read_question(given)
    asked = f"{word(given, 'permission')}: {question.detail}" if word(given, "permission") else question.title
    heard = f"its server says what it asks: {shortened(asked)}"
    return SignalReport(
        told=SignalKind.WAITING, source=Source.SIGNAL, detail=heard, text=asked, turn=talk.turn, question=question
    )


def _way(info: Record) -> Record:
    model = {key: word(info, "model", key) for key in ("providerID", "modelID")}
    told: dict[str, object] = {"agent": word(info, "agent"), "model": model if all(model.values()) else ""}
    told["variant"] = word(info, "model", "variant")
    return {key: value for key, value in told.items() if value}


def _report(told: SignalKind, heard: str, text: str = "", turn: str = "") -> SignalReport:
    return SignalReport(told=told, source=Source.SIGNAL, detail=heard, text=text, turn=turn)


_REPLIES: Final = (
    ("once", "Allow once", OptionEffect.ALLOW),
    ("always", "Allow always", OptionEffect.ALLOW_ALWAYS),
    ("reject", "Reject", OptionEffect.DENY),
)
_ONLY_THERE: Final = "it asks several things at once: answer them in its terminal"


@dataclass(frozen=True, slots=True)
class Reply:
    """What its server is to be asked, so that it has the answer."""

    path: str
    body: Mapping[str, Any]


def read_question(request: Record) -> Question:
    """The question of a request, `permission.asked` or `question.asked`."""
    return _choice(request) if "questions" in request else _permission(request)


def reply_to(request: Record, choice: Choice) -> Reply | None:
    """How the choice is told to its server; None when that has no words for it."""
    if "questions" not in request:
        place = position(choice.option, len(_REPLIES))
        body = None if place is None else {"reply": _REPLIES[place][0]}
        return None if body is None else Reply(f"/permission/{word(request, 'id')}/reply", body)
    answer = _answer(request, choice)
    return Reply(f"/question/{word(request, 'id')}/reply", {"answers": [[answer]]}) if answer else None


def _permission(request: Record) -> Question:
    always = ", ".join(_words(request, "always"))
    labels = [(f"{label}: {always}" if reply == "always" and always else label, how) for reply, label, how in _REPLIES]
    title = f"Permission required: {word(request, 'permission') or 'something'}"
    return Question(
        id=word(request, "id"),
        kind=QuestionKind.PERMISSION,
        title=safe_line(title),
        detail=safe_lines(_about(request)),
        options=numbered(labels),
        source=Source.SIGNAL,
    )


def _about(request: Record) -> str:
    """What shall be done: the command, or the file with the change."""
    told = [word(request, "metadata", key) for key in ("command", "filepath", "diff")]
    return "\n".join(filter(None, told)) or "\n".join(_words(request, "patterns"))


def _choice(request: Record) -> Question:
    asked = items(request, "questions")
    is_one = len(asked) == 1
    options = items(asked[0], "options") if is_one else []
    told = [f"{word(one, 'label')}: {word(one, 'description')}" for one in options if word(one, "description")]
    return Question(
        id=word(request, "id"),
        kind=QuestionKind.CHOICE,
        title=safe_line(word(asked[0], "question")) if asked else "",
        detail=safe_lines("\n".join(told if is_one else [word(one, "question") for one in asked])),
        options=numbered((word(option, "label"), OptionEffect.OTHER) for option in options),
        takes_text=is_one and asked[0].get("custom") is not False,
        source=Source.SIGNAL,
        hint="" if is_one else _ONLY_THERE,
    )


def _answer(request: Record, choice: Choice) -> str:
    asked = items(request, "questions")
    if len(asked) != 1:
        return ""
    options = items(asked[0], "options")
    place = position(choice.option, len(options))
    return choice.text if place is None else word(options[place], "label")


def _words(request: Record, key: str) -> list[str]:
    value: object = request.get(key)
    return [each for each in cast("list[object]", value) if isinstance(each, str)] if isinstance(value, list) else []
