"""The format of results: columns, colours, and text without control characters."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.cli.output import print_notice, print_part, print_result
from synapse.cli.tables import painted, table, table_with_notes
from synapse.client.lines import cut, cut_path, plain, short_path, width
from synapse.core.override import override


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("🙂", 2), ("", 0)])
def test_width_counts_terminal_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_a_cut_text_always_fits(text: str, columns: int) -> None:
    assert width(cut(text, columns)) <= max(columns, 1)


@given(st.text())
def test_plain_text_is_one_line_without_control_characters(text: str) -> None:
    assert not set(plain(text)) & {"\x1b", "\n", "\r", "\x07", "\x9b", "\u202e", "\u2028"}


def test_columns_line_up_also_for_wide_characters() -> None:
    lines = table(("NAME", "X"), [("日本", "1"), ("abc", "2")], elastic=1).splitlines()

    assert lines == ["NAME  X", "日本  1", "abc   2"]


def test_only_the_elastic_column_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.cli.tables.line_width", lambda: 20)

    lines = table(("A", "LONG", "B"), [("one", "x" * 50, "two")], elastic=1).splitlines()

    assert lines[1] == "one  xxxxxxxxx…  two"


def test_there_is_no_colour_without_a_terminal() -> None:
    assert "\x1b" not in table(("STATE",), [("ready",)], elastic=0)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/houses/ann", "~"),
        ("/houses/ann/project", "~/project"),
        ("/houses/anna", "/houses/anna"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_folder_below_the_home_folder_is_shortened(path: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/houses/ann")

    assert short_path(path) == shown


class _Screen(io.TextIOWrapper):
    """Standard output or error that is a terminal."""

    @override
    def isatty(self) -> bool:
        return True


def test_only_our_own_colour_codes_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", _Screen(out, encoding="utf-8"))
    monkeypatch.setattr(sys, "stderr", _Screen(err, encoding="utf-8"))

    print_result(f"{painted('ready', 'ready')} a\x1b[2Jb\x1b[8mc\x9b1m\u202e 日本語 👩\u200d💻\tx\ny")
    print_part("\x1b]0;title\x07")
    print_notice("Error: \x1b[2J\u2028no agent\n→ synapse list")

    assert out.getvalue().decode() == "\x1b[32mready\x1b[0m a[2Jb[8mc1m 日本語 👩\u200d💻\tx\ny\n]0;title"
    assert err.getvalue().decode() == "Error: [2J\nno agent\n→ synapse list\n"


@given(
    st.lists(st.tuples(st.text(), st.text(), st.text(), st.text(), st.text(), st.text()), min_size=1, max_size=4),
    st.integers(min_value=40, max_value=120),
    st.integers(min_value=0, max_value=5),
)
def test_every_line_of_a_table_fits_whatever_is_in_its_cells(
    rows: list[tuple[str, ...]], columns: int, elastic: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synapse.cli.tables.line_width", lambda: columns)
        patch.setenv("NO_COLOR", "1")

        lines = table(("AGENT", "STATE", "PORT", "PID", "WORKING ON", "FOLDER"), rows, elastic=elastic).splitlines()

    assert all(width(line) <= columns for line in lines)


def test_columns_that_fit_are_not_cut_for_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.cli.tables.line_width", lambda: 60)

    _, line = table(
        ("NAME", "STATE", "TEXT", "FOLDER"), [("ada", "ready", "y" * 50, f"/srv/{'x' * 60}/src")], elastic=2
    ).splitlines()

    assert line == f"ada   ready  {'y' * 19}…  …{'x' * 20}/src"


def test_a_column_that_must_stay_whole_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.cli.tables.line_width", lambda: 40)
    row = ("1a2b3c4d", "a" * 12, "b" * 12, "c" * 12, "d" * 12)

    _, line = table(("TASK", "A", "B", "C", "D"), [row], elastic=1, whole=0).splitlines()

    assert line.startswith("1a2b3c4d  ")
    assert width(line) <= 40


def test_notes_stand_in_their_column_or_all_below_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("one", "it waits for the second of two machines"), ("two", "")]
    shown = {}
    for columns in (60, 40):
        monkeypatch.setattr("synapse.cli.tables.line_width", lambda columns=columns: columns)
        shown[columns] = table_with_notes(("NAME", "WHY"), rows, elastic=0, whole=0).splitlines()

    assert shown[60] == ["NAME  WHY", "one   it waits for the second of two machines", "two"]
    assert shown[40] == ["NAME", "one", "  it waits for the second of two", "  machines", "two"]


@given(st.text(), st.integers(min_value=40, max_value=120))
def test_every_line_of_a_note_fits_and_none_of_it_is_lost(note: str, columns: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synapse.cli.tables.line_width", lambda: columns)

        shown = table_with_notes(("NAME", "WHY"), [("x" * 30, note + "y" * 20)], elastic=0, whole=0)

    assert all(width(line) <= columns for line in shown.splitlines())
    told = "".join(shown.split()).removeprefix("NAME").removeprefix("WHY").removeprefix("x" * 30)
    assert told == "".join(plain(note + "y" * 20).split())


def test_of_a_folder_the_end_is_kept() -> None:
    assert cut_path("/srv/shop/設計/src", 12) == "…op/設計/src"
    assert cut_path("/srv", 4) == "/srv"
