"""Rows in lines: every width, every locale, nothing that acts on the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.client.lines import width
from synapse.client.overview import MARKS, Row, row_of
from synapse.core.agent import AgentEntry
from synapse.top.lines import (
    ASCII,
    UNICODE,
    Cell,
    Glyphs,
    cells_of,
    columns_for,
    folded,
    glyphs_for,
    matches,
    summary,
)
from tests.unit.top.statuses import NOW, Fields, ago, answered, asking, in_doubt, ready, working


def row(status: Fields, name: str = "codex", folder: str = "/srv/project") -> Row:
    return row_of(AgentEntry(f"synapse-{name}-8100", "codex", name=name, working_dir=folder), status, None)


def line(one: Row, columns: int = 80, glyphs: Glyphs = UNICODE) -> str:
    return "".join(cell.text for cell in cells_of(one, columns_for([one], columns), NOW, glyphs))


def test_a_line_has_mark_name_state_since_why_and_folder() -> None:
    assert line(row(working(1, "write the tests", queued=1))) == (
        " ◐ codex  working    9m  write the tests                       +1  /srv/project "
    )


@pytest.mark.parametrize(
    ("status", "begin"),
    [
        (asking(1), " ? codex  asks       2m  Run this command? rm -rf build"),
        (in_doubt(1), ' ! codex  in doubt   5m  was it taken? "review src/app.py"'),
        (answered(1, "two nits\nmore"), " ● codex  done       4m  → user: two nits"),
        (answered(1, "it exited", status="failed"), " \N{MULTIPLICATION SIGN} codex  failed     4m  it exited"),
        (ready(), " ○ codex  ready      1h"),
    ],
)
def test_each_state_is_a_mark_and_a_word(status: Fields, begin: str) -> None:
    assert line(row(status)).startswith(begin)


def test_without_unicode_every_mark_is_ascii_and_still_its_own() -> None:
    assert ASCII.marks.keys() == MARKS.keys()
    assert len(set(ASCII.marks.values())) == len(MARKS)
    shown = line(row(answered(1, "für 日本")), glyphs=ASCII)
    assert shown.isascii()
    assert "-> user: f<U+00FC>r" in shown


@pytest.mark.parametrize(
    ("environ", "glyphs"),
    [
        ({"LANG": "de_DE.UTF-8"}, UNICODE),
        ({"LANG": "C.utf8"}, UNICODE),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, UNICODE),
        ({"LANG": "en_US.ISO-8859-1", "LC_CTYPE": "en_US.UTF-8"}, UNICODE),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, ASCII),
        ({"LC_CTYPE": "C.UTF-8"}, ASCII),
        ({"LANG": "en_US.ISO-8859-1"}, ASCII),
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, ASCII),
        ({}, ASCII),
    ],
)
def test_the_locale_decides_about_the_characters(environ: dict[str, str], glyphs: Glyphs) -> None:
    assert glyphs_for(environ) is glyphs


@given(st.integers(1, 220), st.text(max_size=120), st.text(alphabet=st.characters(categories=["L", "N"]), max_size=40))
def test_a_line_fits_any_terminal_whatever_agents_write(columns: int, text: str, name: str) -> None:
    one = row({**working(1, text, queued=12), "since": ago(10)}, name=name or "x", folder=f"/srv/{name}")

    shown = line(one, columns)

    assert width(shown) == columns
    assert shown.isprintable()


def test_the_summary_counts_those_who_need_a_person() -> None:
    assert summary([row(asking(1)), row(ready()), row(in_doubt(2))], UNICODE) == "3 agents · 2 need you"
    assert summary([row(asking(1))], UNICODE) == "1 agent · 1 needs you"
    assert summary([], ASCII) == "0 agents - nobody needs you"


def test_a_filter_wants_every_word_in_name_state_folder_or_text() -> None:
    one = row(working(1, "write the Parser"))

    assert matches(one, "")
    assert matches(one, "WORK parser srv")
    assert not matches(one, "parser ready")


@given(st.text(alphabet="ab \u202e日", max_size=80), st.integers(12, 40))
def test_wrapping_keeps_every_character_and_the_width(text: str, columns: int) -> None:
    lines = folded(UNICODE.cells(text), columns, "  ")

    texts = ["".join(cell.text for cell in cells) for cells in lines]
    assert "".join(one.removeprefix("  ") for one in texts) == UNICODE.shown(text)
    assert all(width(one.rstrip()) <= columns for one in texts)


def test_the_name_of_a_character_is_not_split() -> None:
    lines = folded([Cell("aaaa"), Cell("<U+202E>", "odd"), Cell("b")], 12, "  ")

    assert [[cell.text for cell in cells] for cells in lines] == [["  ", "aaaa"], ["  ", "<U+202E>", "b"]]
