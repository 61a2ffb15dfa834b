"""A bucket for each key: a burst at once, then a steady rate."""

from __future__ import annotations

import pytest

from synapse.auth.gateway import RateLimit


def test_a_burst_is_allowed_and_then_the_rate_counts() -> None:
    limit = RateLimit(per_minute=60, burst=3)

    assert [limit.take("a", 10.0) for _ in range(3)] == [0, 0, 0]
    assert limit.take("a", 10.0) == pytest.approx(1.0)
    assert limit.take("a", 10.5) == pytest.approx(0.5)
    assert limit.take("a", 11.0) == 0
    assert limit.take("a", 11.0) > 0


def test_each_key_has_its_own_rate_limit() -> None:
    limit = RateLimit(per_minute=60, burst=1)
    limit.take("a", 0)

    assert limit.take("b", 0) == 0


def test_reading_the_wait_takes_no_token() -> None:
    limit = RateLimit(per_minute=60, burst=1)

    assert [limit.wait("a", 0) for _ in range(5)] == [0] * 5
    limit.take("a", 0)
    assert limit.wait("a", 0) == pytest.approx(1.0)
    assert limit.wait("a", 1) == 0


def test_a_rate_of_zero_is_no_limit() -> None:
    limit = RateLimit(per_minute=0, burst=1)

    assert [limit.take("a", 0) for _ in range(100)] == [0] * 100
    assert limit.wait("a", 0) == 0


def test_the_buckets_that_were_used_last_are_kept() -> None:
    limit = RateLimit(per_minute=60, burst=1, most_keys=2)
    for key in "aba":
        limit.take(key, 0)
    limit.take("c", 0)

    assert limit.wait("a", 0) > 0
    assert limit.wait("b", 0) == 0, "b was dropped, and a dropped bucket counts as full"
