"""The words of texts and searches: what the search index holds, and which texts a search finds. Pure.

    text      "Café, déjà-vu 日本"   ─►  cafe deja vu 日 本
    search    review "exact words" par   ─►  review AND the phrase `exact words` AND a word that begins with `par`

Words are made here and not by SQLite's tokenizer: its tables of letters are those of Unicode 6.1, and it makes one word
of a whole Chinese or Japanese sentence. Each letter of a script without spaces is a word of its own, and a run of them
in a search is a phrase, so every part of a sentence is found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from synapse.core.errors import InvalidField
from synapse.core.task import Task

MAX_TEXT: Final = 1_000_000
"""How many characters of one task are searched: the messages, then the answers."""
MAX_SEARCH: Final = 500
_PREFIX_LETTERS: Final = 3
"""The last word of a search also finds longer words if it has so many letters. The index has entries of this length
for the beginnings of words; a shorter beginning would find nearly everything, and slowly."""
_SEPARATORS: Final = re.compile(r"[\W_]+")
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
# Thai, Lao, Myanmar, Khmer, Hiragana, Katakana, Han, Hangul.
_UNSPACED: Final = re.compile(
    "([\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U0003134f])"
)
_TERM: Final = re.compile(r'"([^"]*)("?)|([^\s"]+)')


class Phrase(NamedTuple):
    """Words that have to follow each other; the last one may be the beginning of a word."""

    words: tuple[str, ...]
    is_open: bool


@dataclass(frozen=True, slots=True)
class Search:
    """What a person searches for: all of these phrases, anywhere in a task."""

    phrases: tuple[Phrase, ...]

    @classmethod
    def parse(cls, text: str) -> Search:
        """Returns the search for `text`, which nothing but quotes has a meaning in. Raises InvalidField."""
        if len(text) > MAX_SEARCH:
            raise InvalidField("search", f"the text has {len(text)} characters; at most {MAX_SEARCH} are searched for")
        phrases: list[Phrase] = []
        for quoted, end, plain in _TERM.findall(text):
            if words := words_of(quoted or plain):
                phrases.append(Phrase(tuple(words), is_open=not end and len(words[-1]) >= _PREFIX_LETTERS))
        # Only the last word is still being typed.
        closed = [phrase._replace(is_open=False) for phrase in phrases[:-1]]
        return cls((*closed, *phrases[-1:]))

    @property
    def expression(self) -> str:
        """The search in FTS5's own language; empty if it has no words, and so finds nothing."""
        # Words hold no quotes, so nothing that a person types is read as an operator.
        quoted = (f'"{" ".join(phrase.words)}"' + (" *" if phrase.is_open else "") for phrase in self.phrases)
        return " AND ".join(quoted)

    def finds(self, text: str) -> bool:
        """Decides whether the search finds `text`: the rule that the index has to obey."""
        words = words_of(text)
        return bool(self.phrases) and all(_occurs(phrase, words) for phrase in self.phrases)


def text_of_task(task: Task) -> str:
    """Returns the text of a task that is searched: its messages and its answers, without files."""
    texts = (*(message.text for message in task.history), *(artifact.text for artifact in task.artifacts))
    return "\n".join(text for text in texts if text)[:MAX_TEXT]


def words_of(text: str) -> list[str]:
    """Returns the words of a text: runs of letters and digits, in small letters without accents."""
    return _SEPARATORS.sub(" ", normalized(text)).split()


def normalized(text: str) -> str:
    """Returns the text such that its words are the runs of ASCII letters, ASCII digits and all other characters.

    These are the tokens of FTS5's tokenizer `ascii`.
    """
    if text.isascii():
        return text.lower()
    folded = _ACCENTS.sub("", unicodedata.normalize("NFKD", text).casefold())
    # Composed again: NFKD takes Korean syllables and Japanese voiced sounds apart.
    spaced = _SEPARATORS.sub(" ", unicodedata.normalize("NFC", folded))
    return _UNSPACED.sub(r" \1 ", spaced)


def _occurs(phrase: Phrase, words: Sequence[str]) -> bool:
    *first, last = phrase.words
    size = len(phrase.words)
    return any(
        list(words[start : start + size - 1]) == first
        and (words[start + size - 1].startswith(last) if phrase.is_open else words[start + size - 1] == last)
        for start in range(len(words) - size + 1)
    )
