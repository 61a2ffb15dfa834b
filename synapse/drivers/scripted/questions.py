"""How a table of a script becomes a question for a person:

    { question = "Run the tests?", detail = "pytest -q", options = ["allow: Yes", "deny: No"] }

What stands before the colon of an option says what it amounts to (`allow`, `allow_always`, `deny`); without it, none of
these. Options are numbered from 1.
"""

from __future__ import annotations

from typing import Final

from synapse.core.question import Leaning, Option, Question, QuestionKind
from synapse.drivers.scripted.fields import Fields

QUESTION_OPTIONS: Final = ("kind", "detail", "options", "takes_text", "hint")
_YES_OR_NO: Final = ("allow: Yes", "deny: No")
_KINDS: Final = tuple(kind.value for kind in QuestionKind)


def parse_question(fields: Fields, kind: QuestionKind = QuestionKind.PERMISSION) -> Question:
    """Return the question that a table describes; each time it is asked, it gets an id of its own.

    Raises InvalidScript.
    """
    given = fields.text("kind", kind.value)
    if given not in _KINDS:
        raise fields.wrong("kind", "one of " + ", ".join(_KINDS))
    takes_text = fields.flag("takes_text", default=False)
    labels = fields.texts("options") if "options" in fields else () if takes_text else _YES_OR_NO
    return Question(
        id="",
        kind=QuestionKind(given),
        title=fields.text("question"),
        detail=fields.text("detail", ""),
        options=tuple(_option(number, label) for number, label in enumerate(labels, 1)),
        takes_text=takes_text,
        source="signal",
        hint=fields.text("hint", ""),
    )


def _option(number: int, given: str) -> Option:
    word, colon, label = given.partition(": ")
    if colon and word in frozenset(Leaning):
        return Option(key=str(number), label=label, leaning=Leaning(word))
    return Option(key=str(number), label=given)
