"""Codex (0.166): the notifications and requests of its app-server tell everything, and hold the answer's text."""

from __future__ import annotations

from dataclasses import dataclass, field

from synapse.core.question import Choice
from synapse.terminal.evidence import Source
from synapse.terminal.signals.codex import is_limit
from synapse.terminal.signals.codex_requests import question_id, read_question, result_for
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    RATE_LIMITED,
    Record,
    Report,
    Saying,
    Told,
    error_sentence,
    failed,
    items,
    part,
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

    def read(self, message: Record) -> list[Report]:
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

    def catch_up(self, turn: Record) -> list[Report]:
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

    def _read(self, name: str, params: Record) -> list[Report]:
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

    def _begin(self, name: str) -> list[Report]:
        if name == self._turn.name:
            return []
        self._turn = _Turn(name)
        return [_report(Told.WORKING, "its server says that a turn has begun", turn=name)]

    def _item(self, item: Record, *, is_complete: bool = True) -> list[Report]:
        match word(item, "type"):
            case "fileChange":
                self._turn.changes[word(item, "id")] = item
            case "agentMessage" if is_complete:
                self._turn.answer = word(item, "text")
            case "userMessage" if is_complete and not self._turn.is_taken:
                self._turn.is_taken = True
                prompt = "\n".join(filter(None, (word(content, "text") for content in items(item, "content"))))
                return [_report(Told.SUBMITTED, "its server has the prompt", prompt, self._turn.name)]
            case _:
                pass
        return []

    def _asked(self, request: Record) -> list[Report]:
        question = read_question(request, self._turn.changes.get(word(request, "params", "itemId"), {}))
        if question is None:
            return []
        self._requests[question.id] = request
        text = shortened(question.detail or question.title)
        heard = f"its server says what it asks: {text}"
        turn = self._turn.name
        return [Report(told=Told.WAITING, source=Source.SIGNAL, detail=heard, text=text, turn=turn, question=question)]

    def _resolved(self, answered: str) -> list[Report]:
        if self._requests.pop(answered, None) is None:
            return []
        if self._requests:
            return self._asked(next(iter(self._requests.values())))
        return [_report(Told.WORKING, "its server says that the question was answered", turn=self._turn.name)]

    def _ended(self, turn: Record) -> list[Report]:
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
                return [*begun, _report(Told.ANSWERED, "its server says that it is done", self._turn.answer, name)]


def _failure(error: Record, turn: str) -> Report:
    note = error_sentence(word(error, "message"))
    reason = RATE_LIMITED if is_limit(error.get("codexErrorInfo")) else API_ERROR
    heard = f"its server says that it failed: {shortened(note)}"
    return failed(Source.SIGNAL, reason, note, heard=heard, turn=turn)


def _report(told: Told, heard: str, text: str = "", turn: str = "") -> Report:
    return Report(told=told, source=Source.SIGNAL, detail=heard, text=text, turn=turn)
