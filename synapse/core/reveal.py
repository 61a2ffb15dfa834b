"""Makes characters visible that hide in a text: people decide about commands by what they see.

`reveal` marks what a terminal or a browser would not show, or would show as something else: control characters, bidi
controls, zero-width characters, blanks that are not a space, and letters of other scripts inside an ASCII word that
look like its letters. The dashboard's `reveal` follows the same rules.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, NamedTuple

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_SHOWN: Final = frozenset(" \n\t\u3000")
# Fillers and blanks that Unicode counts as letters, marks or symbols.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Emoji and several scripts need joiners and variation selectors; after an ASCII character they only hide.
_JOINING: Final = re.compile("[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_WORD: Final = re.compile(r"\w+")
_ASCII_LETTER: Final = re.compile("[A-Za-z]")
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
    """Returns where letters stand that look like ASCII ones, in words that have ASCII letters too."""
    if text.isascii():
        return set()
    return {
        word.start() + offset
        for word in _WORD.finditer(text)
        if not word[0].isascii() and _ASCII_LETTER.search(word[0])
        for offset, char in enumerate(word[0])
        if _looks_alike(char)
    }


@lru_cache(maxsize=1024)
def _looks_alike(char: str) -> bool:
    if char.isascii():
        return False
    return unicodedata.normalize("NFKC", char).isascii() or unicodedata.name(char, "").startswith(_ALIKE_SCRIPTS)
