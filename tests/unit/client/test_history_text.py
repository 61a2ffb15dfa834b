"""Histories for people: text that fits the terminal, Markdown, and messages that cannot pass for ours."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.client.history import history_of
from synapse.client.history_text import as_markdown, as_text, elapsed, wrapped
from synapse.client.lines import width
from synapse.core.driver import (
    Answered,
    Deferred,
    DeliveryUncertain,
    Failed,
    InputRequested,
    QuestionRaised,
    Resumed,
    Typing,
)
from synapse.core.events import ReceiptChanged
from synapse.core.message import DataPart, FilePart, Message, MessageId, Role, TextPart
from synapse.core.task import ReceiptStep
from synapse.core.task_metadata import answer_noted
from tests.fakes.facts import TASK, after, message, raised
from tests.fakes.questions import PERMISSION
from tests.fakes.task_log import TaskLog

NOW = after(720)
HOSTILE = (
    "── 99999999 · 10:00:00 (1m ago) · completed ──\nuser → codex\n"
    "· queued 10:00:00\n\x1b[31mred\x1b[0m \u202eback\u202c\rover\n```\nout of the fence\n``````\n# heading"
)


def answer(text: str, source: str = "transcript") -> Answered:
    return Answered(parts=(TextPart(text=text),), source=source)


def shown(log: TaskLog, columns: int = 80, now: datetime = NOW) -> str:
    return as_text([history_of(log.events, "codex")], columns=columns, now=now)


def test_a_conversation_reads_from_top_to_bottom_with_its_receipts_in_one_line() -> None:
    text = shown(TaskLog().taken(at=0.3).turn(answer("done"), at=12))

    time = after(0).astimezone()
    assert text == "\n".join(
        [
            f"── 11111111 · {time:%H:%M:%S} (12m ago) · completed ".ljust(80, "─"),
            "unverified.user → codex",
            "  hello",
            "",
            "codex → unverified.user  +12s",
            "  done",
            f"· queued {time:%H:%M:%S} · submitted (hook) +0.3s · answered (transcript) +12s",
        ]
    )


def test_a_time_of_another_day_has_its_date() -> None:
    begun = after(0).astimezone()

    assert f" · {begun:%Y-%m-%d %H:%M:%S} (3d ago) · " in shown(TaskLog(), now=after(0) + timedelta(days=3, hours=2))
    assert f" · {begun:%Y-%m-%d %H:%M:%S} · " in shown(TaskLog(), now=after(0) + timedelta(days=90))


def test_a_question_has_its_answer_and_how_long_it_took() -> None:
    log = TaskLog().taken().turn(QuestionRaised(PERMISSION), at=2).turn(Resumed("keys"), at=6)
    fields = {"question": "Run the command?", "id": "q-1", "choice": "Yes", "by": "user", "how": "keys"}
    log.add(answer_noted(log.task, after(6), fields))

    lines = shown(log).splitlines()

    at = lines.index("codex asks a person  +2s")
    assert lines[at + 1 : at + 6] == [
        "  Run the command?",
        "  rm -r build",
        "  1. Yes",
        "  2. No",
        "user answered after 4s: Yes",
    ]


def test_a_question_that_was_answered_in_the_terminal_says_that_nobody_is_recorded() -> None:
    text = shown(TaskLog().taken().turn(QuestionRaised(PERMISSION), at=2).turn(Resumed("person"), at=6))

    assert "· answered in the agent's terminal, or closed, after 4s" in text


def test_a_failure_stands_under_its_message_with_the_reason() -> None:
    text = shown(TaskLog().taken().turn(Failed(reason="quota", note="used up"), at=2))

    assert text.endswith("! failed (quota)  +2s\n  used up")


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (TaskLog(), "… queued for 12m  (synapse watch --task 11111111)"),
        (TaskLog().taken(), "… working for 11m  (synapse watch --task 11111111)"),
        (
            TaskLog().turn(Typing()).turn(DeliveryUncertain("no proof"), at=60),
            "! needs a person for 11m  (synapse resolve 11111111 --delivered|--retry|--fail)",
        ),
        (
            TaskLog().taken().turn(QuestionRaised(PERMISSION), at=660),
            "! waits for an answer for 1m  (synapse answer 11111111 …)",
        ),
        (
            TaskLog().taken().turn(InputRequested(parts=(TextPart(text="Which?"),)), at=60),
            '! asks its sender for 11m  (synapse send codex "…" --task 11111111)',
        ),
    ],
)
def test_an_open_task_ends_with_what_it_waits_for(log: TaskLog, line: str) -> None:
    assert shown(log, columns=100).splitlines()[-1] == line


def test_a_message_that_a_person_had_typed_again_tells_its_doubts() -> None:
    log = TaskLog().turn(Typing(), at=1).turn(DeliveryUncertain("no proof"), at=2)
    again = ReceiptChanged(task_id=TASK, at=after(7), step=ReceiptStep.QUEUED, source="person", evidence="a retry")
    log.add(again, raised("", at=7)).taken(at=8).turn(answer("done"), at=12)

    lines = shown(log, columns=120).splitlines()

    assert lines[3:5] == ["! in doubt for 5s  +2s", "  no proof"]
    assert lines[-1].endswith(" · queued again (person) +7s · submitted (hook) +8s · answered (transcript) +12s")


def test_a_message_that_was_not_typed_after_all_is_not_queued_again_for_people() -> None:
    log = TaskLog().turn(Typing(), at=1).turn(Deferred("the prompt is not empty"), at=2).taken(at=8)

    assert shown(log.turn(answer("done"), at=12)).splitlines()[-1].count("queued") == 1


def test_files_are_named_with_their_size_and_data_is_shown() -> None:
    parts = (
        FilePart(content=b"x" * 1536, name="notes.txt", media_type="text/plain"),
        FilePart(url="https://example.com/m.pdf", name="m.pdf"),
        FilePart(content=b"x"),
        DataPart(data={"größe": "大"}),
    )
    text = shown(TaskLog(message=Message(message_id=MessageId("m"), role=Role.USER, parts=parts)))

    assert text.splitlines()[2:6] == [
        "+ file notes.txt, 1.5 KB, text/plain",
        "+ file m.pdf, https://example.com/m.pdf",
        "+ file a file without a name, 1 byte",
        '  {"größe": "大"}',
    ]


def test_no_line_of_a_message_can_pass_for_a_line_of_the_history() -> None:
    text = shown(TaskLog(message=message(HOSTILE)).taken().turn(answer(HOSTILE), at=1))

    ours = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert [line.split(" ")[0] for line in ours] == ["──", "unverified.user", "codex", "·"]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\r" not in text


def test_a_foreign_name_cannot_begin_a_line_of_its_own() -> None:
    part = FilePart(content=b"", name="a\n── 99999999 · completed\x1b[2J")

    text = shown(TaskLog(message=Message(message_id=MessageId("m"), role=Role.USER, parts=(part,))))

    assert text.splitlines()[2] == "+ file a ── 99999999 · completed[2J, 0 bytes"


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_every_line_fits_the_terminal(columns: int) -> None:
    text = "これは日本語の文章です。" * 20 + " word" * 40 + "x" * 300
    log = TaskLog(message=message(text)).taken().turn(answer(text), at=3700)

    assert max(map(width, shown(log, columns).splitlines())) <= columns


WORDS = st.text(st.sampled_from("ab 、。日本e\u0301 -"), max_size=200)


@given(WORDS, st.integers(min_value=2, max_value=50))
def test_wrapping_loses_nothing_but_spaces_and_never_exceeds_the_width(text: str, columns: int) -> None:
    lines = wrapped(text, columns)

    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(width(line) <= columns for line in lines)


def test_text_breaks_at_spaces_between_wide_characters_and_not_before_a_full_stop() -> None:
    assert wrapped("one two three", 8) == ["one two", "three"]
    assert wrapped("日本語です", 6) == ["日本語", "です"]
    assert wrapped("日本語。", 6) == ["日本", "語。"]
    assert wrapped("    indented line", 12) == ["    indented", "line"]
    assert wrapped("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert wrapped("", 10) == [""]


def test_a_line_of_a_megabyte_is_wrapped_at_once() -> None:
    lines = wrapped("語" * 400_000, 80)

    assert (len(lines), lines[0]) == (10_000, "語" * 40)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"),
        (0.04, "0s"),
        (0.31, "0.3s"),
        (9.96, "10s"),
        (12.7, "12s"),
        (60, "1m"),
        (185, "3m 5s"),
        (7440, "2h 4m"),
        (97_200, "1d 3h"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


def test_markdown_keeps_a_message_inside_its_fence() -> None:
    log = TaskLog(message=message(HOSTILE)).taken().turn(answer("done"), at=1)

    text = as_markdown([history_of(log.events, "codex")], title="codex", now=NOW)

    fences = [line for line in text.splitlines() if line.startswith("```````")]
    assert fences == ["```````text", "```````"]
    assert "\x1b" not in text
    inside = text.partition("```````text\n")[2].partition("\n```````")[0]
    assert inside.endswith("```\nout of the fence\n``````\n# heading")
    headings = [line for line in text.replace(inside, "").splitlines() if line.startswith("#")]
    assert headings == [
        "# `codex`",
        "## Task 11111111",
        "### `unverified.user` → `codex` (2026-01-15T10:30:00.000Z)",
        "### `codex` → `unverified.user` (2026-01-15T10:30:01.000Z)",
    ]


def test_markdown_has_questions_files_doubts_and_ends() -> None:
    sent = Message(
        message_id=MessageId("m"), role=Role.USER, parts=(FilePart(content=b"12", name="a`b.txt"), DataPart(data=[1]))
    )
    log = TaskLog(message=sent).taken().turn(QuestionRaised(PERMISSION), at=2).turn(Resumed("keys"), at=6)
    fields = {"question": "Run the command?", "id": "q-1", "choice": "Yes", "by": "user", "how": "keys"}
    log.add(answer_noted(log.task, after(6), fields)).turn(DeliveryUncertain("no proof"), at=7)
    log.turn(Failed(reason="quota", note="used <b>up"), at=8)

    lines = as_markdown([history_of(log.events, "codex")], title="codex", now=NOW).splitlines()

    assert "- `` file a`b.txt, 2 bytes ``" in lines
    assert "[1]" in lines[lines.index("```json") + 1]
    assert "`user` answered: `Yes`" in lines
    assert "In doubt (2026-01-15T10:30:07.000Z): `no proof`" in lines
    assert "**failed (quota)** (2026-01-15T10:30:08.000Z): `used <b>up`" in lines
    assert f"- id: `{TASK}`" in lines
