"""Notices at the terminal of `synapse top`: the bell, and the terminal's own notification where it has one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from synapse.client.overview import Need
from synapse.core.text import safe_line
from synapse.core.types import Clock
from synapse.notices.log import NoticeLog, Result
from synapse.notices.rules import Notice, Rules, notice_of

Notify = Callable[[Need, Collection[str], Callable[[str], None]], None]
"""Tells about a need of the agent with these names, by writing to the terminal."""
OUTLET: Final = "terminal"
BELL: Final = "\a"
_END: Final = "\x1b\\"


class TerminalNotices:
    """Rings for new needs, as far as the person's rules allow, and records what it did."""

    def __init__(self, rules: Rules, log: NoticeLog, clock: Clock, environ: Mapping[str, str]) -> None:
        self._rules = rules
        self._log = log
        self._clock = clock
        self._environ = environ

    def __call__(self, need: Need, names: Collection[str], write: Callable[[str], None]) -> None:
        """Shows a need of the agent with these names; `write` sends control sequences to the terminal."""
        notice = notice_of(need)
        why = self._rules.why_suppressed(notice, names, self._clock.now().astimezone())
        if not why:
            write(sequence_for(notice, self._environ))
        with suppress(OSError):  # a full disk takes the record, not the bell
            self._log.append(notice, OUTLET, Result.SUPPRESSED if why else Result.SENT, self._clock.now(), why)


def sequence_for(notice: Notice, environ: Mapping[str, str]) -> str:
    """Returns the bell, and the sequence by which this terminal shows a notification.

    Some know OSC 777 and some OSC 9; terminals that know both would show two. tmux and screen pass neither on, and make
    a mark of the bell.
    """
    terminal = environ.get("TERM", "")
    if environ.get("TMUX") or terminal.startswith(("screen", "tmux", "linux")):
        return BELL
    # A semicolon ends a field of the sequence.
    title, text = (safe_line(part).replace(";", ",") for part in (notice.title, notice.text))
    if environ.get("VTE_VERSION") or terminal.startswith(("rxvt", "foot")):
        return f"{BELL}\x1b]777;notify;{title};{text}{_END}"
    return f"{BELL}\x1b]9;{title}: {text}{_END}"
