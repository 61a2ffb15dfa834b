"""Times for people: in their largest unit, in both directions, and never an error for a time that is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.client.times import ago, lasting, span

NOW = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)
FIRST, LAST = datetime(1970, 1, 2), datetime(2100, 1, 1)  # noqa: DTZ001 - hypothesis adds the zone


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86_399, "23h"), (86_400, "1d"), (-5, "0s")],
)
def test_a_length_of_time_is_said_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert span(seconds) == shown
    assert lasting(NOW - timedelta(seconds=seconds), NOW) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.5, "now"),
        (-0.5, "now"),
        (12, "12s ago"),
        (180, "3m ago"),
        (-120, "in 2m"),
        (59 * 86_400, "59d ago"),
        (60 * 86_400, "2023-11-16"),
        (-400 * 86_400, "2025-02-18"),
    ],
)
def test_a_moment_is_said_from_now(seconds: float, shown: str) -> None:
    at = NOW - timedelta(seconds=seconds)

    assert ago(at, NOW) == ago(at.isoformat(), NOW) == ago(at.isoformat().replace("+00:00", "Z"), NOW) == shown


def test_the_zone_of_a_moment_does_not_matter() -> None:
    assert ago("2024-01-15T12:27:00+02:00", NOW) == "3m ago"


@pytest.mark.parametrize("unknown", [None, "", "soon", "2024-01-15T10:30:00", 7])
def test_a_time_that_is_unknown_or_has_no_zone_is_not_said(unknown: object) -> None:
    assert ago(unknown, NOW) == lasting(unknown, NOW) == ""


@given(st.datetimes(timezones=st.just(UTC), min_value=FIRST, max_value=LAST))
def test_every_moment_is_short_enough_for_a_column(at: datetime) -> None:
    assert 0 < len(ago(at, NOW)) <= 10
