"""Taking turns: contenders are measured one after the other, again and again, so that noise hits all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def interleave(rounds: int, contenders: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Measure each contender `rounds` times. Every second round goes backwards, so that none always has the lead."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(rounds):
        for name in order:
            found[name].append(contenders[name]())
        order.reverse()
    return found
