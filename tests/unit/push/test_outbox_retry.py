"""The retry schedule."""

from __future__ import annotations

import pytest

from synapse.push.outbox import RetrySchedule

SCHEDULE = RetrySchedule(attempts=5, first=1.0, factor=2.0, longest=6.0)


@pytest.mark.parametrize(
    ("failed", "chance", "asked", "pause"),
    [
        (1, 1.0, None, 1.0),
        (1, 0.0, None, 0.5),
        (2, 1.0, None, 2.0),
        (3, 1.0, None, 4.0),
        (3, 0.5, None, 3.0),
        (4, 1.0, None, 6.0),
        (4, 0.0, None, 3.0),
        (5, 1.0, None, None),
        (6, 1.0, None, None),
        (1, 1.0, 3.0, 3.0),
        (3, 1.0, 2.0, 4.0),
        (1, 1.0, 9999.0, 6.0),
        (1, 1.0, 0.0, 1.0),
        (5, 1.0, 1.0, None),
    ],
)
def test_the_pause_grows_within_its_bounds(
    failed: int, chance: float, asked: float | None, pause: float | None
) -> None:
    assert SCHEDULE.pause(failed, chance, asked) == pause


def test_very_many_attempts_do_not_overflow() -> None:
    assert RetrySchedule(attempts=10**9).pause(10**8, 1.0) == 300.0
