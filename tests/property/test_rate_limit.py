"""However requests are spread over time, no window lets more through than the burst and the rate allow."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from synapse.auth.gateway import RateLimit

GAPS = st.lists(st.floats(min_value=0, max_value=30), max_size=80)


@given(per_minute=st.integers(1, 600), burst=st.integers(1, 20), gaps=GAPS)
def test_no_window_has_more_than_the_burst_and_the_rate(per_minute: int, burst: int, gaps: list[float]) -> None:
    limit = RateLimit(per_minute=per_minute, burst=burst)
    passed = [moment for moment in accumulate(gaps) if limit.take("key", moment) == 0]

    for first, start in enumerate(passed):
        for count, end in enumerate(passed[first:], start=1):
            assert count <= burst + (end - start) * per_minute / 60 + 1e-6


@given(per_minute=st.integers(1, 600), burst=st.integers(1, 20), gaps=GAPS)
def test_whoever_waits_as_long_as_told_gets_through(per_minute: int, burst: int, gaps: list[float]) -> None:
    limit = RateLimit(per_minute=per_minute, burst=burst)
    now = 0.0
    for gap in gaps:
        now += gap
        seconds = limit.take("key", now)
        if seconds:
            now += seconds + 1e-9
            assert limit.wait("key", now) < 1e-6
