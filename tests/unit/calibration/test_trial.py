"""What came out of a calibration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from synapse.calibration.model_server import Fact, Ledger
from synapse.calibration.trial import Finding, FindingVerdict, compared, delay_between, median_delay, wrong
from tests.fakes.clock import FakeClock


def test_what_differs_is_wrong() -> None:
    right, not_right = compared("long", "answered", "ok", "ok"), compared("long", "answered", "ok", "not ok")

    assert wrong([right, not_right]) == [not_right]


def test_what_a_cli_does_not_offer_is_not_wrong() -> None:
    finding = Finding(row="question", event="waiting", expected="-", seen="no tool", verdict=FindingVerdict.NOT_OFFERED)

    assert wrong([finding]) == []


def test_what_was_known_early_counts_as_no_delay() -> None:
    delays = [timedelta(milliseconds=ms) for ms in (-500, 40, 100)]
    findings = [compared("a", "b", "c", "c", delay=delay) for delay in delays]

    assert median_delay(findings) == 40
    assert findings[0].as_fields()["delay_ms"] == -500
    assert median_delay([]) is None


def test_a_delay_needs_both_times() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert delay_between(now, now + timedelta(seconds=1)) == timedelta(seconds=1)
    assert delay_between(None, now) is None
    assert delay_between(now, None) is None


def test_the_ledger_tells_turns_apart() -> None:
    clock = FakeClock()
    ledger = Ledger(clock)
    ledger.note("long:1", Fact.ASKED, "please")
    clock.advance(1)
    ledger.note("long:2", Fact.ASKED, "again")
    ledger.note("long:1", Fact.SAID, "text")

    assert [entry.fact for entry in ledger.of("long:1")] == [Fact.ASKED, Fact.SAID]
    asked, said = ledger.first("long:1", Fact.ASKED), ledger.last("long:1", Fact.SAID, Fact.CALLED)
    assert asked is not None
    assert said is not None
    assert said.at - asked.at == timedelta(seconds=1)


def test_a_fact_that_does_not_come_is_not_waited_for_for_ever() -> None:
    assert Ledger(FakeClock()).wait_for("long:1", Fact.SAID, seconds=0.01) is None
