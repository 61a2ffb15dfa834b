"""Questions that an agent's program asks a person: a permission, a choice, or a dialog at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from synapse.core.errors import InvalidChoice
from synapse.core.message import Json

WAITING_FOR_PERSON: Final = "waiting_for_person"
"""The reason of a task that is in `input_required` in the middle of its turn."""


class QuestionKind(StrEnum):
    """The kind of a question decides who may answer it."""

    PERMISSION = "permission"
    """The program wants to do something; only a person may allow or deny it."""
    CHOICE = "choice"
    """The program wants to know something; the sender of the task may answer."""
    STARTUP = "startup"
    """The program needs an answer before it is ready: trust, login, update, theme."""


class OptionEffect(StrEnum):
    """The effect of choosing an option."""

    ALLOW = "allow"
    ALLOW_ALWAYS = "allow_always"
    DENY = "deny"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One answer that the question offers. People type `key`, usually a number, to choose it."""

    key: str
    label: str
    effect: OptionEffect = OptionEffect.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question. All texts are safe to print: no control characters, and of bounded length."""

    id: str
    kind: QuestionKind
    title: str
    """The question in one line."""
    detail: str = ""
    """The subject, such as the command to run; may have several lines."""
    options: tuple[Option, ...] = ()
    takes_text: bool = False
    """The question accepts free text."""
    source: str = "screen"
    """Where the question was found: `signal`, `transcript` or `screen`."""
    hint: str = ""
    """The next step, if the question cannot be answered from here."""

    @property
    def text(self) -> str:
        """The whole question for people: title, detail, and the options."""
        offered = [f"{option.key}{'.' if option.key.isdigit() else ':'} {option.label}" for option in self.options]
        return "\n".join(line for line in (self.title, self.detail, *offered, self.hint) if line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An answer: the key of an option, or free text."""

    option: str = ""
    text: str = ""


_VERDICTS: Final[Mapping[str, tuple[OptionEffect, ...]]] = {
    "allow": (OptionEffect.ALLOW, OptionEffect.ALLOW_ALWAYS),
    "deny": (OptionEffect.DENY,),
}
"""The effects that each verdict may choose, best first: allowing once comes before allowing always."""
_WORDS: Final[Mapping[str, str]] = {
    "yes": "allow",
    "y": "allow",
    "allow": "allow",
    "approve": "allow",
    "no": "deny",
    "n": "deny",
    "deny": "deny",
}
"""Words of a message that mean a verdict, unless an option has that name."""


def chosen(question: Question, *, verdict: str = "", option: str = "", text: str = "") -> Choice:
    """Returns the choice for an option (its key or label), a verdict, or free text.

    Raises InvalidChoice if the question offers no such answer.
    """
    if option:
        named = _find(question, option.strip())
        if named is None:
            raise InvalidChoice(f"'{option}' is not offered", _offered(question))
        return Choice(option=named.key)
    if verdict:
        meant = _option_for(question, verdict)
        if meant is None:
            raise InvalidChoice(f"no option means '{verdict}'", _offered(question))
        return Choice(option=meant.key)
    if not text.strip():
        raise InvalidChoice("the answer is empty", _offered(question))
    if not question.takes_text:
        raise InvalidChoice("the question does not accept free text", _offered(question))
    return Choice(text=text)


def chosen_in_words(question: Question, text: str) -> Choice:
    """Returns the choice that a message makes: the option that it names, a yes or a no, else its text.

    Raises InvalidChoice if the question offers no such answer.
    """
    word = text.strip()
    named = _find(question, word)
    if named is not None:
        return Choice(option=named.key)
    meant = _option_for(question, _WORDS.get(word.lower().rstrip(".!"), ""))
    return Choice(option=meant.key) if meant is not None else chosen(question, text=text)


def denial(question: Question) -> Choice | None:
    """Returns the choice that denies, or None if the question offers none."""
    option = _option_for(question, "deny")
    return None if option is None else Choice(option=option.key)


def label_of(question: Question, choice: Choice) -> str:
    """Returns the choice as people read it: the label of the option, or the text."""
    return next((option.label for option in question.options if option.key == choice.option), choice.text)


def question_fields(question: Question) -> Json:
    """Returns the question as JSON, for a task's metadata and the wire."""
    return {
        "id": question.id,
        "kind": question.kind.value,
        "title": question.title,
        "detail": question.detail,
        "options": [
            {"key": option.key, "label": option.label, "leaning": option.effect.value} for option in question.options
        ],
        "takes_text": question.takes_text,
        "source": question.source,
        "hint": question.hint,
    }


def question_from(fields: object) -> Question | None:
    """Returns the question that `question_fields` described, or None for anything else."""
    if not isinstance(fields, dict):
        return None
    given = cast("dict[str, Any]", fields)
    try:
        return Question(
            id=str(given["id"]),
            kind=QuestionKind(given["kind"]),
            title=str(given["title"]),
            detail=str(given["detail"]),
            options=tuple(
                Option(key=str(one["key"]), label=str(one["label"]), effect=OptionEffect(one["leaning"]))
                for one in given["options"]
            ),
            takes_text=given["takes_text"] is True,
            source=str(given["source"]),
            hint=str(given["hint"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _find(question: Question, name: str) -> Option | None:
    """Returns the option with that key, else with that label. Keys come first because people are told to type them."""
    by_key = (option for option in question.options if option.key.lower() == name.lower())
    by_label = (option for option in question.options if option.label.lower() == name.lower())
    return next(by_key, None) or next(by_label, None)


def _option_for(question: Question, verdict: str) -> Option | None:
    return next(
        (option for wanted in _VERDICTS.get(verdict, ()) for option in question.options if option.effect is wanted),
        None,
    )


def _offered(question: Question) -> list[str]:
    words = ["free text"] if question.takes_text else []
    return [f"{option.key} ({option.label})" for option in question.options] + words
