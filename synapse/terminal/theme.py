"""Whether a terminal is light or dark. Programs find out by asking for its colours (OSC 10 and 11, CSI ? 996 n)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

_BACKGROUND: Final = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_WEIGHTS: Final = (0.299, 0.587, 0.114)

Colour = tuple[int, int, int]


class Theme(StrEnum):
    """What a terminal answers to a program that asks for its colours."""

    DARK = "dark"
    LIGHT = "light"
    NONE = "none"
    """The terminal does not answer."""

    @property
    def colours(self) -> tuple[Colour, Colour] | tuple[None, None]:
        """The foreground and the background that a terminal of this theme reports."""
        return _COLOURS.get(self, (None, None))


_COLOURS: Final[Mapping[Theme, tuple[Colour, Colour]]] = {
    Theme.DARK: ((204, 204, 204), (0, 0, 0)),
    Theme.LIGHT: ((51, 51, 51), (255, 255, 255)),
}


def theme_in(reply: bytes) -> Theme:
    """Returns the theme of a terminal from its answer to `OSC 11 ; ?`; NONE if `reply` holds no answer."""
    found = _BACKGROUND.search(reply)
    if found is None:
        return Theme.NONE
    # A colour has one to four hexadecimal digits; all digits F is full brightness.
    parts = [int(digits, 16) / (16 ** len(digits) - 1) for digits in found.groups()]
    brightness = sum(part * weight for part, weight in zip(parts, _WEIGHTS, strict=True))
    return Theme.LIGHT if brightness > 0.5 else Theme.DARK
