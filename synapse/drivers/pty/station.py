"""What the parts of a driver share: the program, how it is seen, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from synapse.core.agent import WAITING
from synapse.core.clock import Clock
from synapse.core.errors import AgentExited
from synapse.drivers.pty.heard import Heard
from synapse.drivers.pty.lookout import Lookout
from synapse.drivers.pty.running_program import RunningProgram
from synapse.terminal.asking import Asking, Open
from synapse.terminal.evidence import Look, Source
from synapse.terminal.insistence import Insistence
from synapse.terminal.profile import Profile


@dataclass(slots=True, kw_only=True)
class Station:
    """One program and everything that is known of it."""

    program: RunningProgram
    profile: Profile
    clock: Clock
    lookout: Lookout
    asking: Asking
    heard: Heard = field(default_factory=Heard)
    insistence: Insistence = field(default_factory=Insistence)
    """Whether the turn was interrupted, and has to be once more."""
    expected: Source | None = None
    """The source that should say something."""
    look_again: Callable[[], None] = lambda: None
    """Reads what the program has told by now; called when it is typed into, and before its screen is believed to say
    that a turn is over."""
    _told_open: Open | None = None

    def now(self) -> float:
        return self.clock.monotonic()

    def look(self) -> Look:
        """Look at the screen now.

        Raises AgentExited.
        """
        if self.program.exited.done():
            raise AgentExited(end_of(self.program.exited.result()))
        return self.lookout.look()

    def asked(self, look: Look) -> Open | None:
        """What is asked, by what is seen now."""
        claims = self.lookout.evidence.claims
        is_told_by_title = any(claim.source is Source.TITLE and claim.state == WAITING for claim in claims)
        opened = self.asking.see(look, self.now(), is_told_by_title=is_told_by_title)
        self._note_closed(opened, look)
        return opened

    def _note_closed(self, opened: Open | None, look: Look) -> None:
        """That a dialog was answered is told by nobody at once; it is seen to be gone."""
        before, self._told_open = self._told_open, opened
        if before is None or before.told is None or before.dialog is None:
            return
        if (opened is None or opened.dialog is None) and look.state == WAITING:
            self.lookout.evidence.report(before.told.source, "", "the dialog that it told of is gone", self.now())


def end_of(status: int) -> str:
    """How a program ended, as a sentence."""
    if status > 128:
        return f"the program was ended by signal {status - 128}"
    return f"the program ended with status {status}"
