"""The real time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from synapse.core.clock import BootTime

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# CLOCK_BOOTTIME goes on while the machine sleeps; only Linux has it, and a boot id beside it.
_SINCE_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """Implements core.clock.Clock with the machine's clocks."""

    _boot_id: str | None = None

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boot_time(self) -> BootTime:
        if _SINCE_BOOT is None:
            return BootTime("", time.monotonic())
        if self._boot_id is None:
            self._boot_id = _read_boot_id()
        return BootTime(self._boot_id, time.clock_gettime(_SINCE_BOOT))


def _read_boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
