"""An interrupt that a program may have missed: its keys are pressed again while it goes on working.

A busy program reads two Escapes that came one after the other as one key, Alt-Escape, and does nothing. Seen on Copilot
and OpenCode, on a machine with more to do than it can.
"""

from __future__ import annotations

from typing import Final

from synapse.core.agent import WORKING
from synapse.terminal.evidence import Look
from synapse.terminal.gate import dialog_open

PATIENCE: Final = 2.0
"""Programs take up to a second to end what they do, and say so."""
MOST_PRESSES: Final = 4


class Insistence:
    """The interrupts of one turn."""

    def __init__(self) -> None:
        self._presses = 0
        self._next: float | None = None

    @property
    def deadline(self) -> float | None:
        """When it is worth asking again, or None."""
        return self._next

    def pressed(self, now: float) -> None:
        """The keys were pressed."""
        self._presses += 1
        self._next = now + PATIENCE if self._presses < MOST_PRESSES else None

    def is_due(self, look: Look, now: float) -> bool:
        """True if the program was asked to stop, has had its time, and still works."""
        if self._next is None or now < self._next:
            return False
        # In any other state the same keys do something else: they answer a dialog, or open a menu.
        is_missed = look.state == WORKING and not dialog_open(look)
        if not is_missed:
            self._next = None
        return is_missed
