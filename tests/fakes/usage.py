"""A recorder that keeps what it is told."""

from __future__ import annotations

from synapse.core.task import TaskId
from synapse.core.usage import UsageReport


class KeptUsage:
    def __init__(self) -> None:
        self.reports: list[UsageReport] = []
        self.named: list[tuple[str, TaskId]] = []

    def record(self, report: UsageReport, /) -> None:
        self.reports.append(report)

    def name_turn(self, turn: str, task: TaskId, /) -> None:
        self.named.append((turn, task))
