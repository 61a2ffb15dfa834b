"""A listener that keeps the reports that it gets."""

from __future__ import annotations

from synapse.core.usage import UsageReport
from synapse.terminal.evidence import Source
from synapse.terminal.picture import Picture
from synapse.terminal.signals.report import SignalReport, TextSoFar


class KeepingListener:
    def __init__(self) -> None:
        self.reports: list[SignalReport] = []
        self.said: list[TextSoFar] = []
        self.used: list[UsageReport] = []
        self.expected: dict[Source, str] = {}
        self.missing: dict[Source, str] = {}
        self.held: list[str] = []
        self.is_ready = False
        self.shown: Picture | None = None
        self.last_typed = ""
        self.answered: set[str] = set()
        """Questions whose dialog is gone."""

    def quiet_for(self) -> float:
        return 0.0

    def typed(self) -> str:
        return self.last_typed

    def picture(self) -> Picture | None:
        return self.shown

    def seems_ready(self) -> bool:
        return self.is_ready

    def asks(self, question_id: str) -> bool:
        return question_id not in self.answered

    def report(self, report: SignalReport) -> None:
        self.reports.append(report)

    def say(self, saying: TextSoFar) -> None:
        self.said.append(saying)

    def note_usage(self, usage: UsageReport) -> None:
        self.used.append(usage)

    def expect(self, source: Source, detail: str) -> None:
        self.expected[source] = detail

    def hold(self, why: str) -> None:
        self.held.append(why)

    def mark_missing(self, source: Source, detail: str) -> None:
        self.missing[source] = detail
