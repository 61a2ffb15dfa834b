"""Whether a process stands still."""

from __future__ import annotations

import os

from synapse.registry.files import UNKNOWN, is_stopped, start_time
from tests.fakes.processes import bystander

NO_SUCH_PID = 2**22 + 1


def test_a_process_stands_still_until_it_goes_on() -> None:
    with bystander() as process:
        assert not is_stopped(process.pid, process.started)

        process.stop()
        assert is_stopped(process.pid, process.started)
        assert is_stopped(process.pid, UNKNOWN)

        process.go_on()
        assert not is_stopped(process.pid, process.started)


def test_a_pid_that_another_process_has_now_says_nothing() -> None:
    with bystander() as process:
        process.stop()

        assert not is_stopped(process.pid, process.started + 1)


def test_who_runs_or_is_not_there_does_not_stand_still() -> None:
    assert not is_stopped(os.getpid(), start_time(os.getpid()) or 0)
    assert not is_stopped(NO_SUCH_PID, UNKNOWN)
    assert not is_stopped(0, UNKNOWN)
