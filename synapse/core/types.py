"""Clocks and deadlines, and `frozen` for the values that every request makes.

The constructor of a frozen dataclass sets each field through `object.__setattr__`, which takes twice as long as a plain
assignment. So `frozen` leaves the check to the type checkers, which see all of our code. In Python's development mode
(`python -X dev`), in which the unit tests run, writing to a value also raises an error.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar, dataclass_transform


class BootTime(NamedTuple):
    """The time since the machine started, including suspended time. Setting the wall clock does not change it."""

    boot_id: str
    """Identifies the start that `seconds` counts from; empty if the system does not tell."""
    seconds: float


class Clock(Protocol):
    """Tells the time; tests use a fake."""

    def now(self) -> datetime:
        """Returns the time of the wall clock in UTC. It jumps when the clock is set."""
        ...

    def monotonic(self) -> float:
        """Returns seconds that never go backwards and do not count suspended time."""
        ...

    def boot_time(self) -> BootTime: ...


class Deadline(NamedTuple):
    """A deadline by two clocks. The wall clock counts only after the machine has restarted."""

    at: datetime
    boot: BootTime | None = None
    """None in tasks of a version that stored only the wall clock's time."""

    def has_passed(self, clock: Clock) -> bool:
        """Decides whether the deadline is over."""
        now = clock.boot_time()
        if self.boot is not None and now.boot_id and self.boot.boot_id == now.boot_id:
            return self.boot.seconds <= now.seconds
        return self.at <= clock.now()


def deadline_after(seconds: float, clock: Clock) -> Deadline:
    """Returns the deadline `seconds` from now."""
    boot = clock.boot_time()
    later = boot._replace(seconds=boot.seconds + seconds) if boot.boot_id else None
    return Deadline(clock.now() + timedelta(seconds=seconds), later)


def deadline_at(moment: datetime, clock: Clock) -> Deadline:
    """Returns the deadline at `moment`, measured from the wall clock's time now."""
    return deadline_after((moment - clock.now()).total_seconds(), clock)._replace(at=moment)


class SinceStart:
    """Wall clock time without the forward jumps since this object was created.

    For decisions that cannot be undone: a clock that is a year ahead for a moment must not make everything too old to
    keep.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall, self._boot = clock.now(), clock.boot_time().seconds

    def now(self) -> datetime:
        """Returns the earlier of the wall clock's time and the start time plus the time that has passed since."""
        passed = timedelta(seconds=self._clock.boot_time().seconds - self._boot)
        return min(self._clock.now(), self._wall + passed)


T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Does what `dataclass(frozen=True, slots=True, kw_only=True)` does; making an instance takes half the time."""
    if sys.flags.dev_mode:
        return dataclass(frozen=True, slots=True, kw_only=True)(cls)
    return dataclass(unsafe_hash=True, slots=True, kw_only=True)(cls)
