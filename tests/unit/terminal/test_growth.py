"""What is told of an answer while it grows on a screen."""

from __future__ import annotations

from synapse.terminal.answer import StableText


def told(*shown: str) -> list[str]:
    growth = StableText()
    return [growth.receive(text) for text in shown]


def test_a_line_is_told_when_two_looks_show_it() -> None:
    assert told("The weather", "The weather is\nfine", "The weather is\nfine", "The weather is\nfine\nnow") == [
        "",
        "",
        "The weather is\nfine",
        "",
    ]


def test_what_moves_is_never_told() -> None:
    assert told("one\n| 1", "one\n/ 2", "one\ntwo\n- 3", "one\ntwo\n| 4") == ["", "one", "", "one\ntwo"]


def test_the_same_text_and_less_of_it_are_no_news() -> None:
    assert told("a\nb", "a\nb", "a\nb", "a", "a") == ["", "a\nb", "", "", ""]


def test_a_text_that_was_rewritten_is_told_anew() -> None:
    assert told("Thinking", "Thinking", "The answer", "The answer") == ["", "Thinking", "", "The answer"]


def test_a_screen_that_is_rewritten_again_and_again_is_left_alone() -> None:
    shown = [f"page {number}" for number in range(30) for _ in range(2)]

    assert len([text for text in told(*shown) if text]) < 25


def test_nothing_shown_is_nothing_told() -> None:
    assert told("", "", "\n\n", "\n\n", "●", "●", "● Aha", "● Aha") == ["", "", "", "", "", "", "", "● Aha"]
