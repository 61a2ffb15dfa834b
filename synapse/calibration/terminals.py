"""The terminals that a CLI is calibrated in: the person's own, or one of each kind.

CLIs paint differently with few colours, on a small screen and in a light theme. They take the colours from TERM,
COLORTERM and NO_COLOR, and the theme from the terminal's answer to a query, or from COLORFGBG.
"""

from __future__ import annotations

import os
import re
import select
import termios
import tty
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from synapse.config.settings import DEFAULT_SIZE, TerminalSize
from synapse.core.override import override
from synapse.core.types import Clock
from synapse.terminal.theme import Theme, theme_in

_VARIABLES: Final = (
    "TERM",
    "COLORTERM",
    "COLORFGBG",
    "NO_COLOR",
    "FORCE_COLOR",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
)
"""The variables by which a terminal or its person chooses how programs paint."""
_TERM: Final = "xterm-256color"
# Every terminal answers the second query, so nothing more comes after that answer.
_QUERY: Final = b"\x1b]11;?\x1b\\\x1b[c"
_LAST_ANSWER: Final = re.compile(rb"\x1b\[\?[\d;]*c")
_QUERY_SECONDS: Final = 1.0
_STDIN, _STDOUT, _STDERR = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalKind:
    """One kind of terminal; by default, the one that a background agent gets."""

    variables: Mapping[str, str] = field(default_factory=lambda: {"TERM": _TERM})
    size: TerminalSize = DEFAULT_SIZE
    theme: Theme = Theme.DARK

    @property
    def colours(self) -> str:
        """How many colours programs will use, as text."""
        if "NO_COLOR" in self.variables:
            return "no colour"
        if self.variables.get("COLORTERM") in ("truecolor", "24bit"):
            return "true colour"
        return "256 colours" if "256" in self.variables.get("TERM", "") else "16 colours"

    @property
    def env(self) -> dict[str, str]:
        """The variables for a host, so that its agent gets such a terminal."""
        own = {"SYNAPSE_TERMINAL_SIZE": str(self.size), "SYNAPSE_TERMINAL_THEME": self.theme.value}
        return {**self.variables, **own}

    def as_fields(self) -> dict[str, Any]:
        return {
            "variables": dict(self.variables),
            "colours": self.colours,
            "size": str(self.size),
            "theme": self.theme.value,
        }

    @override
    def __str__(self) -> str:
        theme = "unknown theme" if self.theme is Theme.NONE else self.theme.value
        return f"{self.variables.get('TERM', 'no TERM')}, {self.colours}, {self.size}, {theme}"


def _kind(colours: Mapping[str, str], size: TerminalSize, theme: Theme) -> TerminalKind:
    named = {"COLORFGBG": "0;15" if theme is Theme.LIGHT else "15;0"}
    return TerminalKind(variables={**colours, **named}, size=size, theme=theme)


_COLOURS: Final = ({"TERM": "xterm"}, {"TERM": _TERM}, {"TERM": _TERM, "COLORTERM": "truecolor"})
_SIZES: Final = (TerminalSize(80, 24), TerminalSize(200, 60))
_THEMES: Final = (Theme.LIGHT, Theme.DARK)

EVERY_KIND: Final = tuple(_kind(*chosen) for chosen in product(_COLOURS, _SIZES, _THEMES))
PAIRWISE: Final = tuple(
    _kind(colours, size, _THEMES[(number + place) % 2])
    for number, colours in enumerate(_COLOURS)
    for place, size in enumerate(_SIZES)
)
"""Half of EVERY_KIND, which cover every pair of colours, size and theme."""


def own_terminal(environ: Mapping[str, str], clock: Clock) -> TerminalKind:
    """Returns the kind of terminal that this process was started in; the default kind if there is none."""
    sink = next((number for number in (_STDOUT, _STDERR) if os.isatty(number)), None)
    if sink is None or not os.isatty(_STDIN):
        return TerminalKind()
    size = os.get_terminal_size(sink)
    variables = {"TERM": _TERM, **{name: value for name in _VARIABLES if (value := environ.get(name))}}
    return TerminalKind(
        variables=variables,
        size=TerminalSize(size.columns, size.lines) if size.columns and size.lines else DEFAULT_SIZE,
        # A dumb terminal would show the query as text.
        theme=Theme.NONE if variables["TERM"] == "dumb" else theme_in(_query(_STDIN, sink, clock)),
    )


def _query(source: int, sink: int, clock: Clock) -> bytes:
    """Asks the terminal for its background colour and returns its answer."""
    if os.tcgetpgrp(source) != os.getpgrp():
        # The shell has the terminal; changing it from the background would suspend us.
        return b""
    before = termios.tcgetattr(source)
    answer, deadline = b"", clock.monotonic() + _QUERY_SECONDS
    try:
        tty.setraw(source, termios.TCSADRAIN)
        os.write(sink, _QUERY)
        while not _LAST_ANSWER.search(answer) and (left := deadline - clock.monotonic()) > 0:
            if select.select([source], [], [], left)[0]:
                answer += os.read(source, 1024)
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)
    return answer
