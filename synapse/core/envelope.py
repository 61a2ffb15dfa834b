"""How a message looks when it is typed into a CLI, and what is taken out of it first.

    [A2A:<short task id>:<sender>] text          no reply needed
    [A2A:<short task id>:<sender>:R] text        the sender waits for a reply

A message can never act on the terminal nor forge a sender: control characters are removed, and a line of the body that
looks like an envelope is neutralised.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_HEADER: Final = "[A2A:"

# C0 except tab and newline, DEL and C1. DEL in a line REPL erased the header, so another sender could be forged.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Invisible characters that reorder or hide text: bidi controls, zero-width space, line and paragraph separators, BOM.
# ZWJ and ZWNJ stay: emoji and several scripts need them.
_INVISIBLE: Final = re.compile(
    "[\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\U000e0000-\U000e007f]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_FORGED: Final = re.compile(r"^(\s*)\[(?=\s*[Aa]2[Aa]\s*:)", re.MULTILINE)


def sanitise(text: str) -> str:
    """Return `text` without anything that could act on a terminal; newlines are LF, tabs stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROL.sub("", text)
    text = _INVISIBLE.sub("", text)
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def neutralise(body: str) -> str:
    """Return `body` with every line that looks like an envelope made harmless: `(A2A:` instead of `[A2A:`."""
    return _FORGED.sub(r"\1(", _folded(body))


def _folded(body: str) -> str:
    """Full-width brackets, letters and colons of a look-alike header become plain ones, so that one rule sees all."""
    if body.isascii():
        return body
    return "\n".join(_folded_head(line) for line in body.split("\n"))


def wrap(body: str, *, short_id: str, sender: str, response_expected: bool) -> str:
    """Return the line that is typed for `body`."""
    flag = ":R" if response_expected else ""
    return f"{_HEADER}{short_id}:{_word(sender)}{flag}] {neutralise(sanitise(body))}"


def _folded_head(line: str) -> str:
    head = unicodedata.normalize("NFKC", line[:16])
    return head + line[16:] if head.lstrip().upper().startswith(_HEADER) else line


def _word(sender: str) -> str:
    """A sender's name cannot close the header or begin another field."""
    return re.sub(r"[^\w.@-]", "_", sanitise(sender))[:64] or "unknown"
