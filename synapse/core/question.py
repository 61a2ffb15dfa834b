"""What an agent's program asks a person while it works: a permission, a choice, or something at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from synapse.core.errors import InvalidChoice
from synapse.core.message import Json
from synapse.core.task import Task, TaskState

QUESTION: Final = "question"
"""The key of a task's metadata that has the open question."""
ANSWERED: Final = "answered"
"""The key that tells who answered the last one, and how."""
WAITING_FOR_PERSON: Final = "waiting_for_person"
"""Why a task is in `input_required` whose turn is not over."""


class QuestionKind(StrEnum):
    """What is asked; the kind decides who may answer."""

    PERMISSION = "permission"
    """It wants to do something: only a person allows or denies it."""
    CHOICE = "choice"
    """It wants to know something: whoever gave it the task may answer."""
    STARTUP = "startup"
    """It is not ready before this is answered: trust, login, update, theme."""


class OptionEffect(StrEnum):
    """What choosing an option amounts to."""

    ALLOW = "allow"
    ALLOW_ALWAYS = "allow_always"
    DENY = "deny"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One of the answers that are offered. `key` is what people type to choose it: usually its number."""

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
    """What it is about, such as the command that shall run; may have several lines."""
    options: tuple[Option, ...] = ()
    takes_text: bool = False
    """An answer in free words is possible."""
    source: str = "screen"
    """Who told of it: `signal`, `transcript` or `screen`."""
    hint: str = ""
    """What to do about it where it cannot be answered from here."""

    @property
    def text(self) -> str:
        """All of it, for people: the question, what it is about, and the answers that are offered."""
        offered = [f"{option.key}{'.' if option.key.isdigit() else ':'} {option.label}" for option in self.options]
        return "\n".join(line for line in (self.title, self.detail, *offered, self.hint) if line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How a question is answered: the key of an option, or words of one's own."""

    option: str = ""
    text: str = ""


_VERDICTS: Final[Mapping[str, tuple[OptionEffect, ...]]] = {
    "allow": (OptionEffect.ALLOW, OptionEffect.ALLOW_ALWAYS),
    "deny": (OptionEffect.DENY,),
}
"""What `allow` and `deny` pick, the first that is offered. Once is always preferred to for ever."""
_WORDS: Final[Mapping[str, str]] = {
    "yes": "allow",
    "y": "allow",
    "allow": "allow",
    "approve": "allow",
    "no": "deny",
    "n": "deny",
    "deny": "deny",
}
"""Words of a message that mean a verdict, where no option is called so."""


def chosen(question: Question, *, verdict: str = "", option: str = "", text: str = "") -> Choice:
    """Return the answer that is meant: an option by key or label, a verdict, or free words.

    Raises InvalidChoice when the question offers no such answer.
    """
    if option:
        return _option_called(question, option)
    if verdict:
        return _option_with_effect(question, verdict)
    if not text.strip():
        raise InvalidChoice("there is no answer", _offered(question))
    if not question.takes_text:
        raise InvalidChoice("words of one's own cannot be given there", _offered(question))
    return Choice(text=text)


def chosen_in_words(question: Question, text: str) -> Choice:
    """Return the answer that a message gives: an option that it names, a yes or a no, else its words.

    Raises InvalidChoice when the question offers no such answer.
    """
    word = text.strip()
    named = _find(question, word)
    if named is not None:
        return Choice(option=named.key)
    meant = _option_for(question, _WORDS.get(word.lower().rstrip(".!"), ""))
    return Choice(option=meant.key) if meant is not None else chosen(question, text=text)


def denial(question: Question) -> Choice | None:
    """The answer that turns it down, if it offers one."""
    option = _option_for(question, "deny")
    return None if option is None else Choice(option=option.key)


def label_of(question: Question, choice: Choice) -> str:
    """How a person calls the answer: the option's label, or the words."""
    return next((option.label for option in question.options if option.key == choice.option), choice.text)


def question_fields(question: Question) -> Json:
    """The question as JSON: in a task's metadata, and on the wire."""
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


def open_question(task: Task) -> Question | None:
    """What the task's program asks now. A caller may have put something into the metadata too: that asks nothing."""
    if task.state is not TaskState.INPUT_REQUIRED or task.reason != WAITING_FOR_PERSON:
        return None
    fields = task.metadata.get(QUESTION)
    return _read(cast("dict[str, Any]", fields)) if isinstance(fields, dict) else None


def _read(given: Mapping[str, Any]) -> Question | None:
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


def _option_called(question: Question, name: str) -> Choice:
    option = _find(question, name.strip())
    if option is None:
        raise InvalidChoice(f"'{name}' is not offered", _offered(question))
    return Choice(option=option.key)


def _option_with_effect(question: Question, verdict: str) -> Choice:
    option = _option_for(question, verdict)
    if option is None:
        raise InvalidChoice(f"nothing that is offered amounts to '{verdict}'", _offered(question))
    return Choice(option=option.key)


def _find(question: Question, name: str) -> Option | None:
    """The option of that key, else of that label. A key wins: it is what people are told to type."""
    by_key = (option for option in question.options if option.key.lower() == name.lower())
    by_label = (option for option in question.options if option.label.lower() == name.lower())
    return next(by_key, None) or next(by_label, None)


def _option_for(question: Question, verdict: str) -> Option | None:
    return next(
        (option for wanted in _VERDICTS.get(verdict, ()) for option in question.options if option.effect is wanted),
        None,
    )


def _offered(question: Question) -> list[str]:
    words = ["words of your own"] if question.takes_text else []
    return [f"{option.key} ({option.label})" for option in question.options] + words
