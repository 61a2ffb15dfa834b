"""Claude Code (2.1.325): four hooks, and its transcript for what no hook tells: an interrupt, and the answer untrimmed.

A permission dialog is told by PermissionRequest (see `claude_permission`). That it was answered in the terminal is told
by nothing that is cheap (PostToolUse carries the tool's whole output), but the dialog is seen to be gone.

What Claude Code's PermissionRequest hook asks, and how that hook is answered.

The hook waits while its dialog is shown; whichever is answered first counts. A question to the person (the tool
AskUserQuestion) comes by the same hook, and is answered by allowing the tool with the answers put into its input.
"""

from __future__ import annotations

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
    RATE_LIMITED,
    Record,
    SignalKind,
    SignalReport,
    failed,
    items,
    numbered,
    part,
    shortened,
    word,
)

_DAY: Final = 24 * 60 * 60
HOOKS: Final = {"UserPromptSubmit": 5, "PermissionRequest": _DAY, "Stop": 5, "StopFailure": 5}
"""Which hooks, and for how many seconds each may wait: the dialog is shown meanwhile, and the first answer counts."""
_INTERRUPTION: Final = "[Request interrupted by user"
_SETTINGS_FLAG: Final = "--settings"
_END_OF_TIME: Final = 1 << 37


def read_hook(payload: Record, question_id: str = "") -> SignalReport | None:
    """Return what a hook's payload says; None for a hook that says nothing about the turn.

    What is asked gets the id that is given: it has none of its own.
    """
    turn = word(payload, "prompt_id")
    match word(payload, "hook_event_name"):
        case "UserPromptSubmit":
            return _report(SignalKind.SUBMITTED, "its hook has the prompt", word(payload, "prompt"), turn)
        case "PermissionRequest":
            asked = asked_in(payload)
            heard = f"its hook says what it asks: {shortened(asked)}"
            return replace(_report(SignalKind.WAITING, heard, asked, turn), question=question_in(payload, question_id))
        case "Stop":
            answer = word(payload, "last_assistant_message")
            return _report(SignalKind.ANSWERED, "its hook says that it is done", answer, turn)
        case "StopFailure":
            return _failure(payload, turn)
        case _:
            return None


def read_record(record: Record) -> SignalReport | None:
    """Return what a line of the transcript says beyond the hooks: that a person interrupted the turn."""
    if record.get("type") != "user" or record.get("isSidechain") is True:
        return None
    for block in items(part(record, "message"), "content"):
        if word(block, "text").startswith(_INTERRUPTION):
            return failed(
                Source.TRANSCRIPT,
                INTERRUPTED,
                "it was interrupted in its terminal",
                heard="its transcript says that it was interrupted",
                turn=word(record, "promptId"),
            )
    return None


class LastWords:
    """What its assistant said last in a conversation, as the lines of the transcript have it."""

    def __init__(self) -> None:
        self._message = ""
        self._texts: list[str] = []
        self._lines: set[str] = set()

    def read(self, record: Record) -> None:
        """Take one line, once; a message has one for each of its blocks."""
        line = word(record, "uuid")
        if record.get("type") != "assistant" or record.get("isSidechain") is True or line in self._lines:
            return
        self._lines.add(line)
        message = part(record, "message")
        if word(message, "id") != self._message:
            self._message, self._texts = word(message, "id"), []
        self._texts += [word(block, "text") for block in items(message, "content") if word(block, "type") == "text"]

    def exact(self, answer: str) -> str | None:
        """The answer that a hook told, with the blanks around it that hooks leave out; None if this is another."""
        whole = ("".join(self._texts), "\n".join(self._texts), "\n\n".join(self._texts))
        return next((text for text in whole if text.strip() == answer.strip()), None)


def hook_settings(url: str, header: str, secret: str, prompt_command: str = "") -> dict[str, Any]:
    """Settings that make it report to `url`; HTTP hooks start no process.

    But it waits for each of them, and so would every prompt; only a command can run beside it.
    """
    reporting: dict[str, Any] = {"type": "http", "url": url, "headers": {header: secret}}
    hooks = {name: {**reporting, "timeout": seconds} for name, seconds in HOOKS.items()}
    if prompt_command:
        beside = {"type": "command", "command": prompt_command, "async": True}
        hooks["UserPromptSubmit"] = {**beside, "timeout": HOOKS["UserPromptSubmit"]}
    return {"hooks": {name: [{"hooks": [hook]}] for name, hook in hooks.items()}}


def merged(theirs: Record, ours: Record) -> dict[str, Any]:
    """The person's settings with our hooks behind theirs."""
    hooks: dict[str, Any] = dict(part(theirs, "hooks"))
    for name, groups in part(ours, "hooks").items():
        known = hooks.get(name)
        hooks[name] = [*(cast("list[object]", known) if isinstance(known, list) else []), *groups]
    return {**theirs, "hooks": hooks}


def settings_argument(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Take the person's own `--settings` (the last one counts) out of the arguments; empty when there is none."""
    theirs, rest, coming = "", list[str](), iter(arguments)
    for argument in coming:
        if argument == "--":
            rest += [argument, *coming]
        elif argument == _SETTINGS_FLAG:
            theirs = next(coming, "")
        elif argument.startswith(_SETTINGS_FLAG + "="):
            theirs = argument.partition("=")[2]
        else:
            rest.append(argument)
    return theirs, tuple(rest)


def _report(told: SignalKind, heard: str, text: str, turn: str) -> SignalReport:
    return SignalReport(told=told, source=Source.SIGNAL, detail=heard, text=text, turn=turn)


def _failure(payload: Record, turn: str) -> SignalReport:
    note = word(payload, "last_assistant_message") or word(payload, "error_details") or word(payload, "error")
    reason = RATE_LIMITED if word(payload, "error") == "rate_limit" else API_ERROR
    note = _with_time(note)
    return failed(Source.SIGNAL, reason, note, heard=f"its hook says that it failed: {shortened(note)}", turn=turn)


def _with_time(note: str) -> str:
    """A usage limit ends at a time that is told in seconds since the epoch, behind a bar."""
    text, _, moment = note.rpartition("|")
    if not text or not moment.isascii() or not moment.isdigit() or not 0 < int(moment) < _END_OF_TIME:
        return note
    return f"{text}; try again after {datetime.fromtimestamp(int(moment), UTC):%Y-%m-%d %H:%M:%S} UTC"


_EVENT: Final = "PermissionRequest"
_TELLING: Final = ("command", "file_path", "url", "path", "pattern", "query", "plan", "prompt", "description")
_ALLOW: Final = "allow"
_DENY: Final = "deny"
_YES: Final = "yes"
_NO: Final = "no"
_DENIED: Final = "The person said no."
_IN_TERMINAL: Final = "it asks several things at once: answer in its terminal"
GO_ON: Final[Json] = {}
"""The answer that decides nothing: the dialog stays, or was answered already."""


def asked_in(payload: Record) -> str:
    """What a permission request is about: the tool, and its most telling input."""
    tool, given = word(payload, "tool_name") or "a tool", part(payload, "tool_input")
    questions = [word(question, "question") for question in items(given, "questions")]
    if any(questions):
        return " ".join(filter(None, questions))
    telling = next((value for key in _TELLING if (value := word(given, key))), "")
    return f"{tool}: {telling}" if telling else tool


def question_in(payload: Record, question_id: str) -> Question:
    """What a hook's payload asks, as a question of that id."""
    given = part(payload, "tool_input")
    questions = items(given, "questions")
    if not questions:
        return _permission(payload, question_id)
    return Question(
        id=question_id,
        kind=QuestionKind.CHOICE,
        title=safe_line(asked_in(payload)),
        detail=safe_lines("\n".join(_explained(question, is_one=len(questions) == 1) for question in questions)),
        options=_choices(questions[0]) if len(questions) == 1 else (),
        takes_text=len(questions) == 1,
        hint="" if len(questions) == 1 else _IN_TERMINAL,
    )


def hook_answer(payload: Record, choice: Choice) -> Json | None:
    """How the hook is answered for a choice among the question's options; None when it cannot be."""
    if items(part(payload, "tool_input"), "questions"):
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


def _permission(payload: Record, question_id: str) -> Question:
    tool, given = word(payload, "tool_name") or "a tool", part(payload, "tool_input")
    told = [value for key in ("description", *_TELLING) if (value := word(given, key))]
    # Without numbers: its dialog offers others than its hook, so a number would mean another thing on the screen.
    always = [
        Option(key=_always(number), label=safe_line(label), leaning=OptionEffect.ALLOW_ALWAYS)
        for number, (_, label) in enumerate(_suggestions(payload), 1)
    ]
    yes, no = (
        Option(key=_YES, label="Yes", leaning=OptionEffect.ALLOW),
        Option(key=_NO, label="No", leaning=OptionEffect.DENY),
    )
    return Question(
        id=question_id,
        kind=QuestionKind.PERMISSION,
        title=safe_line(f"May it use {tool}?"),
        detail=safe_lines("\n".join(dict.fromkeys(told))),
        options=(yes, *always, no),
        takes_text=False,
    )


def _always(number: int) -> str:
    return "always" if number == 1 else f"always-{number}"


def _choices(question: Record) -> tuple[Option, ...]:
    return numbered((word(option, "label"), OptionEffect.OTHER) for option in items(question, "options"))


def _explained(question: Record, *, is_one: bool) -> str:
    """What the options mean; of several questions, all of each."""
    lines = [] if is_one else [word(question, "question")]
    for number, option in enumerate(items(question, "options"), 1):
        about = word(option, "description")
        if about or not is_one:
            lines.append(f"{number}. {word(option, 'label')}" + (f": {about}" if about else ""))
    return "\n".join(lines)


def _answer(payload: Record, choice: Choice) -> Json | None:
    given = part(payload, "tool_input")
    questions = items(given, "questions")
    if len(questions) != 1:
        return None
    offered = items(questions[0], "options")
    number = int(choice.option) if choice.option.isascii() and choice.option.isdigit() else 0
    if not choice.text and not 1 <= number <= len(offered):
        return None
    said = choice.text or word(offered[number - 1], "label")
    answers = {word(questions[0], "question"): said}
    return _decision({"behavior": _ALLOW, "updatedInput": {**given, "answers": answers}})


def _suggestions(payload: Record) -> list[tuple[Record, str]]:
    """What it would remember, each with a label; one that cannot be said in words is not offered."""
    named = ((suggestion, _remembered(suggestion)) for suggestion in items(payload, "permission_suggestions"))
    return [(suggestion, label) for suggestion, label in named if label]


def _remembered(suggestion: Record) -> str:
    where = word(suggestion, "destination")
    how_long = f" ({where})" if where else ""
    match word(suggestion, "type"):
        case "addRules" if word(suggestion, "behavior") in ("", _ALLOW):
            rules = [_rule(rule) for rule in items(suggestion, "rules")]
            return f"Yes, and don't ask again for {', '.join(rules)}{how_long}" if rules else ""
        case "addDirectories":
            folders: object = suggestion.get("directories")
            texts = list(cast("list[object]", folders)) if isinstance(folders, list) else []
            return f"Yes, and always allow access to {', '.join(map(str, texts))}{how_long}" if texts else ""
        case "setMode":
            return f"Yes, and switch to {word(suggestion, 'mode')}{how_long}"
        case _:
            return ""


def _rule(rule: Record) -> str:
    content = word(rule, "ruleContent")
    return f"{word(rule, 'toolName')}({content})" if content else word(rule, "toolName")


def _decision(decision: dict[str, Any]) -> Json:
    return {"hookSpecificOutput": {"hookEventName": _EVENT, "decision": decision}}
