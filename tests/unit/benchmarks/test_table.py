"""A ratio says yes or no, and the document keeps its words around the figures."""

from __future__ import annotations

import pytest

from benchmarks.rounds import interleave
from benchmarks.rows import Figure, at_least, at_most, beside, within
from benchmarks.table import BEGIN, END, as_text, into_document

FAST = Figure("fast", [1.0, 2.0, 30.0], "ms")
SLOW = Figure("slow", [4.0], "ms")


def test_the_median_counts_and_not_the_outlier() -> None:
    assert FAST.shown == "2 ms"


def test_at_most_is_reached_when_we_take_no_longer_than_so_many_times_the_peer() -> None:
    assert at_most(2.0, SLOW, FAST).reached
    assert not at_most(1.9, SLOW, FAST).reached


def test_at_least_is_reached_when_we_do_no_less_than_so_many_times_the_peer() -> None:
    assert at_least(0.5, FAST, SLOW).reached
    assert not at_least(0.6, FAST, SLOW).reached


def test_a_limit_counts_in_the_unit_that_is_shown() -> None:
    assert within(50, Figure("delivery", [0.05], "ms", 1000)).reached
    assert not within(49, Figure("delivery", [0.05], "ms", 1000)).reached


def test_a_row_without_a_target_is_neither_reached_nor_missed() -> None:
    assert beside(FAST, SLOW).reached is None
    assert as_text("Title", [beside(FAST, SLOW)]).endswith("slow 4 ms  0.50 \N{MULTIPLICATION SIGN}")


def test_every_second_round_goes_backwards() -> None:
    order: list[str] = []

    interleave(2, {"a": lambda: order.append("a"), "b": lambda: order.append("b")})

    assert order == ["a", "b", "b", "a"]


def test_the_document_keeps_its_words_and_loses_its_old_figures() -> None:
    document = f"before {BEGIN} old {END} after"

    written = into_document(document, [("Title", [beside(FAST, SLOW)])], ["0.10"])

    assert written.startswith("before ")
    assert written.endswith(" after")
    assert "old" not in written
    assert "| fast | 2 ms | slow 4 ms |" in written


def test_a_document_without_marks_is_not_overwritten() -> None:
    with pytest.raises(ValueError, match="marks"):
        into_document("words", [], [])
