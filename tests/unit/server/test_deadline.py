"""A time limit that is moved often: it comes when it was set last, with one timer at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from synapse.server.http import Deadline


class FakeTimer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """A loop of which only the clock and the timers are there."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[FakeTimer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(at, call))
        return self.timers[-1]

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.waiting() if timer.at <= end]:
            due[0].cancelled = True
            self.now = due[0].at
            due[0].call()
        self.now = end

    def waiting(self) -> list[FakeTimer]:
        return sorted([timer for timer in self.timers if not timer.cancelled], key=lambda timer: timer.at)


def made() -> tuple[FakeLoop, Deadline, list[float]]:
    loop = FakeLoop()
    expired: list[float] = []
    return (
        loop,
        Deadline(cast("asyncio.AbstractEventLoop", cast("Any", loop)), lambda: expired.append(loop.now)),
        expired,
    )


def test_it_comes_once_and_in_time() -> None:
    loop, deadline, expired = made()

    deadline.set(5)
    loop.pass_time(20)

    assert expired == [105]
    assert loop.waiting() == []


def test_moving_it_on_needs_no_new_timer() -> None:
    loop, deadline, expired = made()

    for _ in range(1000):
        deadline.set(5)
        loop.pass_time(0.001)
    assert len(loop.timers) == 1
    loop.pass_time(20)

    assert [round(at, 3) for at in expired] == [105.999]


def test_moving_it_nearer_counts() -> None:
    loop, deadline, expired = made()

    deadline.set(30)
    deadline.set(5)
    loop.pass_time(60)

    assert expired == [105]


def test_what_is_cleared_never_comes_and_leaves_no_timer() -> None:
    loop, deadline, expired = made()

    deadline.set(5)
    deadline.clear()
    loop.pass_time(60)
    assert loop.waiting() == []
    deadline.set(5)
    deadline.close()

    assert expired == []
    assert loop.waiting() == []
