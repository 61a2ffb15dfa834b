"""What a benchmark finds: a figure, what stands beside it, their ratio, and whether the target is reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured; the whole run takes about five minutes."""

    commands: int
    messages: int
    megabytes: int
    passes: int
    windows: int
    window_seconds: float
    launches: int
    idle_seconds: float
    keys: int


WHOLE = Effort(
    commands=40,
    messages=100,
    megabytes=200,
    passes=3,
    windows=6,
    window_seconds=1.0,
    launches=9,
    idle_seconds=12.0,
    keys=300,
)
QUICK = Effort(
    commands=10,
    messages=20,
    megabytes=40,
    passes=2,
    windows=2,
    window_seconds=0.5,
    launches=3,
    idle_seconds=3.0,
    keys=50,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. Without a target, `reached` is None: the figure is only shown."""

    what: str
    measured: str
    beside: str = ""
    ratio: float | None = None
    target: str = ""
    reached: bool | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of some measurements, and what they are of."""

    name: str
    values: Sequence[float]
    unit: str
    scale: float = 1.0
    """What a value is multiplied with to be shown in `unit`."""

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def shown(self) -> str:
        return f"{shown(self.value * self.scale)} {self.unit}"

    @property
    def named(self) -> str:
        return f"{self.name} {self.shown}"


def at_most(times: float, ours: Figure, peer: Figure, what: str = "") -> Row:
    """We take at most so many times what the peer takes."""
    ratio = ours.value / peer.value
    return Row(
        what=what or ours.name,
        measured=ours.shown,
        beside=peer.named,
        ratio=ratio,
        target=f"≤ {times:g} {TIMES}",
        reached=ratio <= times,
    )


def at_least(times: float, ours: Figure, peer: Figure, what: str = "") -> Row:
    """We do at least so many times what the peer does."""
    ratio = ours.value / peer.value
    return Row(
        what=what or ours.name,
        measured=ours.shown,
        beside=peer.named,
        ratio=ratio,
        target=f"≥ {times:g} {TIMES}",
        reached=ratio >= times,
    )


def within(limit: float, ours: Figure, peer: Figure | None = None) -> Row:
    """We stay at or below an absolute limit, in the unit of the figure; a peer is shown beside."""
    value = ours.value * ours.scale
    return Row(
        what=ours.name,
        measured=ours.shown,
        beside=peer.named if peer else "",
        ratio=ours.value / peer.value if peer and peer.value else None,
        target=f"≤ {limit:g} {ours.unit}",
        reached=value <= limit,
    )


def beside(ours: Figure, peer: Figure) -> Row:
    """Both are shown; nothing is demanded."""
    return Row(what=ours.name, measured=ours.shown, beside=peer.named, ratio=ours.value / peer.value)


def shown(value: float) -> str:
    """Three digits are as many as such figures have."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
