"""The real time."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Implements core.clock.Clock with the machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
