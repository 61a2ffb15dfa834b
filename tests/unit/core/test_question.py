"""Questions: which answer a caller means, and how a task stores a question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.core.errors import InvalidChoice
from synapse.core.lifecycle import replay
from synapse.core.question import (
    Choice,
    Option,
    OptionEffect,
    Question,
    QuestionKind,
    chosen,
    chosen_in_words,
    denial,
    label_of,
    question_fields,
)
from synapse.core.task import Task, TaskState
from tests.fakes.facts import moved, noted, opened

PERMISSION = Question(
    id="q-1",
    kind=QuestionKind.PERMISSION,
    title="Run the command?",
    detail="rm -r build",
    options=(
        Option(key="1", label="Yes, and do not ask again", effect=OptionEffect.ALLOW_ALWAYS),
        Option(key="2", label="Yes", effect=OptionEffect.ALLOW),
        Option(key="3", label="No", effect=OptionEffect.DENY),
    ),
)
CHOICE = Question(
    id="q-2",
    kind=QuestionKind.CHOICE,
    title="Which branch?",
    options=(Option(key="a", label="main"), Option(key="b", label="no")),
    takes_text=True,
)
texts = st.text(max_size=20)
options = st.builds(Option, key=texts, label=texts, effect=st.sampled_from(OptionEffect))
questions = st.builds(
    Question,
    id=texts,
    kind=st.sampled_from(QuestionKind),
    title=texts,
    detail=texts,
    options=st.lists(options, max_size=4).map(tuple),
    takes_text=st.booleans(),
    source=texts,
    hint=texts,
)


def asking(
    metadata: dict[str, Any], *, reason: str = "waiting_for_person", state: TaskState = TaskState.INPUT_REQUIRED
) -> Task:
    return replay([opened(), noted(metadata), moved(state, at=2, reason=reason)])


def test_allow_prefers_once_to_always() -> None:
    assert chosen(PERMISSION, verdict="allow") == Choice(option="2")
    only_always = replace(PERMISSION, options=(PERMISSION.options[0], PERMISSION.options[2]))
    assert chosen(only_always, verdict="allow") == Choice(option="1")


def test_deny_chooses_the_option_that_denies() -> None:
    assert chosen(PERMISSION, verdict="deny") == Choice(option="3")
    assert denial(PERMISSION) == Choice(option="3")
    assert denial(CHOICE) is None


@pytest.mark.parametrize(("name", "key"), [("2", "2"), ("YES", "2"), (" no ", "3"), ("yes, and do not ask again", "1")])
def test_an_option_is_called_by_its_key_or_its_label(name: str, key: str) -> None:
    assert chosen(PERMISSION, option=name) == Choice(option=key)


@pytest.mark.parametrize(
    "answer", [{"option": "4"}, {"text": "because"}, {"verdict": "maybe"}, {"text": "  "}], ids=str
)
def test_an_answer_that_is_not_offered_is_refused_with_the_options(answer: dict[str, str]) -> None:
    with pytest.raises(InvalidChoice) as caught:
        chosen(PERMISSION, **answer)

    assert caught.value.hint == "choose one of: 1 (Yes, and do not ask again), 2 (Yes), 3 (No)"


def test_free_text_is_accepted_where_the_question_takes_it() -> None:
    assert chosen(CHOICE, text="a new one") == Choice(text="a new one")


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        ("yes", Choice(option="2")),
        ("Allow!", Choice(option="2")),
        ("no", Choice(option="3")),
        ("deny.", Choice(option="3")),
        ("1", Choice(option="1")),
    ],
)
def test_a_message_says_yes_or_no_or_names_an_option(words: str, choice: Choice) -> None:
    assert chosen_in_words(PERMISSION, words) == choice


@pytest.mark.parametrize(
    ("words", "choice"),
    [("Main", Choice(option="a")), ("no", Choice(option="b")), ("yes", Choice(text="yes")), ("x", Choice(text="x"))],
)
def test_yes_is_free_text_where_no_option_allows(words: str, choice: Choice) -> None:
    assert chosen_in_words(CHOICE, words) == choice


def test_a_message_that_names_no_option_is_refused() -> None:
    with pytest.raises(InvalidChoice):
        chosen_in_words(PERMISSION, "well, it depends")


def test_an_answer_is_shown_by_its_label_or_its_text() -> None:
    assert label_of(PERMISSION, Choice(option="3")) == "No"
    assert label_of(CHOICE, Choice(text="a new one")) == "a new one"


def test_the_text_has_the_title_the_detail_and_the_options() -> None:
    assert PERMISSION.text == "Run the command?\nrm -r build\n1. Yes, and do not ask again\n2. Yes\n3. No"


@given(questions)
def test_a_question_survives_the_metadata_of_a_task(question: Question) -> None:
    assert asking({"question": question_fields(question)}).question == question


@pytest.mark.parametrize(
    "forged", ["text", {"id": "q"}, {**question_fields(CHOICE), "kind": "x"}, {**question_fields(CHOICE), "options": 3}]
)
def test_an_invalid_question_in_the_metadata_is_ignored(forged: object) -> None:
    assert asking({"question": forged}).question is None


def test_a_question_in_the_metadata_of_a_caller_is_ignored() -> None:
    fields = {"question": question_fields(CHOICE)}

    assert asking(fields, reason="").question is None
    assert asking(fields, state=TaskState.WORKING).question is None
