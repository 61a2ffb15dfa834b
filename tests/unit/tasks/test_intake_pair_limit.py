"""The loop damper."""

from __future__ import annotations

from synapse.tasks.intake import PairRateLimit


def test_messages_over_the_limit_within_a_minute_are_held_in_both_directions() -> None:
    damper = PairRateLimit(3)

    admitted = [damper.admit(one, other, now) for now, (one, other) in enumerate([("a", "b"), ("b", "a")] * 2)]

    assert admitted == [True, True, True, False]


def test_after_a_minute_messages_pass_again() -> None:
    damper = PairRateLimit(1)

    assert [damper.admit("a", "b", now) for now in (0.0, 30.0, 61.0)] == [True, False, True]


def test_another_pair_is_not_held() -> None:
    damper = PairRateLimit(1)
    damper.admit("a", "b", 0.0)

    assert damper.admit("a", "c", 1.0)


def test_a_limit_of_zero_means_no_limit() -> None:
    damper = PairRateLimit(0)

    assert all(damper.admit("a", "b", 0.0) for _ in range(1000))
