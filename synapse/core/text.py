"""The text of a message as it is typed into a CLI, and the removal of characters that act on a terminal.

    [A2A:<short task id>:<sender>] text          no reply needed
    [A2A:<short task id>:<sender>:R] text        the sender waits for a reply

A message can neither act on the terminal nor forge a sender: control characters are removed, and text that looks like
the beginning of another envelope is neutralised. That applies anywhere in the body, not only at the start of a line: a
narrow terminal may wrap right before it, and a program that reads lines gets all lines as one.

`safe_line` and `safe_lines` prepare the text of a program for people who decide by it: a character that would act on a
terminal, or hide, is named (`<U+200B>`) and not removed.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from synapse.core.address import KEY, PERSON, UNVERIFIED, on_machine, split_machine

LONGEST_LINE: Final = 300
LONGEST_DETAIL: Final = 64 * 1024
_MOST_LINES: Final = 2000
_CUT: Final = "\n… (truncated: the agent's terminal shows the rest)"

_HEADER: Final = "[A2A:"

# C0 except tab and newline, DEL and C1. In a line REPL, DEL could erase the header and so forge another sender.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Invisible characters that reorder or hide text: bidi controls, zero-width space, line and paragraph separators, BOM,
# fillers. ZWJ and ZWNJ stay: emoji and several scripts need them.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_LINE_END: Final = re.compile("\r\n|[\r\u2028\u2029]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NAME_OF_CHARACTER: Final = re.compile(r"<U\+[0-9A-F]{4,6}>")

# The letters of a forged header may have blanks, joiners, variation selectors and combining marks between them.
_FILLING: Final = "[\\s\u0300-\u036f\u200c\u200d\ufe00-\ufe0f]*"
_FORGED: Final = re.compile(rf"\[(?={_FILLING.join(('', 'A', '2', 'A', ':'))})", re.IGNORECASE)
# Look-alikes that compatibility folding does not change: Cyrillic and Greek letters, other brackets, other colons.
_LOOKALIKES: Final = {
    **dict.fromkeys("\u0410\u0430\u0391\u03b1\u13aa\ua4ee", "A"),
    **dict.fromkeys("\u2045\u27e6\u2772\u3010\u3014\u3016\u301a\ufe47", "["),
    **dict.fromkeys("\u02d0\u0589\u05c3\u2236\ua789\ufe13\ufe30", ":"),
}

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAME: Final = 64
# Right-to-left letters would change the order in which the fields of a header are shown.
_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})


def is_id(text: object) -> bool:
    """Decides whether `text` may be an id in a header."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def sender_name(sender_id: str, *, verified: bool, user: str = "") -> str:
    """Returns the sender's name for headers and lists. `user` is the name of a gateway's caller.

    proven                    synapse-claude-8100, user, synapse-system
    on another machine        synapse-claude-8100@laptop, user@laptop
    a caller of the gateway   key.NAME
    anything else             unverified.NAME
    """
    name = _word(sender_id or PERSON)
    if verified:
        return name
    if user:
        return (KEY + _word(user))[:_LONGEST_NAME]
    return _word(UNVERIFIED + name)


def sanitise(text: str) -> str:
    """Returns `text` without characters that act on a terminal; newlines become LF, tabs stay."""
    if text.isascii() and text.isprintable():
        return text  # the usual case
    text = _LINE_END.sub("\n", text)
    text = _CONTROL.sub("", text)
    text = _INVISIBLE.sub("", text)
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Returns `text` on one line, without characters that act on a terminal; runs of whitespace become one space."""
    return " ".join(sanitise(text).split())


def neutralise(body: str) -> str:
    """Returns `body` with `(A2A:` for everything that looks like the beginning of an envelope, `[A2A:`."""
    folded = body if body.isascii() else body.translate(_FOLDING)
    pieces: list[str] = []
    copied = 0
    for forged in _FORGED.finditer(folded):
        pieces += (body[copied : forged.start()], "(")
        copied = forged.end()
    return "".join([*pieces, body[copied:]])


def wrap(body: str, *, short_id: str, sender: str, response_expected: bool) -> str:
    """Returns the line to type for the message `body`."""
    return _header(short_id, sender, ":R" if response_expected else "") + neutralise(sanitise(body))


def wrap_own(body: str, *, short_id: str, sender: str) -> str:
    """Returns the line to type for a message of Synapse itself, the only kind that may show an envelope in its body."""
    return _header(short_id, sender) + sanitise(body)


def safe_line(text: str) -> str:
    """Returns at most LONGEST_LINE characters on one line; runs of whitespace become one space."""
    line = " ".join(_with_names(text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def with_role(description: str, role: str) -> str:
    """Returns the description on an agent's card, with what a person said the agent is for."""
    return f"{description}. Its role: {safe_line(role)}" if role else description


def safe_lines(text: str) -> str:
    """Returns at most LONGEST_DETAIL characters on several lines; keeps indentation."""
    lines = [line.rstrip() for line in _with_names(text).expandtabs(4).split("\n")]
    kept = "\n".join(lines[:_MOST_LINES]).strip("\n")
    is_whole = len(lines) <= _MOST_LINES and len(kept) <= LONGEST_DETAIL
    return kept if is_whole else kept[: LONGEST_DETAIL - len(_CUT)] + _CUT


def without_names(text: str) -> str:
    """Returns `text` without the names that `safe_line` and `safe_lines` give to hidden characters."""
    return _NAME_OF_CHARACTER.sub("", text)


def _with_names(text: str) -> str:
    """Returns `text` with the name of each character that `sanitise` would remove."""
    text = _LINE_END.sub("\n", text)
    for hidden in (_CONTROL, _INVISIBLE, _SURROGATE):
        text = hidden.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
    return text


def _header(short_id: str, sender: str, flag: str = "") -> str:
    return f"{_HEADER}{short_id}:{_word(sender)}{flag}] "


@lru_cache(maxsize=256)
def _word(sender: str) -> str:
    """Returns a sender's name that cannot close the header, begin another field or change the reading order."""
    kept = re.sub(r"[^\w.@-]", "_", sanitise(sender))
    if len(kept) > _LONGEST_NAME:
        name, machine = split_machine(kept)
        # Without its machine, a long name could pass for one of this machine.
        kept = on_machine(name[: _LONGEST_NAME - len(machine) - 1], machine) if machine else kept
        kept = kept[:_LONGEST_NAME]
    return "".join("_" if unicodedata.bidirectional(char) in _RIGHT_TO_LEFT else char for char in kept) or "unknown"


class _Folding(dict[int, str]):
    """Maps each character to the plain one that it looks like, one to one, so that positions stay valid."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = unicodedata.normalize("NFKC", char)
        self[code] = folded = _LOOKALIKES.get(char, plain if len(plain) == 1 else char)
        return folded


_FOLDING: Final = _Folding()
