"""What bytes type a text into a program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from synapse.core.envelope import sanitise
from synapse.terminal.profile import Profile, Style

_PASTE_BEGIN: Final = b"\x1b[200~"
_PASTE_END: Final = b"\x1b[201~"

# A text that ends like this opens a completion popup in all five CLIs; Enter then picks from it instead of submitting.
_OPENS_POPUP: Final = re.compile(r"(?:^|\s)[@/#$!]\S*$")


@dataclass(frozen=True, slots=True)
class Keystrokes:
    """The bytes that put a text into the input, and how it should look there. Enter is not among them."""

    data: bytes
    shown: str


def keystrokes(text: str, profile: Profile, *, bracketed_paste: bool) -> Keystrokes:
    """Return what to write for `text`: a paste where the program takes pastes, else plain keys on one line."""
    # The envelope is clean already. It is cleaned again because an ESC in a paste would end the paste, and this is the
    # last place that can see it.
    text = sanitise(text).strip()
    if not bracketed_paste and profile.typing.style is Style.LINE:
        # A line break would submit, and a tab would complete.
        text = profile.typing.newline.join(line.strip() for line in text.split("\n")).replace("\t", " ")
    shown = text + " " if _OPENS_POPUP.search(text) else text
    data = shown.encode()
    if bracketed_paste or profile.typing.style is Style.PASTE:
        data = _PASTE_BEGIN + data + _PASTE_END
    return Keystrokes(data, shown)
