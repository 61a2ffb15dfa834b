"""The rate limit between two agents."""

from __future__ import annotations

from synapse.tasks.pair_limit import PairRateLimit


def test_messages_over_the_limit_within_a_minute_are_held_in_both_directions() -> None:
    limit = PairRateLimit(3)

    admitted = [limit.admit(one, other, now) for now, (one, other) in enumerate([("a", "b"), ("b", "a")] * 2)]

    assert admitted == [True, True, True, False]


def test_after_a_minute_messages_pass_again() -> None:
    limit = PairRateLimit(1)

    assert [limit.admit("a", "b", now) for now in (0.0, 30.0, 61.0)] == [True, False, True]


def test_another_pair_is_not_held() -> None:
    limit = PairRateLimit(1)
    limit.admit("a", "b", 0.0)

    assert limit.admit("a", "c", 1.0)


def test_a_limit_of_zero_means_no_limit() -> None:
    limit = PairRateLimit(0)

    assert all(limit.admit("a", "b", 0.0) for _ in range(1000))
