"""A listener that keeps what it hears."""

from __future__ import annotations

from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import Report


class KeepingListener:
    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.expected: dict[Source, str] = {}
        self.lacking: dict[Source, str] = {}
        self.is_ready = False
        self.last_typed = ""

    def quiet_for(self) -> float:
        return 0.0

    def typed(self) -> str:
        return self.last_typed

    def seems_ready(self) -> bool:
        return self.is_ready

    def report(self, report: Report) -> None:
        self.reports.append(report)

    def expect(self, source: Source, detail: str) -> None:
        self.expected[source] = detail

    def lack(self, source: Source, detail: str) -> None:
        self.lacking[source] = detail
