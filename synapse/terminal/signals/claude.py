"""Reads the reports of Claude Code (2.1.325), and answers what it asks.

Four hooks report its turn. The transcript adds what no hook reports: an interrupt, and the answer untrimmed.

A permission dialog is reported by the PermissionRequest hook, which waits while the dialog is shown; the first answer
counts. A question to the person (the tool AskUserQuestion) comes by the same hook, and is answered by allowing the tool
with the answers put into its input. No cheap hook reports that a dialog was answered in the terminal (PostToolUse
carries the tool's whole output), but the screen shows that the dialog is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from synapse.core.message import Json
from synapse.core.question import Choice, Option, OptionEffect, Question, QuestionKind
from synapse.core.text import safe_line, safe_lines
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    INTERRUPTED_IN_TERMINAL,
    RATE_LIMITED,
    SEVERAL_QUESTIONS,
    Record,
    SignalKind,
    SignalReport,
    failed,
    numbered,
    shortened,
    table_at,
    tables_at,
    text_at,
)

_DAY: Final = 24 * 60 * 60
_PERMISSION_REQUEST: Final = "PermissionRequest"
_SESSION_START: Final = "SessionStart"
HOOKS: Final = {"UserPromptSubmit": 5, _PERMISSION_REQUEST: _DAY, "Stop": 5, "StopFailure": 5}
"""The hooks, and how many seconds each may wait: a dialog is shown meanwhile, and the first answer counts."""
GO_ON: Final[Json] = {}
"""The hook's answer that decides nothing: the dialog stays, or was answered already."""
_INTERRUPTION: Final = "[Request interrupted by user"
_SETTINGS_FLAG: Final = "--settings"
_LATEST_TIME: Final = 1 << 37

_ALLOW: Final = "allow"
_DENY: Final = "deny"
_YES: Final = "yes"
_NO: Final = "no"
_DENIED: Final = "The person said no."
_TELLING: Final = ("command", "file_path", "url", "path", "pattern", "query", "plan", "prompt", "description")
"""The inputs of a tool that say what it is about, the most telling first."""


def read_hook(payload: Record, question_id: str = "") -> SignalReport | None:
    """Returns the report of a hook's payload; None for a hook that is not about the turn.

    A question gets `question_id`, because it has no id of its own.
    """
    turn = text_at(payload, "prompt_id")
    match text_at(payload, "hook_event_name"):
        case "UserPromptSubmit":
            return _report(SignalKind.SUBMITTED, "its hook has the prompt", text_at(payload, "prompt"), turn)
        case "PermissionRequest":
            asked = _asked(payload)
            detail = f"its hook says what it asks: {shortened(asked)}"
            return replace(_report(SignalKind.WAITING, detail, asked, turn), question=question_in(payload, question_id))
        case "Stop":
            answer = text_at(payload, "last_assistant_message")
            return _report(SignalKind.ANSWERED, "its hook says that it is done", answer, turn)
        case "StopFailure":
            error = text_at(payload, "error")
            note = text_at(payload, "last_assistant_message") or text_at(payload, "error_details") or error
            note = _with_time(note)
            reason = RATE_LIMITED if error == "rate_limit" else API_ERROR
            detail = f"its hook says that it failed: {shortened(note)}"
            return failed(Source.SIGNAL, reason, note, detail=detail, turn=turn)
        case _:
            return None


def session_in(payload: Record) -> str:
    """Returns the session of a hook's payload, if that session has a turn; else an empty text."""
    name = text_at(payload, "hook_event_name")
    has_turn = name == "UserPromptSubmit" or (name == _SESSION_START and text_at(payload, "source") == "resume")
    return text_at(payload, "session_id") if has_turn else ""


def is_cleared(payload: Record) -> bool:
    """Returns whether a person has begun a new conversation in its terminal (`/clear`)."""
    return text_at(payload, "hook_event_name") == _SESSION_START and text_at(payload, "source") == "clear"


def read_record(record: Record) -> SignalReport | None:
    """Returns what a line of the transcript reports beyond the hooks: that a person interrupted the turn."""
    if record.get("type") != "user" or record.get("isSidechain") is True:
        return None
    for block in tables_at(table_at(record, "message"), "content"):
        if text_at(block, "text").startswith(_INTERRUPTION):
            return failed(
                Source.TRANSCRIPT,
                INTERRUPTED,
                INTERRUPTED_IN_TERMINAL,
                detail="its transcript says that it was interrupted",
                turn=text_at(record, "promptId"),
            )
    return None


def prompt_in(record: Record) -> str:
    """Returns the prompt in a line of the transcript; empty if it has none."""
    if record.get("type") != "user" or record.get("isSidechain") is True:
        return ""
    texts = [text_at(block, "text") for block in tables_at(table_at(record, "message"), "content")]
    return text_at(record, "message", "content") or "\n".join(filter(None, texts))


class LastWords:
    """The assistant's last message in a conversation, from the lines of the transcript."""

    def __init__(self) -> None:
        self._message = ""
        self._texts: list[str] = []
        self._lines: set[str] = set()

    def read(self, record: Record) -> None:
        """Takes one line; repeated lines do not count. A message has one line for each of its blocks."""
        line = text_at(record, "uuid")
        if record.get("type") != "assistant" or record.get("isSidechain") is True or line in self._lines:
            return
        self._lines.add(line)
        message = table_at(record, "message")
        if text_at(message, "id") != self._message:
            self._message, self._texts = text_at(message, "id"), []
        self._texts += [
            text_at(block, "text") for block in tables_at(message, "content") if text_at(block, "type") == "text"
        ]

    def exact(self, answer: str) -> str | None:
        """Returns the answer that a hook reported, with the blanks around it that hooks trim; None if it is another."""
        whole = ("".join(self._texts), "\n".join(self._texts), "\n\n".join(self._texts))
        return next((text for text in whole if text.strip() == answer.strip()), None)


def hook_settings(url: str, header: str, secret: str, prompt_command: str = "") -> dict[str, Any]:
    """Returns settings that make it report to `url`.

    HTTP hooks start no process, but it waits for each of them, and so every prompt would wait. Only a command can run
    asynchronously, so `prompt_command` reports the prompts if it is given, and the sessions that a person changes to.
    """
    reporting: dict[str, Any] = {"type": "http", "url": url, "headers": {header: secret}}
    hooks = {name: {**reporting, "timeout": seconds} for name, seconds in HOOKS.items()}
    if prompt_command:
        command = {"type": "command", "command": prompt_command, "async": True}
        hooks["UserPromptSubmit"] = {**command, "timeout": HOOKS["UserPromptSubmit"]}
    groups: dict[str, Any] = {name: [{"hooks": [hook]}] for name, hook in hooks.items()}
    if prompt_command:
        # Not at each start: the prompts name the session, too.
        groups[_SESSION_START] = [{"matcher": "clear|resume", "hooks": [hooks["UserPromptSubmit"]]}]
    return {"hooks": groups}


def merged(theirs: Record, ours: Record) -> dict[str, Any]:
    """Returns the person's settings with our hooks after theirs."""
    hooks: dict[str, Any] = dict(table_at(theirs, "hooks"))
    for name, groups in table_at(ours, "hooks").items():
        known = hooks.get(name)
        hooks[name] = [*(cast("list[object]", known) if isinstance(known, list) else []), *groups]
    return {**theirs, "hooks": hooks}


def settings_argument(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Returns the value of the person's own `--settings` (the last one; empty if none), and the other arguments."""
    theirs, rest, left = "", list[str](), iter(arguments)
    for argument in left:
        if argument == "--":
            rest += [argument, *left]
        elif argument == _SETTINGS_FLAG:
            theirs = next(left, "")
        elif argument.startswith(_SETTINGS_FLAG + "="):
            theirs = argument.partition("=")[2]
        else:
            rest.append(argument)
    return theirs, tuple(rest)


def permissions(commands: Iterable[str], *, server: str = "") -> list[str]:
    """Returns the rules that allow the tools of an MCP server, and shell commands that begin so."""
    return [*([f"mcp__{server}"] if server else []), *(f"Bash({command}:*)" for command in commands)]


def question_in(payload: Record, question_id: str) -> Question:
    """Returns the question of a hook's payload, with that id."""
    given = table_at(payload, "tool_input")
    questions = tables_at(given, "questions")
    if not questions:
        return _permission(payload, question_id)
    is_one = len(questions) == 1
    offered = tables_at(questions[0], "options") if is_one else []
    return Question(
        id=question_id,
        kind=QuestionKind.CHOICE,
        title=safe_line(_asked(payload)),
        detail=safe_lines("\n".join(_explained(question, is_one=is_one) for question in questions)),
        options=numbered((text_at(option, "label"), OptionEffect.OTHER) for option in offered),
        takes_text=is_one,
        hint="" if is_one else SEVERAL_QUESTIONS,
    )


def hook_answer(payload: Record, choice: Choice) -> Json | None:
    """Returns the hook's answer for a choice among the question's options; None if the hook cannot express it."""
    if tables_at(table_at(payload, "tool_input"), "questions"):
        return _answer(payload, choice)
    if choice.text:
        return _decision({"behavior": _DENY, "message": choice.text})
    if choice.option == _YES:
        return _decision({"behavior": _ALLOW})
    if choice.option == _NO:
        return _decision({"behavior": _DENY, "message": _DENIED})
    remembered = {_always(number): suggestion for number, (suggestion, _) in enumerate(_suggestions(payload), 1)}
    if choice.option not in remembered:
        return None
    return _decision({"behavior": _ALLOW, "updatedPermissions": [remembered[choice.option]]})


def _report(kind: SignalKind, detail: str, text: str, turn: str) -> SignalReport:
    return SignalReport(kind=kind, source=Source.SIGNAL, detail=detail, text=text, turn=turn)


def _with_time(note: str) -> str:
    """Makes the end of a usage limit readable: the note has it behind a bar, in seconds since the epoch."""
    text, _, moment = note.rpartition("|")
    if not text or not moment.isascii() or not moment.isdigit() or not 0 < int(moment) < _LATEST_TIME:
        return note
    return f"{text}; try again after {datetime.fromtimestamp(int(moment), UTC):%Y-%m-%d %H:%M:%S} UTC"


def _asked(payload: Record) -> str:
    """Returns what a permission request is about: the tool, and its most telling input."""
    tool, given = text_at(payload, "tool_name") or "a tool", table_at(payload, "tool_input")
    questions = [text_at(question, "question") for question in tables_at(given, "questions")]
    if any(questions):
        return " ".join(filter(None, questions))
    telling = next((value for key in _TELLING if (value := text_at(given, key))), "")
    return f"{tool}: {telling}" if telling else tool


def _permission(payload: Record, question_id: str) -> Question:
    tool, given = text_at(payload, "tool_name") or "a tool", table_at(payload, "tool_input")
    inputs = [value for key in ("description", *_TELLING) if (value := text_at(given, key))]
    # A tool of an MCP server has parameters of its own; its dialog shows them like this.
    inputs = inputs or [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in given.items()]
    # No numbers: its dialog offers other options than its hook, so a number would mean something else on the screen.
    always = [
        Option(key=_always(number), label=safe_line(label), effect=OptionEffect.ALLOW_ALWAYS)
        for number, (_, label) in enumerate(_suggestions(payload), 1)
    ]
    yes, no = (
        Option(key=_YES, label="Yes", effect=OptionEffect.ALLOW),
        Option(key=_NO, label="No", effect=OptionEffect.DENY),
    )
    return Question(
        id=question_id,
        kind=QuestionKind.PERMISSION,
        title=safe_line(f"May it use {tool}?"),
        detail=safe_lines("\n".join(dict.fromkeys(inputs))),
        options=(yes, *always, no),
        takes_text=False,
    )


def _always(number: int) -> str:
    return "always" if number == 1 else f"always-{number}"


def _explained(question: Record, *, is_one: bool) -> str:
    """Returns the options' descriptions; of several questions, also the questions and all options."""
    lines = [] if is_one else [text_at(question, "question")]
    for number, option in enumerate(tables_at(question, "options"), 1):
        about = text_at(option, "description")
        if about or not is_one:
            lines.append(f"{number}. {text_at(option, 'label')}" + (f": {about}" if about else ""))
    return "\n".join(lines)


def _answer(payload: Record, choice: Choice) -> Json | None:
    given = table_at(payload, "tool_input")
    questions = tables_at(given, "questions")
    if len(questions) != 1:
        return None
    offered = tables_at(questions[0], "options")
    number = int(choice.option) if choice.option.isascii() and choice.option.isdigit() else 0
    if not choice.text and not 1 <= number <= len(offered):
        return None
    said = choice.text or text_at(offered[number - 1], "label")
    answers = {text_at(questions[0], "question"): said}
    return _decision({"behavior": _ALLOW, "updatedInput": {**given, "answers": answers}})


def _suggestions(payload: Record) -> list[tuple[Record, str]]:
    """Returns the permissions that it offers to remember, each with a label; one without a label is left out."""
    named = ((suggestion, _remembered(suggestion)) for suggestion in tables_at(payload, "permission_suggestions"))
    return [(suggestion, label) for suggestion, label in named if label]


def _remembered(suggestion: Record) -> str:
    where = text_at(suggestion, "destination")
    how_long = f" ({where})" if where else ""
    match text_at(suggestion, "type"):
        case "addRules" if text_at(suggestion, "behavior") in ("", _ALLOW):
            rules = [_rule(rule) for rule in tables_at(suggestion, "rules")]
            return f"Yes, and don't ask again for {', '.join(rules)}{how_long}" if rules else ""
        case "addDirectories":
            folders: object = suggestion.get("directories")
            texts = list(cast("list[object]", folders)) if isinstance(folders, list) else []
            return f"Yes, and always allow access to {', '.join(map(str, texts))}{how_long}" if texts else ""
        case "setMode":
            return f"Yes, and switch to {text_at(suggestion, 'mode')}{how_long}"
        case _:
            return ""


def _rule(rule: Record) -> str:
    content = text_at(rule, "ruleContent")
    return f"{text_at(rule, 'toolName')}({content})" if content else text_at(rule, "toolName")


def _decision(decision: dict[str, Any]) -> Json:
    return {"hookSpecificOutput": {"hookEventName": _PERMISSION_REQUEST, "decision": decision}}
