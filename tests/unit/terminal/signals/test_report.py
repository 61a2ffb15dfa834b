"""Reports of any shape are read: whose message it is, which state it means, which options it offers."""

from __future__ import annotations

import pytest

from synapse.core.agent import READY, WAITING, WORKING
from synapse.core.question import OptionEffect
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import (
    SignalKind,
    SignalReport,
    numbered,
    position,
    shortened,
    table_at,
    tables_at,
    text_at,
)


def submitted(prompt: str) -> SignalReport:
    return SignalReport(kind=SignalKind.SUBMITTED, source=Source.SIGNAL, detail="reported", text=prompt)


@pytest.mark.parametrize(
    ("prompt", "is_ours"),
    [
        ("[A2A:1a2b3c4d:user] hello\nthere", True),
        ("[A2A:1a2b3c4d:user] hello there ", True),
        ("something else", False),
        ("", True),
    ],
)
def test_a_prompt_is_ours_if_it_holds_what_was_typed_whatever_the_blanks(prompt: str, is_ours: bool) -> None:
    assert submitted(prompt).is_about("[A2A:1a2b3c4d:user] hello\r\nthere") is is_ours


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (SignalKind.SUBMITTED, WORKING),
        (SignalKind.WORKING, WORKING),
        (SignalKind.WAITING, WAITING),
        (SignalKind.ANSWERED, READY),
        (SignalKind.FAILED, READY),
    ],
)
def test_each_report_means_a_state_of_the_agent(kind: SignalKind, state: str) -> None:
    assert SignalReport(kind=kind, source=Source.SIGNAL, detail="").state == state


def test_a_record_of_another_shape_reads_as_empty() -> None:
    record = {"a": {"b": 5}, "list": ["text", {"c": "d"}], "text": "t"}

    assert text_at(record, "a", "b") == text_at(record, "text", "b") == text_at(record, "nothing", "there") == ""
    assert table_at(record, "text") == table_at(record, "a", "b") == {}
    assert tables_at(record, "list") == [{"c": "d"}]
    assert tables_at(record, "text") == []


def test_a_long_detail_is_cut_to_one_line() -> None:
    assert shortened("one\n two") == "one two"
    assert len(shortened("x" * 1000)) == 300


def test_options_are_numbered_and_safe_to_print() -> None:
    one, two = numbered([("Yes\x1b[2J", OptionEffect.ALLOW), ("No\nway", OptionEffect.DENY)])

    assert (one.key, one.label, one.effect) == ("1", "Yes<U+001B>[2J", OptionEffect.ALLOW)
    assert (two.key, two.label, two.effect) == ("2", "No way", OptionEffect.DENY)


def test_there_is_an_end_to_the_options() -> None:
    assert len(numbered([("x", OptionEffect.OTHER)] * 1000)) == 50


@pytest.mark.parametrize(("key", "place"), [("1", 0), ("3", 2), ("4", None), ("0", None), ("", None), ("²", None)])
def test_an_option_is_found_by_its_number(key: str, place: int | None) -> None:
    assert position(key, 3) == place
