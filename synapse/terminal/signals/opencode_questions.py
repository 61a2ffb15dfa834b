"""What OpenCode (1.18) asks a person, and how its server is told the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from synapse.core.question import Choice, Leaning, Question, QuestionKind
from synapse.terminal.evidence import Source
from synapse.terminal.safe_text import safe_line, safe_lines
from synapse.terminal.signals.options import numbered, position
from synapse.terminal.signals.report import Record, items, word

_REPLIES: Final = (
    ("once", "Allow once", Leaning.ALLOW),
    ("always", "Allow always", Leaning.ALLOW_ALWAYS),
    ("reject", "Reject", Leaning.DENY),
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
        options=numbered((word(option, "label"), Leaning.OTHER) for option in options),
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
