"""A clock that stands still until it is told to go on, or to jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from synapse.core.types import BootTime


class FakeClock:
    def __init__(self) -> None:
        self._now = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
        self._monotonic = 1000.0
        self._boots = 1
        self._since_boot = 5000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def boot_time(self) -> BootTime:
        return BootTime(f"boot {self._boots}", self._since_boot)

    def advance(self, seconds: float) -> None:
        self.suspend(seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._now += timedelta(seconds=seconds)

    def suspend(self, seconds: float) -> None:
        """The machine sleeps so long."""
        self._now += timedelta(seconds=seconds)
        self._since_boot += seconds

    def reboot(self, seconds: float) -> None:
        """The machine is off so long, and starts again."""
        self._now += timedelta(seconds=seconds)
        self._boots += 1
        self._since_boot = self._monotonic = 10.0
