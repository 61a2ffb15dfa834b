"""What came out: one line for each thing that Synapse concluded, beside what was true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Any


class Verdict(StrEnum):
    """Whether a conclusion was right."""

    RIGHT = "ok"
    WRONG = "WRONG"
    NOT_OFFERED = "not offered"
    """The CLI has nothing that could be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One conclusion. `delay` counts from what happened at the model to the event; it may be negative."""

    row: str
    event: str
    expected: str
    seen: str
    source: str = ""
    delay: timedelta | None = None
    verdict: Verdict = Verdict.RIGHT

    @property
    def milliseconds(self) -> int | None:
        return None if self.delay is None else round(self.delay.total_seconds() * 1000)

    def as_fields(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "event": self.event,
            "expected": self.expected,
            "seen": self.seen,
            "source": self.source,
            "delay_ms": self.milliseconds,
            "verdict": self.verdict.value,
        }


def compared(row: str, event: str, expected: str, seen: str, **more: Any) -> Finding:
    """A finding that is right when what was seen is what was expected."""
    verdict = Verdict.RIGHT if seen == expected else Verdict.WRONG
    return Finding(row=row, event=event, expected=expected, seen=seen, verdict=verdict, **more)


def delay_between(truth: datetime | None, seen: datetime | None) -> timedelta | None:
    return None if truth is None or seen is None else seen - truth


def wrong(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is Verdict.WRONG]


def median_delay(findings: Sequence[Finding]) -> int | None:
    """The median delay in milliseconds; what was known before it happened at the model counts as no delay."""
    delays = [max(0, finding.milliseconds) for finding in findings if finding.milliseconds is not None]
    return round(median(delays)) if delays else None
