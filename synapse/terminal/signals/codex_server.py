"""Reads what Codex's app-server (0.166) sends its clients, and answers its questions.

Its notifications and requests report everything, with the answer's text. A request asks all clients; the first answer
counts.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from synapse.core.question import Choice, OptionEffect, Question, QuestionKind
from synapse.core.text import safe_line, safe_lines
from synapse.terminal.evidence import Source
from synapse.terminal.signals.codex import is_limit
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
    error_sentence,
    failed,
    numbered,
    position,
    shortened,
    table_at,
    tables_at,
    text_at,
)

_SHELLS: Final = ("bash", "sh", "zsh")
_USER_INPUT: Final = "item/tool/requestUserInput"
_ELICITATION: Final = "mcpServer/elicitation/request"
_TOOL_CALL: Final = "mcp_tool_call"
_FORM: Final = "it asks to fill in a form: do that in its terminal"
_PAGE: Final = "it asks to open a web page: decide that in its terminal"
_TOOL_REMEMBERED: Final = {"session": "Allow for this session", "always": "Always allow"}
"""How long Codex may remember that a tool is allowed → the option's label in its TUI."""
_ANSWERS: Final = {"accept": "Allow", "decline": "Deny", "cancel": "Cancel"}
"""The answers to an MCP server that asks for a yes or a no → the option's label in its TUI."""
_DEFAULT_DECISIONS: Final = ("accept", "acceptForSession", "cancel")
"""What its TUI offers, in that order, if the request does not name the decisions."""
_EFFECTS: Final = {"accept": OptionEffect.ALLOW, "decline": OptionEffect.DENY, "cancel": OptionEffect.DENY}
_LABELS: Final = {
    "accept": "Yes, proceed",
    "acceptForSession": "Yes, and don't ask again in this conversation",
    "acceptWithExecpolicyAmendment": "Yes, and don't ask again for commands like this",
    "applyNetworkPolicyAmendment": "Yes, and remember it for this host",
    "decline": "No, go on without it",
    "cancel": "No, and end the turn",
}


@dataclass(slots=True)
class _Turn:
    """The turn that runs, or ran last."""

    id: str = ""
    is_submitted: bool = False
    """Its prompt was reported."""
    is_over: bool = False
    """Its end was reported."""
    answer: str = ""
    """The assistant's last message."""
    item: str = ""
    """The item of the message that the assistant is writing."""
    text: str = ""
    """The text of that message so far."""
    changes: dict[str, Record] = field(default_factory=dict[str, Record])
    """Its file changes, by item: a request for approval names only the item."""


class AppServerEvents:
    """Reads what one app-server sends to a client, in order."""

    def __init__(self) -> None:
        self.thread = ""
        """The conversation that its TUI shows: the one that was begun or resumed last. Empty before the first."""
        self.has_begun = False
        """A turn was begun in it: every client is told that, but its end only those that subscribe to turns."""
        self._turn = _Turn()
        self._requests: dict[str, Record] = {}
        self._new_text: TextSoFar | None = None

    @property
    def turn(self) -> str:
        """The turn that runs, or ran last; empty before the first."""
        return self._turn.id

    def take_text(self) -> TextSoFar | None:
        """Returns the text of the running turn if it has grown since the last call."""
        new_text, self._new_text = self._new_text, None
        return new_text

    def read(self, message: Record) -> list[SignalReport]:
        """Returns the reports of a notification or a request."""
        name, params = text_at(message, "method"), table_at(message, "params")
        if name == "thread/started":
            self.note_thread(table_at(params, "thread"))
            return []
        if not self.thread or text_at(params, "threadId") != self.thread:
            # Titles and sub-agents have conversations of their own.
            return []
        if "id" in message:
            return self._asked(message)
        return self._read(name, params)

    def note_thread(self, thread: Record) -> bool:
        """Takes a conversation that was begun; returns whether the TUI shows it."""
        if thread.get("ephemeral") is True or text_at(thread, "parentThreadId"):
            return False
        is_active = text_at(thread, "status", "type") == "active"
        if text_at(thread, "id") == self.thread:
            # After a broken connection it is announced again.
            self.has_begun = self.has_begun or is_active
            return True
        self.thread, self.has_begun = text_at(thread, "id"), is_active
        self._turn = _Turn()
        self._requests.clear()
        return True

    def catch_up(self, turn: Record) -> list[SignalReport]:
        """Returns the reports of a turn as it stands, which began before this client subscribed to turns."""
        turn_id = text_at(turn, "id")
        if turn_id < self._turn.id or (turn_id == self._turn.id and self._turn.is_over):
            # What was reported meanwhile is newer: the ids of turns grow with time.
            return []
        reports, answer = self._begin(turn_id), self._turn.answer
        for item in tables_at(turn, "items"):
            reports += self._item(item)
        self._turn.answer = answer or self._turn.answer
        return reports if text_at(turn, "status") == "inProgress" else [*reports, *self._ended(turn)]

    def result_for(self, question_id: str, choice: Choice) -> tuple[object, object] | None:
        """Returns the id of the question's request and the result that answers it.

        None if the question is not open, or no result expresses the choice.
        """
        request = self._requests.get(question_id)
        if request is None:
            return None
        if text_at(request, "method") == _USER_INPUT:
            result = _user_input_result(request, choice)
        elif text_at(request, "method") == _ELICITATION:
            results = [result for _, _, result in _elicitation_answers(table_at(request, "params"))]
            place = position(choice.option, len(results))
            result = None if place is None else results[place]
        else:
            decisions = _decisions(request)
            place = position(choice.option, len(decisions))
            result = None if place is None else {"decision": decisions[place]}
        return None if result is None else (request["id"], result)

    def is_asking(self, question_id: str) -> bool:
        """Returns whether the question is open."""
        return question_id in self._requests

    def _read(self, name: str, params: Record) -> list[SignalReport]:
        match name:
            case "thread/status/changed":
                self.has_begun = self.has_begun or text_at(params, "status", "type") == "active"
            case "turn/started":
                return self._begin(text_at(params, "turn", "id"))
            case "item/started" | "item/completed":
                return self._item(table_at(params, "item"), is_complete=name == "item/completed")
            case "item/agentMessage/delta":
                self._grow(params)
            case "serverRequest/resolved":
                return self._resolved(_question_id(params.get("requestId")))
            case "turn/completed":
                return self._ended(table_at(params, "turn"))
            case _:
                pass
        return []

    def _grow(self, params: Record) -> None:
        turn, item = self._turn, text_at(params, "itemId")
        if text_at(params, "turnId") not in ("", turn.id):
            return
        turn.text = text_at(params, "delta") if item != turn.item else turn.text + text_at(params, "delta")
        turn.item = item
        self._new_text = TextSoFar(turn.id, turn.text) if turn.text else self._new_text

    def _begin(self, turn_id: str) -> list[SignalReport]:
        if turn_id == self._turn.id:
            return []
        self._turn = _Turn(turn_id)
        return [_report(SignalKind.WORKING, "its server says that a turn has begun", turn=turn_id)]

    def _item(self, item: Record, *, is_complete: bool = True) -> list[SignalReport]:
        match text_at(item, "type"):
            case "fileChange":
                self._turn.changes[text_at(item, "id")] = item
            case "agentMessage" if is_complete:
                self._turn.answer = text_at(item, "text")
            case "userMessage" if is_complete and not self._turn.is_submitted:
                self._turn.is_submitted = True
                prompt = "\n".join(filter(None, (text_at(content, "text") for content in tables_at(item, "content"))))
                report = _report(SignalKind.SUBMITTED, "its server has the prompt", prompt, self._turn.id)
                return [replace(report, key=text_at(item, "clientId"))]
            case _:
                pass
        return []

    def _asked(self, request: Record) -> list[SignalReport]:
        question = read_question(request, self._turn.changes.get(text_at(request, "params", "itemId"), {}))
        if question is None:
            return []
        self._requests[question.id] = request
        text = shortened(question.detail or question.title)
        report = _report(SignalKind.WAITING, f"its server says what it asks: {text}", text, self._turn.id)
        return [replace(report, question=question)]

    def _resolved(self, question_id: str) -> list[SignalReport]:
        if self._requests.pop(question_id, None) is None:
            return []
        if self._requests:
            return self._asked(next(iter(self._requests.values())))
        return [_report(SignalKind.WORKING, "its server says that the question was answered", turn=self._turn.id)]

    def _ended(self, turn: Record) -> list[SignalReport]:
        turn_id = text_at(turn, "id")
        if turn_id == self._turn.id and self._turn.is_over:
            return []
        reports = self._begin(turn_id)
        self._turn.is_over = True
        self._requests.clear()
        match text_at(turn, "status"):
            case "interrupted":
                detail = "its server says that the turn was interrupted"
                end = failed(Source.SIGNAL, INTERRUPTED, INTERRUPTED_IN_TERMINAL, detail=detail, turn=turn_id)
            case "failed":
                note = error_sentence(text_at(turn, "error", "message"))
                reason = RATE_LIMITED if is_limit(table_at(turn, "error").get("codexErrorInfo")) else API_ERROR
                detail = f"its server says that it failed: {shortened(note)}"
                end = failed(Source.SIGNAL, reason, note, detail=detail, turn=turn_id)
            case _:
                for item in tables_at(turn, "items"):
                    reports += self._item(item)
                end = _report(SignalKind.ANSWERED, "its server says that it is done", self._turn.answer, turn_id)
        return [*reports, end]


def read_question(request: Record, changes: Record) -> Question | None:
    """Returns the question of a request; None for requests that a person cannot answer from here.

    `changes` is the item that the request is about, if it was reported: only that holds the changes of files.
    """
    match text_at(request, "method"):
        case "item/commandExecution/requestApproval":
            return _approval(
                request, "Would you like to run the following command?", _command(table_at(request, "params"))
            )
        case "item/fileChange/requestApproval":
            edits = [
                f"{text_at(change, 'path')}\n{text_at(change, 'diff')}" for change in tables_at(changes, "changes")
            ]
            return _approval(request, "Would you like to make the following edits?", "\n".join(edits))
        case "item/tool/requestUserInput":
            return _user_input(request)
        case "mcpServer/elicitation/request":
            return _elicitation(request)
        case _:
            return None


def _report(kind: SignalKind, detail: str, text: str = "", turn: str = "") -> SignalReport:
    return SignalReport(kind=kind, source=Source.SIGNAL, detail=detail, text=text, turn=turn)


def _question_id(request_id: object) -> str:
    """Returns the id of a request's question; the server numbers its requests."""
    return f"codex-{request_id}"


def _approval(request: Record, title: str, detail: str) -> Question:
    reason = text_at(request, "params", "reason")
    return Question(
        id=_question_id(request.get("id")),
        kind=QuestionKind.PERMISSION,
        title=title,
        detail=safe_lines("\n".join(filter(None, (f"Reason: {reason}" if reason else "", detail)))),
        options=numbered((_label(decision), _effect(decision)) for decision in _decisions(request)),
        source=Source.SIGNAL,
    )


def _decisions(request: Record) -> list[str | Record]:
    offered: object = table_at(request, "params").get("availableDecisions")
    if not isinstance(offered, list) or not offered:
        return list(_DEFAULT_DECISIONS)
    return [cast("str | Record", one) for one in cast("list[object]", offered) if isinstance(one, str | Mapping)]


def _name(decision: str | Record) -> str:
    return decision if isinstance(decision, str) else next(iter(decision), "")


def _label(decision: str | Record) -> str:
    """Returns what the decision does, and what it remembers, if anything."""
    name = _name(decision)
    remembered = "" if isinstance(decision, str) else _remembered(table_at(decision, name))
    return remembered or _LABELS.get(name, name)


def _remembered(amendment: Record) -> str:
    prefix: object = amendment.get("execpolicy_amendment")
    if isinstance(prefix, list) and prefix:
        command = shlex.join(str(each) for each in cast("list[object]", prefix))
        return f"Yes, and don't ask again for commands that start with `{command}`"
    host = text_at(amendment, "network_policy_amendment", "host")
    is_blocked = text_at(amendment, "network_policy_amendment", "action") == "deny"
    if host:
        return f"No, and block {host} from now on" if is_blocked else f"Yes, and allow {host} from now on"
    return ""


def _effect(decision: str | Record) -> OptionEffect:
    name = _name(decision)
    if name in _EFFECTS:
        return _EFFECTS[name]
    return OptionEffect.ALLOW_ALWAYS if name.startswith("accept") else OptionEffect.OTHER


def _command(params: Record) -> str:
    """Returns the whole command, without the shell that runs it.

    The request's own summary leaves out parts that Codex considers harmless.
    """
    command = text_at(params, "command")
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_script = len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] in ("-c", "-lc")
    return words[2] if is_script else command


def _user_input(request: Record) -> Question:
    asked = tables_at(table_at(request, "params"), "questions")
    is_one = len(asked) == 1
    options = tables_at(asked[0], "options") if is_one else []
    described = [
        f"{text_at(one, 'label')}: {text_at(one, 'description')}" for one in options if text_at(one, "description")
    ]
    return Question(
        id=_question_id(request.get("id")),
        kind=QuestionKind.CHOICE,
        title=safe_line(text_at(asked[0], "question")) if asked else "",
        detail=safe_lines("\n".join(described if is_one else [text_at(one, "question") for one in asked])),
        options=numbered((text_at(option, "label"), OptionEffect.OTHER) for option in options),
        takes_text=is_one and (not options or asked[0].get("isOther") is True),
        source=Source.SIGNAL,
        hint="" if is_one else SEVERAL_QUESTIONS,
    )


def _user_input_result(request: Record, choice: Choice) -> Mapping[str, Any] | None:
    asked = tables_at(table_at(request, "params"), "questions")
    if len(asked) != 1:
        return None
    options = tables_at(asked[0], "options")
    place = position(choice.option, len(options))
    answer = choice.text if place is None else text_at(options[place], "label")
    return {"answers": {text_at(asked[0], "id"): {"answers": [answer]}}} if answer else None


def _elicitation(request: Record) -> Question:
    """Returns the question of an MCP server, or Codex's own whether a tool of that server may run."""
    params = table_at(request, "params")
    answers = _elicitation_answers(params)
    if _asks_for_tool(params):
        detail = _arguments(params)
    else:
        properties = table_at(params, "requestedSchema", "properties")
        fields = [text_at(properties, name, "title") or name for name in properties]
        detail = "\n".join(
            (f"asked by the MCP server {text_at(params, 'serverName')}", *fields, text_at(params, "url"))
        )
    return Question(
        id=_question_id(request.get("id")),
        kind=QuestionKind.PERMISSION if answers else QuestionKind.CHOICE,
        title=safe_line(text_at(params, "message")),
        detail=safe_lines(detail.strip()),
        options=numbered((label, effect) for label, effect, _ in answers),
        source=Source.SIGNAL,
        hint="" if answers else _PAGE if text_at(params, "mode") == "url" else _FORM,
    )


def _elicitation_answers(params: Record) -> list[tuple[str, OptionEffect, Record]]:
    """Returns the answers to an elicitation in the order of the TUI, each with its effect and its result.

    Only what asks for nothing but a yes or a no has answers.
    """
    if text_at(params, "mode") != "form" or table_at(params, "requestedSchema", "properties"):
        return []
    if not _asks_for_tool(params):
        return [(label, _EFFECTS[action], _elicited(action)) for action, label in _ANSWERS.items()]
    persist: object = table_at(params, "_meta").get("persist")
    offered = cast("list[object]", persist) if isinstance(persist, list) else [persist]
    remembered = [
        (label, OptionEffect.ALLOW_ALWAYS, _elicited("accept", {"persist": scope}))
        for scope, label in _TOOL_REMEMBERED.items()
        if scope in offered
    ]
    allow, cancel = (
        ("Allow", OptionEffect.ALLOW, _elicited("accept")),
        ("Cancel", OptionEffect.DENY, _elicited("cancel")),
    )
    return [allow, *remembered, cancel]


def _elicited(action: str, meta: Record | None = None) -> Record:
    return {"action": action, "content": {} if action == "accept" else None, "_meta": meta}


def _asks_for_tool(params: Record) -> bool:
    return text_at(params, "_meta", "codex_approval_kind") == _TOOL_CALL


def _arguments(params: Record) -> str:
    """Returns the arguments of a tool's call, a line for each."""
    shown = [
        (text_at(one, "display_name") or text_at(one, "name"), one.get("value"))
        for one in tables_at(table_at(params, "_meta"), "tool_params_display")
    ]
    named = shown or list(table_at(params, "_meta", "tool_params").items())
    return "\n".join(f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in named)
