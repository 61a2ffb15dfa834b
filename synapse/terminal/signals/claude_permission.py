"""What Claude Code's PermissionRequest hook asks, and how that hook is answered.

The hook waits while its dialog is shown; whichever is answered first counts. A question to the person (the tool
AskUserQuestion) comes by the same hook, and is answered by allowing the tool with the answers put into its input.
"""

from __future__ import annotations

from typing import Any, Final, cast

from synapse.core.message import Json
from synapse.core.question import Choice, Leaning, Option, Question, QuestionKind
from synapse.terminal.safe_text import safe_line, safe_lines
from synapse.terminal.signals.options import numbered
from synapse.terminal.signals.report import Record, items, part, word

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
        Option(key=_always(number), label=safe_line(label), leaning=Leaning.ALLOW_ALWAYS)
        for number, (_, label) in enumerate(_suggestions(payload), 1)
    ]
    yes, no = Option(key=_YES, label="Yes", leaning=Leaning.ALLOW), Option(key=_NO, label="No", leaning=Leaning.DENY)
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
    return numbered((word(option, "label"), Leaning.OTHER) for option in items(question, "options"))


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
