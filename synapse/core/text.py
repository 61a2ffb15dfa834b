"""How a message looks when it is typed into a CLI, and what is taken out of it first.

    [A2A:<short task id>:<sender>] text          no reply needed
    [A2A:<short task id>:<sender>:R] text        the sender waits for a reply

A message can never act on the terminal nor forge a sender: control characters are removed, and what looks like the
beginning of another envelope is neutralised. That is done anywhere in the body, not only where a line begins: a narrow
terminal may wrap right before it, and a program that reads lines gets all lines as one.

Text of a program as people may be shown it elsewhere: without what acts on a terminal, and of bounded length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

from synapse.core.address import KEY, PERSON, UNVERIFIED

_HEADER: Final = "[A2A:"

# C0 except tab and newline, DEL and C1. DEL in a line REPL erased the header, so another sender could be forged.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Invisible characters that reorder or hide text: bidi controls, zero-width space, line and paragraph separators, BOM,
# fillers. ZWJ and ZWNJ stay: emoji and several scripts need them.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_LINE_END: Final = re.compile("\r\n|[\r\u2028\u2029]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

# Between the letters of a forged header there may be blanks, joiners, variation selectors and combining marks.
_FILLING: Final = "[\\s\u0300-\u036f\u200c\u200d\ufe00-\ufe0f]*"
_FORGED: Final = re.compile(rf"\[(?={_FILLING.join(('', 'A', '2', 'A', ':'))})", re.IGNORECASE)
# Look-alikes that compatibility folding leaves alone: Cyrillic and Greek letters, other brackets, other colons.
_LOOKALIKES: Final = {
    **dict.fromkeys("\u0410\u0430\u0391\u03b1\u13aa\ua4ee", "A"),
    **dict.fromkeys("\u2045\u27e6\u2772\u3010\u3014\u3016\u301a\ufe47", "["),
    **dict.fromkeys("\u02d0\u0589\u05c3\u2236\ua789\ufe13\ufe30", ":"),
}


_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAME: Final = 64
# Letters that are read from right to left would show the fields of a header in another order.
_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})


def is_id(text: object) -> bool:
    """Whether `text` can stand as an id in a header."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def typed_sender(metadata: Mapping[str, Any]) -> str:
    """Return how a header names the sender that a task's metadata describes.

    proven                    synapse-claude-8100, user, synapse-system
    a caller of the gateway   key.NAME
    everybody else            unverified.NAME
    """
    claimed: object = metadata.get("sender")
    sender = cast("dict[str, Any]", claimed).get("sender_id") if isinstance(claimed, dict) else ""
    name = _word(str(sender or PERSON))
    if metadata.get("sender_verified") is True:
        return name
    user = metadata.get("user")
    marked = KEY + _word(user) if isinstance(user, str) and user else UNVERIFIED + name
    return marked[:_LONGEST_NAME]


def sanitise(text: str) -> str:
    """Return `text` without anything that could act on a terminal; newlines are LF, tabs stay."""
    if text.isascii() and text.isprintable():
        return text  # nothing of all that is in it, as in most messages
    text = _LINE_END.sub("\n", text)
    text = _CONTROL.sub("", text)
    text = _INVISIBLE.sub("", text)
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Return `text` on one line, without anything that could act on a terminal; runs of blanks are one."""
    return " ".join(sanitise(text).split())


def neutralise(body: str) -> str:
    """Return `body` with everything that looks like the beginning of an envelope made harmless: `(A2A:` for `[A2A:`."""
    folded = body if body.isascii() else body.translate(_FOLDING)
    pieces: list[str] = []
    copied = 0
    for forged in _FORGED.finditer(folded):
        pieces += (body[copied : forged.start()], "(")
        copied = forged.end()
    return "".join([*pieces, body[copied:]])


def wrap(body: str, *, short_id: str, sender: str, response_expected: bool) -> str:
    """Return the line that is typed for `body`."""
    return _header(short_id, sender, ":R" if response_expected else "") + neutralise(sanitise(body))


def wrap_own(body: str, *, short_id: str, sender: str) -> str:
    """Return the line that is typed for words of Synapse itself: only they may show what an envelope looks like."""
    return _header(short_id, sender) + sanitise(body)


def _header(short_id: str, sender: str, flag: str = "") -> str:
    return f"{_HEADER}{short_id}:{_word(sender)}{flag}] "


@lru_cache(maxsize=256)
def _word(sender: str) -> str:
    """A sender's name cannot close the header, begin another field or turn the order of what is shown."""
    kept = re.sub(r"[^\w.@-]", "_", sanitise(sender))[:_LONGEST_NAME]
    return "".join("_" if unicodedata.bidirectional(char) in _RIGHT_TO_LEFT else char for char in kept) or "unknown"


class _Folding(dict[int, str]):
    """Each character as the plain one that it looks like, one for one, so that places stay the same."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = unicodedata.normalize("NFKC", char)
        self[code] = folded = _LOOKALIKES.get(char, plain if len(plain) == 1 else char)
        return folded


_FOLDING: Final = _Folding()


LONGEST_LINE: Final = 300
LONGEST_DETAIL: Final = 4000
_MOST_LINES: Final = 60
_CUT: Final = "\n… (there is more of it: look at its terminal)"


def safe_line(text: str) -> str:
    """One line; runs of blanks are one."""
    line = one_line(text)
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def safe_lines(text: str) -> str:
    """Several lines; indentation stays."""
    lines = [line.rstrip() for line in sanitise(text).expandtabs(4).split("\n")]
    kept = "\n".join(lines[:_MOST_LINES]).strip("\n")
    is_whole = len(lines) <= _MOST_LINES and len(kept) <= LONGEST_DETAIL
    return kept if is_whole else kept[: LONGEST_DETAIL - len(_CUT)] + _CUT
