"""Time, as something that is asked for.

Frozen values that are made for every request.

A dataclass that is frozen writes each of its fields by name, past a check that refuses it to everybody else: that takes
twice as long. So these are refused by the type checkers, which see every line of ours. Python's development mode
(`python -X dev`) adds checks that are too dear for every day, and there whoever writes to a value is refused, too: the
unit tests run in it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar, dataclass_transform


class BootTime(NamedTuple):
    """How long this machine runs, suspended or not: a clock that nobody sets."""

    boot_id: str
    """Says which start of the machine this counts from; empty where the system does not tell."""
    seconds: float


class Clock(Protocol):
    """Tells the time; tests bring their own."""

    def now(self) -> datetime:
        """The wall clock, in UTC. It jumps when it is set."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward, and only while the machine is awake."""
        ...

    def boot_time(self) -> BootTime: ...


class Deadline(NamedTuple):
    """A moment by two clocks: the wall clock's counts only when the machine has been started again since."""

    at: datetime
    boot: BootTime | None = None
    """None in tasks of a version that knew only the wall clock."""

    def has_passed(self, clock: Clock) -> bool:
        """Whether it is over now."""
        now = clock.boot_time()
        if self.boot is not None and now.boot_id and self.boot.boot_id == now.boot_id:
            return self.boot.seconds <= now.seconds
        return self.at <= clock.now()


def deadline_after(seconds: float, clock: Clock) -> Deadline:
    """Return the deadline that passes in so many seconds."""
    boot = clock.boot_time()
    later = boot._replace(seconds=boot.seconds + seconds) if boot.boot_id else None
    return Deadline(clock.now() + timedelta(seconds=seconds), later)


def deadline_at(moment: datetime, clock: Clock) -> Deadline:
    """Return the deadline that passes at `moment`, as far away as the wall clock says now."""
    return deadline_after((moment - clock.now()).total_seconds(), clock)._replace(at=moment)


class SinceStart:
    """The time by the wall clock, without the jumps forward that it made since this was made.

    For what cannot be undone: a clock that is wrong by a year for a moment must not make everything too old to keep.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall, self._boot = clock.now(), clock.boot_time().seconds

    def now(self) -> datetime:
        """The wall clock's time, or the time since the start added to what it said then, whichever is earlier."""
        passed = timedelta(seconds=self._clock.boot_time().seconds - self._boot)
        return min(self._clock.now(), self._wall + passed)


T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """What `dataclass(frozen=True, slots=True, kw_only=True)` makes, in half of the time."""
    if sys.flags.dev_mode:
        return dataclass(frozen=True, slots=True, kw_only=True)(cls)
    return dataclass(unsafe_hash=True, slots=True, kw_only=True)(cls)
