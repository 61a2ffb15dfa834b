"""The answer as the screen shows it, whole at the end and stable while it grows."""

from __future__ import annotations

import pytest

from synapse.terminal.answer import StableText, answer_text, count_shown
from synapse.terminal.screen import Screen
from tests.unit.terminal.bundled import bundled
from tests.unit.terminal.golden_screens import picture
from tests.unit.terminal.scenes import RULE, TEXT, line_profile, page_profile, quiet_profile

CLIS = ("claude", "codex", "copilot", "gemini", "opencode")
BOX = (RULE, "▸", RULE, "  ? for help")


@pytest.mark.parametrize("cli", CLIS)
def test_a_short_answer_of_a_real_cli_is_cut_out_exactly(cli: str) -> None:
    screen = picture(f"{cli}/ready_after_answer")

    assert answer_text(screen.lines, "say hi", bundled(cli)) == "FAKE-ECHO: say hi"


@pytest.mark.parametrize("cli", CLIS)
def test_a_long_answer_of_a_real_cli_is_whole_and_nothing_but_the_answer(cli: str) -> None:
    screen = picture(f"{cli}/ready_after_long_answer")

    lines = [line.strip() for line in answer_text(screen.lines, "LONGANS please", bundled(cli)).split("\n")]

    assert lines[0].startswith("First paragraph of the answer, long enough that it must wrap on a screen")
    assert lines[1].endswith("it does here.") or lines[1] == "does here."
    assert lines[-1] == "Last line of the answer."
    assert any("item two" in line for line in lines)


def test_a_line_program_s_answer_stands_between_the_message_and_the_prompt() -> None:
    lines = ["welcome", "> earlier", "old answer", "> " + TEXT, "first", "", "  second", "> "]

    assert answer_text(lines, TEXT, line_profile()) == "first\n\n  second"


def test_an_answer_that_has_scrolled_into_history_is_whole() -> None:
    screen = Screen(40, 10)
    answer = [f"line {number}" for number in range(1, 401)]
    screen.feed(("> " + TEXT + "\r\n" + "\r\n".join(answer) + "\r\n> ").encode())

    assert answer_text(screen.history(2000), TEXT, line_profile()) == "\n".join(answer)


def test_an_answer_that_repeats_the_message_keeps_the_repetition() -> None:
    lines = ["> " + TEXT, TEXT, "> "]

    assert answer_text(lines, TEXT, line_profile()) == TEXT
    assert answer_text(["$ " + TEXT, TEXT], TEXT, quiet_profile()) == TEXT


def test_of_two_messages_of_one_task_the_last_is_answered() -> None:
    lines = ["> " + TEXT, "old", "> " + TEXT, "new", "> "]

    assert answer_text(lines, TEXT, line_profile()) == "new"


def test_a_message_that_the_program_wraps_and_indents_is_walked_over() -> None:
    text = TEXT + " and go on, and on, until the end"
    lines = ["▸ [A2A:1a2b3c4d:synapse-codex-8120:R] please review", "  this and go on, and on,", "  until the end"]

    answer = answer_text([*lines, "", "● yes", "  and no", "✻ Worked for 3 s", *BOX], text, page_profile())

    assert answer == "yes\nand no"


def test_a_message_of_several_lines_is_walked_over() -> None:
    text = "[A2A:1a2b3c4d:user] one\n\ntwo"

    assert answer_text(["▸ [A2A:1a2b3c4d:user] one", "", "  two", "● ok", *BOX], text, page_profile()) == "ok"


def test_a_message_that_a_mark_stands_for_is_found_by_the_mark() -> None:
    lines = ["▸ before", "● old", "▸ [Pasted 20 lines]", "● new", *BOX]

    assert answer_text(lines, TEXT, page_profile()) == "new"


def test_when_the_message_has_scrolled_away_all_that_is_left_is_the_answer() -> None:
    assert answer_text(["  the end", "  of it", *BOX], TEXT, page_profile()) == "the end\nof it"


def test_when_another_message_is_there_and_ours_is_not_there_is_no_answer() -> None:
    assert answer_text(["▸ another person", "● for them", *BOX], TEXT, page_profile()) == ""
    assert answer_text(["$ nothing of ours"], TEXT, quiet_profile()) == ""


def test_a_message_with_nothing_below_has_an_empty_answer() -> None:
    assert answer_text(["> " + TEXT, "> "], TEXT, line_profile()) == ""
    assert answer_text(["$ " + TEXT], TEXT, quiet_profile()) == ""


def test_a_message_cut_short_by_the_program_does_not_swallow_the_answer() -> None:
    lines = ["▸ [A2A:1a2b3c4d:synapse-codex-8120:R] please…", "● certainly", *BOX]

    assert answer_text(lines, TEXT, page_profile()) == "certainly"


def test_without_a_prompt_rule_the_prompt_is_what_stands_before_the_message() -> None:
    assert answer_text(["# " + TEXT, "hello", "# "], TEXT, quiet_profile()) == "hello"
    assert answer_text(["# " + TEXT, "hello", "#"], TEXT, quiet_profile()) == "hello"


def test_a_long_message_whose_beginning_has_scrolled_away_is_known_by_its_end() -> None:
    text = "[A2A:1a2b3c4d:user] " + " ".join(f"word{number}" for number in range(60))
    lines = ["  word50 word51 word52 word53 word54", "  word55 word56 word57 word58 word59", "● yes", *BOX]

    assert answer_text(lines, text, page_profile()) == "yes"


def test_a_frame_beside_an_empty_line_of_the_message_does_not_end_it() -> None:
    profile = page_profile(answer={"echo": "^┃ ", "strip": ["^┃"]})
    lines = ["┃ [A2A:1a2b3c4d:user] one", "┃", "┃ two", "  yes", *BOX]

    assert answer_text(lines, "[A2A:1a2b3c4d:user] one\n\ntwo", profile) == "yes"


def test_where_there_is_no_prompt_to_be_seen_the_answer_goes_to_the_end() -> None:
    assert answer_text(["▸ " + TEXT[:40], "  " + TEXT[40:], "● yes"], TEXT, page_profile()) == "yes"


@pytest.mark.parametrize(
    ("lines", "text", "answer"),
    [
        (["2^10", "1024", ""], "2^10", "1024"),
        (["1", "1", ""], "1", "1"),
        (["2", "12", "22", "3", ""], "2", "12\n22\n3"),
        (["bc 1.07", "calc: 1+1", "2", ""], "1+1", "2"),
        (["$ ls", "tools", "zeta", "$"], "ls", "tools\nzeta"),
        (["ask: hello", "you said hello", "1", "hello", ""], "hello", "you said hello\n1\nhello"),
        (["hello", "one", "hello", "two", ""], "hello", "one\nhello\ntwo"),
    ],
)
def test_a_bare_message_is_found_by_itself(lines: list[str], text: str, answer: str) -> None:
    assert answer_text(lines, text, quiet_profile(envelope=False)) == answer


def test_a_bare_message_is_found_behind_the_prompt_alone() -> None:
    lines = ["> 1", "old", "> 1", "21", "> 31 is no echo of it", "> "]

    assert answer_text(lines, "1", line_profile(envelope=False)) == "21\n> 31 is no echo of it"


def test_a_bare_message_that_was_wrapped_is_found() -> None:
    lines = ["> select a_long_name", "from a_table;", "42", "> "]

    assert answer_text(lines, "select a_long_name from a_table;", line_profile(envelope=False)) == "42"


def test_a_short_bare_message_of_several_lines_is_walked_over() -> None:
    profile = quiet_profile(envelope=False)
    before = ["1+1 2+2", "syntax error", ""]
    earlier = count_shown(before, "1+1\n2+2", profile)

    assert answer_text([*before[:-1], "1+1", "2+2", "2", "4", ""], "1+1\n2+2", profile, earlier=earlier) == "2\n4"


def test_the_answer_to_an_earlier_message_of_the_same_text_is_not_ours() -> None:
    profile = quiet_profile(envelope=False)
    before = ["if (x == 5) 77", "77", "x = 6", ""]
    earlier = count_shown(before, "if (x == 5) 77", profile)

    assert earlier == 1
    assert answer_text([*before[:-1], "if (x == 5) 77", ""], "if (x == 5) 77", profile, earlier=earlier) == ""
    assert answer_text([*before[:-1], "if (x == 5) 77", "78", ""], "if (x == 5) 77", profile, earlier=earlier) == "78"


def test_a_repetition_in_the_answer_is_kept_also_when_the_same_was_said_before() -> None:
    profile = quiet_profile(envelope=False)
    before = ["hello", "hello", ""]

    lines = ["hello", "hello", "hello", "hello", ""]
    assert answer_text(lines, "hello", profile, earlier=count_shown(before, "hello", profile)) == "hello"


def test_where_the_screen_was_cleared_the_last_place_is_ours() -> None:
    assert answer_text(["1+1", "2", ""], "1+1", quiet_profile(envelope=False), earlier=3) == "2"


def test_with_a_rule_for_the_echo_earlier_places_do_not_matter() -> None:
    assert count_shown(["> 1", "1", "> "], "1", line_profile(envelope=False)) == 0


def stable_texts(*shown: str) -> list[str]:
    stable = StableText()
    return [stable.receive(text) for text in shown]


def test_a_line_is_stable_once_two_looks_show_it() -> None:
    assert stable_texts("The weather", "The weather is\nfine", "The weather is\nfine", "The weather is\nfine\nnow") == [
        "",
        "",
        "The weather is\nfine",
        "",
    ]


def test_text_that_moves_is_not_stable() -> None:
    assert stable_texts("one\n| 1", "one\n/ 2", "one\ntwo\n- 3", "one\ntwo\n| 4") == ["", "one", "", "one\ntwo"]


def test_repeated_or_shorter_text_is_no_news() -> None:
    assert stable_texts("a\nb", "a\nb", "a\nb", "a", "a") == ["", "a\nb", "", "", ""]


def test_a_rewritten_text_is_returned_again() -> None:
    assert stable_texts("Thinking", "Thinking", "The answer", "The answer") == ["", "Thinking", "", "The answer"]


def test_a_screen_that_is_rewritten_again_and_again_has_no_stable_text() -> None:
    shown = [f"page {number}" for number in range(30) for _ in range(2)]

    assert len([text for text in stable_texts(*shown) if text]) < 25


def test_blank_screens_and_lone_bullets_have_no_stable_text() -> None:
    assert stable_texts("", "", "\n\n", "\n\n", "●", "●", "● Aha", "● Aha") == ["", "", "", "", "", "", "", "● Aha"]
