"""Makes characters visible that hide in a text: people decide about commands by what they see.

`reveal` marks what a terminal or a browser would not show, or would show as something else: control characters, bidi
controls, zero-width characters, blanks that are not a space; letters of other scripts that look like ASCII ones, inside
an ASCII word or as a whole word; signs that look like those that a shell acts on. The dashboard's `reveal` marks the
same.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, NamedTuple

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_SHOWN: Final = frozenset(" \n\t")
# Fillers and blanks that Unicode counts as letters, marks or symbols.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Emoji and several scripts need joiners and variation selectors; after an ASCII character they only hide.
_JOINING: Final = re.compile("[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_WORD: Final = re.compile(r"\w+")
_ASCII_LETTER: Final = re.compile("[A-Za-z]")
# Full-width forms, other slashes, hyphens, quotes, colons, semicolons and bars.
_ALIKE_SIGN: Final = re.compile(
    "[\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u2044\u2215\u29f8\u2010-\u2012\u2212\u02bc\u02b9\u2032\u037e"
    "\u02d0\u2236\ua789\u0589\u01c3\u2024\ua4f8\u2216\u29f5\u2223\u01c0]"
)
# Cyrillic and Greek letters that look like ASCII ones: a word of nothing else reads as an ASCII word.
_TWINS: Final = frozenset(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04bd\u04cf"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u050c\u051a\u051c"
    "\u03bf\u03b1\u03bd\u03c1\u03c5\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
)
_ALIKE_SCRIPTS: Final = ("ARMENIAN ", "CHEROKEE ", "COPTIC ", "CYRILLIC ", "GREEK ", "LISU ")


class Piece(NamedTuple):
    """A part of a text as people should see it; `is_mark` for the name of a character, such as `<U+202E>`."""

    text: str
    is_mark: bool


def reveal(text: str) -> list[Piece]:
    """Returns `text` in pieces: hidden characters are replaced by a mark, look-alike letters are followed by one.

    Newlines and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return [Piece(text, is_mark=False)] if text else []  # the usual case
    alike = _alike_positions(text)
    pieces: list[Piece] = []
    plain: list[str] = []
    for position, char in enumerate(text):
        is_hidden = _is_hidden(char, text[position - 1] if position else "")
        if not is_hidden:
            plain.append(char)
        if is_hidden or position in alike:
            if plain:
                pieces.append(Piece("".join(plain), is_mark=False))
                plain.clear()
            pieces.append(Piece(f"<U+{ord(char):04X}>", is_mark=True))
    if plain:
        pieces.append(Piece("".join(plain), is_mark=False))
    return pieces


def revealed(text: str) -> str:
    """Returns the pieces of `reveal` as one text."""
    return "".join(piece.text for piece in reveal(text))


def _is_hidden(char: str, before: str) -> bool:
    if char in _SHOWN:
        return False
    if _JOINING.match(char):
        return before.isascii()
    return char in _BLANK or unicodedata.category(char) in _HIDDEN_CATEGORIES


def _alike_positions(text: str) -> set[int]:
    """Returns where characters stand that look like ASCII ones."""
    if text.isascii():
        return set()
    found = {sign.start() for sign in _ALIKE_SIGN.finditer(text)}
    for word in _WORD.finditer(text):
        if word[0].isascii():
            continue
        is_twin = len(word[0]) > 1 and _TWINS.issuperset(word[0])
        if is_twin or _ASCII_LETTER.search(word[0]):
            found |= {word.start() + offset for offset, char in enumerate(word[0]) if is_twin or _looks_alike(char)}
    return found


@lru_cache(maxsize=1024)
def _looks_alike(char: str) -> bool:
    if char.isascii():
        return False
    return unicodedata.normalize("NFKC", char).isascii() or unicodedata.name(char, "").startswith(_ALIKE_SCRIPTS)
