"""The truth: what the scripted model was asked and what it did, with the time of each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from synapse.core.clock import Clock


class Fact(StrEnum):
    """What happened at the model."""

    ASKED = "asked"
    """A request of the turn came; the text is the prompt."""
    RESULT = "result"
    """A request came that brings what a tool answered; the text is that."""
    SAID = "said"
    """The last byte of a text is going out; the text is all of it."""
    CALLED = "called"
    """The last byte of a tool call is going out; the text is the tool's name."""
    LACKED = "lacked"
    """The CLI offers no tool for what the scene wants."""
    HELD = "held"
    """The beginning of an answer is out, and the rest is held back."""
    LEFT = "left"
    """The CLI hung up in the middle of an answer."""
    REFUSED = "refused"
    """An error is going out; the text is its status."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact of one turn. The time is the wall clock's: the one that two processes share."""

    at: datetime
    turn: str
    fact: Fact
    text: str


class Ledger:
    """All facts, in their order; written by the server's threads, read by whoever compares."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._entries: list[Entry] = []

    def note(self, turn: str, fact: Fact, text: str = "") -> None:
        with self._changed:
            self._entries.append(Entry(self._clock.now(), turn, fact, text))
            self._changed.notify_all()

    def of(self, turn: str) -> list[Entry]:
        """The facts of one turn."""
        with self._changed:
            return [entry for entry in self._entries if entry.turn == turn]

    def last(self, turn: str, *facts: Fact) -> Entry | None:
        """The newest of these facts of a turn."""
        return next((entry for entry in reversed(self.of(turn)) if entry.fact in facts), None)

    def first(self, turn: str, fact: Fact) -> Entry | None:
        """The oldest fact of this kind of a turn."""
        return next((entry for entry in self.of(turn) if entry.fact is fact), None)

    def wait_for(self, turn: str, *facts: Fact, seconds: float) -> Entry | None:
        """The newest of these facts, as soon as there is one; None when none came in time."""
        self._wait(lambda: any(entry.turn == turn and entry.fact in facts for entry in self._entries), seconds)
        return self.last(turn, *facts)

    @property
    def entries(self) -> list[Entry]:
        with self._changed:
            return list(self._entries)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(condition, seconds)
