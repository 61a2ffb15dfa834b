"""Codex (0.166): the notifications and requests of its app-server tell everything, and hold the answer's text.

What Codex's app-server (0.166) asks its clients, and the result that answers it; the first client to answer wins.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from synapse.core.question import Choice, OptionEffect, Question, QuestionKind
from synapse.core.text import safe_line, safe_lines
from synapse.terminal.evidence import Source
from synapse.terminal.signals.codex import is_limit
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    RATE_LIMITED,
    Record,
    Saying,
    SignalKind,
    SignalReport,
    error_sentence,
    failed,
    items,
    numbered,
    part,
    position,
    shortened,
    word,
)


@dataclass(slots=True)
class _Turn:
    """What is known of the turn that runs, or ran last."""

    name: str = ""
    is_taken: bool = False
    """Its prompt was told."""
    is_over: bool = False
    """Its end was told."""
    answer: str = ""
    """What its assistant said last."""
    item: str = ""
    said: str = ""
    """What its assistant is saying, and in which item."""
    changes: dict[str, Record] = field(default_factory=dict[str, Record])
    """Its changes of files, by their item: a request for one names no more than that."""


class AppServerEvents:
    """Reads what one app-server sends to a client, in its order."""

    def __init__(self) -> None:
        self.thread = ""
        """The conversation that its TUI shows: the one that was begun or resumed last. Empty before the first."""
        self.has_begun = False
        """A turn was begun in it: that is told to every client, its end only to those who ask for turns."""
        self._turn = _Turn()
        self._requests: dict[str, Record] = {}
        self._saying: Saying | None = None

    def take_saying(self) -> Saying | None:
        """What it has said so far, once for each time that it has said more."""
        saying, self._saying = self._saying, None
        return saying

    def read(self, message: Record) -> list[SignalReport]:
        """Return what a notification or a request says of the turn, if anything."""
        name, params = word(message, "method"), part(message, "params")
        if name == "thread/started":
            self.note_thread(part(params, "thread"))
            return []
        if not self.thread or word(params, "threadId") != self.thread:
            # Titles are made, and sub-agents work, in conversations of their own.
            return []
        if "id" in message:
            return self._asked(message)
        return self._read(name, params)

    def note_thread(self, thread: Record) -> bool:
        """Take a conversation that was begun; True if it is the one of the TUI."""
        if thread.get("ephemeral") is True or word(thread, "parentThreadId"):
            return False
        is_active = word(thread, "status", "type") == "active"
        if word(thread, "id") == self.thread:
            # It is told again after a broken connection.
            self.has_begun = self.has_begun or is_active
            return True
        self.thread, self.has_begun = word(thread, "id"), is_active
        self._turn = _Turn()
        self._requests.clear()
        return True

    def catch_up(self, turn: Record) -> list[SignalReport]:
        """Take a turn as it stands: it began before this client was told of turns."""
        name = word(turn, "id")
        if name < self._turn.name or (name == self._turn.name and self._turn.is_over):
            # What was told meanwhile is newer: its names of turns grow with time.
            return []
        reports, said = self._begin(name), self._turn.answer
        for item in items(turn, "items"):
            reports += self._item(item)
        self._turn.answer = said or self._turn.answer
        return reports if word(turn, "status") == "inProgress" else [*reports, *self._ended(turn)]

    def result_for(self, asked: str, choice: Choice) -> tuple[object, object] | None:
        """The id of the request, and the result that says the choice; None when it is not asked, or cannot be said."""
        request = self._requests.get(asked)
        result = None if request is None else result_for(request, choice)
        return None if request is None or result is None else (request["id"], result)

    def is_asking(self, asked: str) -> bool:
        """True while the question of this id is open."""
        return asked in self._requests

    def _read(self, name: str, params: Record) -> list[SignalReport]:
        match name:
            case "thread/status/changed":
                self.has_begun = self.has_begun or word(params, "status", "type") == "active"
            case "turn/started":
                return self._begin(word(params, "turn", "id"))
            case "item/started" | "item/completed":
                return self._item(part(params, "item"), is_complete=name == "item/completed")
            case "item/agentMessage/delta":
                self._grow(params)
            case "serverRequest/resolved":
                return self._resolved(question_id(params.get("requestId")))
            case "turn/completed":
                return self._ended(part(params, "turn"))
            case _:
                pass
        return []

    def _grow(self, params: Record) -> None:
        turn, item = self._turn, word(params, "itemId")
        if word(params, "turnId") not in ("", turn.name):
            return
        turn.said = word(params, "delta") if item != turn.item else turn.said + word(params, "delta")
        turn.item = item
        self._saying = Saying(turn.name, turn.said) if turn.said else self._saying

    def _begin(self, name: str) -> list[SignalReport]:
        if name == self._turn.name:
            return []
        self._turn = _Turn(name)
        return [_report(SignalKind.WORKING, "its server says that a turn has begun", turn=name)]

    def _item(self, item: Record, *, is_complete: bool = True) -> list[SignalReport]:
        match word(item, "type"):
            case "fileChange":
                self._turn.changes[word(item, "id")] = item
            case "agentMessage" if is_complete:
                self._turn.answer = word(item, "text")
            case "userMessage" if is_complete and not self._turn.is_taken:
                self._turn.is_taken = True
                prompt = "\n".join(filter(None, (word(content, "text") for content in items(item, "content"))))
                return [_report(SignalKind.SUBMITTED, "its server has the prompt", prompt, self._turn.name)]
            case _:
                pass
        return []

    def _asked(self, request: Record) -> list[SignalReport]:
        question = read_question(request, self._turn.changes.get(word(request, "params", "itemId"), {}))
        if question is None:
            return []
        self._requests[question.id] = request
        text = shortened(question.detail or question.title)
        heard = f"its server says what it asks: {text}"
        turn = self._turn.name
        return [
            SignalReport(
                told=SignalKind.WAITING, source=Source.SIGNAL, detail=heard, text=text, turn=turn, question=question
            )
        ]

    def _resolved(self, answered: str) -> list[SignalReport]:
        if self._requests.pop(answered, None) is None:
            return []
        if self._requests:
            return self._asked(next(iter(self._requests.values())))
        return [_report(SignalKind.WORKING, "its server says that the question was answered", turn=self._turn.name)]

    def _ended(self, turn: Record) -> list[SignalReport]:
        name = word(turn, "id")
        if name == self._turn.name and self._turn.is_over:
            return []
        begun = self._begin(name)
        self._turn.is_over = True
        self._requests.clear()
        match word(turn, "status"):
            case "interrupted":
                heard = "its server says that the turn was interrupted"
                note = "it was interrupted in its terminal"
                return [*begun, failed(Source.SIGNAL, INTERRUPTED, note, heard=heard, turn=name)]
            case "failed":
                return [*begun, _failure(part(turn, "error"), name)]
            case _:
                for item in items(turn, "items"):
                    begun += self._item(item)
                return [
                    *begun,
                    _report(SignalKind.ANSWERED, "its server says that it is done", self._turn.answer, name),
                ]


def _failure(error: Record, turn: str) -> SignalReport:
    note = error_sentence(word(error, "message"))
    reason = RATE_LIMITED if is_limit(error.get("codexErrorInfo")) else API_ERROR
    heard = f"its server says that it failed: {shortened(note)}"
    return failed(Source.SIGNAL, reason, note, heard=heard, turn=turn)


def _report(told: SignalKind, heard: str, text: str = "", turn: str = "") -> SignalReport:
    return SignalReport(told=told, source=Source.SIGNAL, detail=heard, text=text, turn=turn)


_SHELLS: Final = ("bash", "sh", "zsh")
_INPUT: Final = "item/tool/requestUserInput"
_ALL: Final = ("accept", "acceptForSession", "cancel")
"""What its TUI offers where the request does not say what may be chosen, in the same order."""
_LEANINGS: Final = {"accept": OptionEffect.ALLOW, "decline": OptionEffect.DENY, "cancel": OptionEffect.DENY}
_LABELS: Final = {
    "accept": "Yes, proceed",
    "acceptForSession": "Yes, and don't ask again in this conversation",
    "acceptWithExecpolicyAmendment": "Yes, and don't ask again for commands like this",
    "applyNetworkPolicyAmendment": "Yes, and remember it for this host",
    "decline": "No, go on without it",
    "cancel": "No, and end the turn",
}
_ONLY_THERE: Final = "it asks several things at once: answer them in its terminal"


def question_id(request_id: object) -> str:
    """The name of a request's question: the server counts its requests."""
    return f"codex-{request_id}"


def read_question(request: Record, changes: Record) -> Question | None:
    """The question of a request; None for requests that are no matter of a person's answer from here.

    `changes` is the item that the request is about, where it was told of: a change of files is in there only.
    """
    match word(request, "method"):
        case "item/commandExecution/requestApproval":
            return _approval(request, "Would you like to run the following command?", _command(part(request, "params")))
        case "item/fileChange/requestApproval":
            return _approval(request, "Would you like to make the following edits?", _edits(changes))
        case "item/tool/requestUserInput":
            return _input(request)
        case _:
            return None


def result_for(request: Record, choice: Choice) -> Mapping[str, Any] | None:
    """The result that says the choice; None when there is none for it."""
    if word(request, "method") == _INPUT:
        return _input_result(request, choice)
    decisions = _decisions(request)
    place = position(choice.option, len(decisions))
    return None if place is None else {"decision": decisions[place]}


def _approval(request: Record, title: str, detail: str) -> Question:
    reason = word(request, "params", "reason")
    return Question(
        id=question_id(request.get("id")),
        kind=QuestionKind.PERMISSION,
        title=title,
        detail=safe_lines("\n".join(filter(None, (f"Reason: {reason}" if reason else "", detail)))),
        options=numbered((_label(decision), _leaning(decision)) for decision in _decisions(request)),
        source=Source.SIGNAL,
    )


def _decisions(request: Record) -> list[str | Record]:
    offered: object = part(request, "params").get("availableDecisions")
    if not isinstance(offered, list) or not offered:
        return list(_ALL)
    return [cast("str | Record", one) for one in cast("list[object]", offered) if isinstance(one, str | Mapping)]


def _name(decision: str | Record) -> str:
    return decision if isinstance(decision, str) else next(iter(decision), "")


def _label(decision: str | Record) -> str:
    """What it would do; where it remembers something, also what."""
    name = _name(decision)
    remembered = "" if isinstance(decision, str) else _remembered(part(decision, name))
    return remembered or _LABELS.get(name, name)


def _remembered(amendment: Record) -> str:
    begin: object = amendment.get("execpolicy_amendment")
    if isinstance(begin, list) and begin:
        command = shlex.join(str(each) for each in cast("list[object]", begin))
        return f"Yes, and don't ask again for commands that start with `{command}`"
    host = word(amendment, "network_policy_amendment", "host")
    is_blocked = word(amendment, "network_policy_amendment", "action") == "deny"
    if host:
        return f"No, and block {host} from now on" if is_blocked else f"Yes, and allow {host} from now on"
    return ""


def _leaning(decision: str | Record) -> OptionEffect:
    name = _name(decision)
    if name in _LEANINGS:
        return _LEANINGS[name]
    return OptionEffect.ALLOW_ALWAYS if name.startswith("accept") else OptionEffect.OTHER


def _command(params: Record) -> str:
    """What will run, whole, without the shell that it is given to. Its summary leaves out what it thinks harmless."""
    command = word(params, "command")
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_script = len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] in ("-c", "-lc")
    return words[2] if is_script else command


def _edits(changes: Record) -> str:
    return "\n".join(f"{word(change, 'path')}\n{word(change, 'diff')}" for change in items(changes, "changes"))


def _input(request: Record) -> Question:
    asked = items(part(request, "params"), "questions")
    is_one = len(asked) == 1
    options = items(asked[0], "options") if is_one else []
    told = [f"{word(one, 'label')}: {word(one, 'description')}" for one in options if word(one, "description")]
    return Question(
        id=question_id(request.get("id")),
        kind=QuestionKind.CHOICE,
        title=safe_line(word(asked[0], "question")) if asked else "",
        detail=safe_lines("\n".join(told if is_one else [word(one, "question") for one in asked])),
        options=numbered((word(option, "label"), OptionEffect.OTHER) for option in options),
        takes_text=is_one and (not options or asked[0].get("isOther") is True),
        source=Source.SIGNAL,
        hint="" if is_one else _ONLY_THERE,
    )


def _input_result(request: Record, choice: Choice) -> Mapping[str, Any] | None:
    asked = items(part(request, "params"), "questions")
    if len(asked) != 1:
        return None
    options = items(asked[0], "options")
    place = position(choice.option, len(options))
    answer = choice.text if place is None else word(options[place], "label")
    return {"answers": {word(asked[0], "id"): {"answers": [answer]}}} if answer else None
