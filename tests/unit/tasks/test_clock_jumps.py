"""The wall clock is set, the machine sleeps or starts again: a message lives as long as its sender said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from synapse.core.override import override
from synapse.core.task import Task, TaskState
from synapse.core.types import BootTime, Deadline, SinceStart, deadline_after, deadline_at
from synapse.store.codec import deadline_of
from tests.fakes.clock import FakeClock
from tests.fakes.harness import AgentHarness, working

DAY = 24 * 3600.0


async def sent(harness: AgentHarness) -> Task:
    harness.driver.ready.clear()
    return await harness.send("soon", metadata={"ttl": 60})


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_clock_that_is_set_neither_ends_a_message_nor_lets_it_live_longer(jump: float) -> None:
    harness = AgentHarness()
    task = await sent(harness)
    harness.clock.advance(30)
    harness.clock.jump(jump)
    await harness.in_doubt.expire()
    assert (await harness.task(task.id)).state is TaskState.SUBMITTED

    harness.clock.advance(31)
    await harness.in_doubt.expire()
    assert (await harness.task(task.id)).reason == "expired"


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_the_worker_checks_deadlines_by_the_same_clock(jump: float) -> None:
    harness = AgentHarness()
    async with working(harness):
        in_time = await sent(harness)
        harness.clock.jump(jump)
        harness.driver.ready.set()
        assert (await harness.finished(in_time)).state is TaskState.COMPLETED

        too_late = await sent(harness)
        harness.clock.advance(61)
        harness.clock.jump(jump)
        harness.driver.ready.set()
        assert (await harness.finished(too_late)).reason == "expired"


async def test_time_in_which_the_machine_sleeps_counts() -> None:
    harness = AgentHarness()
    task = await sent(harness)
    harness.clock.suspend(61)
    await harness.in_doubt.expire()

    assert (await harness.task(task.id)).reason == "expired"


@pytest.mark.parametrize(("seconds_off", "is_over"), [(30.0, False), (61.0, True)])
def test_when_the_machine_has_been_started_again_the_wall_clock_counts(seconds_off: float, *, is_over: bool) -> None:
    clock = FakeClock()
    deadline = deadline_after(60, clock)
    clock.reboot(seconds_off)

    assert deadline.has_passed(clock) is is_over


def test_a_deadline_of_a_version_that_knew_only_the_wall_clock_goes_by_it() -> None:
    clock = FakeClock()
    deadline = Deadline(clock.now() + timedelta(seconds=60))
    assert not deadline.has_passed(clock)
    clock.jump(61)

    assert deadline.has_passed(clock)


def test_where_the_system_does_not_tell_its_start_the_wall_clock_counts() -> None:
    class Elsewhere(FakeClock):
        @override
        def boot_time(self) -> BootTime:
            return BootTime("", self.monotonic())

    clock = Elsewhere()
    deadline = deadline_after(60, clock)
    assert not deadline.has_passed(clock)
    clock.advance(61)

    assert deadline.boot is None
    assert deadline.has_passed(clock)


def test_a_moment_that_a_caller_named_is_as_far_away_as_it_was_then() -> None:
    clock = FakeClock()
    moment = clock.now() + timedelta(seconds=60)
    deadline = deadline_at(moment, clock)
    clock.jump(DAY)
    assert not deadline.has_passed(clock)
    clock.advance(60)

    assert deadline.at == moment
    assert deadline.has_passed(clock)


def test_a_clock_that_jumps_forward_makes_nothing_older_than_it_is() -> None:
    clock = FakeClock()
    began, since_start = clock.now(), SinceStart(clock)
    clock.advance(60)
    assert since_start.now() == began + timedelta(seconds=60)
    clock.jump(365 * DAY)
    assert since_start.now() == began + timedelta(seconds=60)
    clock.jump(-366 * DAY)

    assert since_start.now() == clock.now()


def test_a_stored_deadline_of_an_earlier_version_is_read() -> None:
    assert deadline_of({"deadline": 60_000_000}) == Deadline(datetime(1970, 1, 1, 0, 1, tzinfo=UTC))
