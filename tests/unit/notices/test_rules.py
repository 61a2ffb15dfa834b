"""Which needs become notices, and when."""

from __future__ import annotations

from datetime import datetime

import pytest

from synapse.core.errors import InvalidSettings
from synapse.notices.rules import GRACE_SECONDS, Changes, Kind, NoticeTracker, notice_of, read_rules
from tests.samples.needs import need


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-15T{text}:00")


@pytest.mark.parametrize(
    ("need_kind", "kind", "title"),
    [
        ("permission", Kind.ASKS, "codex asks you"),
        ("choice", Kind.ASKS, "codex asks you"),
        ("dialog", Kind.ASKS, "codex asks you"),
        ("held", Kind.ASKS, "codex asks you"),
        ("in_doubt", Kind.IN_DOUBT, "codex: a message is in doubt"),
        ("failed", Kind.FAILED, "codex has failed"),
        ("done", Kind.ANSWERED, "codex has answered"),
    ],
)
def test_each_kind_of_need_has_its_notice(need_kind: str, kind: Kind, title: str) -> None:
    notice = notice_of(need(kind=need_kind))

    assert (notice.kind, notice.title, notice.text) == (kind, title, "run `rm -rf build`")


def test_a_need_that_lasts_opens_once_and_is_gone_once() -> None:
    tracker = NoticeTracker()

    assert tracker.look([need()], 0.0) == Changes()
    opened = tracker.look([need()], GRACE_SECONDS)
    assert [notice.id for notice in opened.opened] == ["q1"]
    assert tracker.look([need()], 60.0) == Changes()
    assert tracker.look([], 61.0) == Changes((), ("q1",))
    assert tracker.look([], 62.0) == Changes()
    assert not tracker.is_waiting


def test_a_need_that_is_met_at_once_becomes_no_notice() -> None:
    tracker = NoticeTracker()
    tracker.look([need()], 0.0)

    assert tracker.look([], GRACE_SECONDS) == Changes()


def test_the_same_question_asked_again_waits_again() -> None:
    tracker = NoticeTracker()
    tracker.look([need()], 0.0)
    tracker.look([], 1.0)

    assert tracker.look([need()], GRACE_SECONDS) == Changes()


def test_what_an_earlier_process_showed_is_not_shown_again_but_withdrawn() -> None:
    tracker = NoticeTracker({"q1", "q0"})

    assert tracker.look([need()], 0.0) == Changes((), ("q0",))
    assert tracker.look([need()], 100.0) == Changes()
    assert tracker.look([], 101.0) == Changes((), ("q1",))


def test_rules_name_kinds_agents_and_quiet_hours() -> None:
    rules = read_rules("asks, failed", "codex reviewer", "22:00-07:00")
    asks, done = notice_of(need()), notice_of(need(kind="done"))

    assert rules.why_suppressed(asks, ("codex",), at("12:00")) == ""
    assert rules.why_suppressed(done, ("codex",), at("12:00")) == "notify_on does not name answered"
    assert rules.why_suppressed(asks, ("claude",), at("12:00")) == "notify_agents does not name this agent"
    for hour, quiet in (("21:59", ""), ("22:00", "quiet hours"), ("03:00", "quiet hours"), ("07:00", "")):
        assert rules.why_suppressed(asks, ("codex",), at(hour)) == quiet


def test_quiet_hours_need_not_cross_midnight() -> None:
    rules = read_rules("all", "all", "12:00-13:00")

    assert rules.why_suppressed(notice_of(need()), (), at("12:30")) == "quiet hours"
    assert rules.why_suppressed(notice_of(need()), (), at("13:00")) == ""
    assert rules.why_suppressed(notice_of(need()), (), at("03:00")) == ""


def test_none_switches_all_kinds_off() -> None:
    assert read_rules("none", "all", "none").on == frozenset()


@pytest.mark.parametrize(
    ("on", "quiet"),
    [("asks sometimes", "none"), ("all", "at night"), ("all", "22:00"), ("all", "22:00-22:00"), ("all", "25:00-07:00")],
)
def test_a_rule_that_cannot_be_read_is_named(on: str, quiet: str) -> None:
    with pytest.raises(InvalidSettings, match=r"notify_(on|quiet)"):
        read_rules(on, "all", quiet)
