"""The words of texts and searches, and which texts a search finds."""

from __future__ import annotations

import sqlite3

import pytest

from synapse.core.errors import InvalidField
from synapse.core.lifecycle import replay
from synapse.core.message import DataPart, FilePart, Message, MessageId, Role, TextPart
from synapse.store.search_words import MAX_SEARCH, Search, normalized, text_of_task, words_of
from tests.fakes.facts import handed, opened, said

TEXT = 'Review src/app.py: the "parser" isn\'t done. Café, STRASSE, naïve; 日本語を書く。 한국어 текст ﬁne'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World_2!", ["hello", "world", "2"]),
        ("src/app.py", ["src", "app", "py"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße", ["strasse"]),
        ("日本語", ["日", "本", "語"]),
        ("がか", ["が", "か"]),
        ("한국어", ["한", "국", "어"]),
        ("lone \ud800 surrogate", ["lone", "surrogate"]),
        ("nul\x00byte", ["nul", "byte"]),
        ("", []),
        ("— … !", []),
    ],
)
def test_words_are_runs_of_letters_and_digits_without_accents(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("search", "is_found"),
    [
        ("parser", True),
        ("PARSER review", True),
        ("parser nothing", False),
        ("src/app.py", True),
        ("app/src", False),
        ('"the parser"', True),
        ('"parser the"', False),
        ("pars", True),
        ('"pars"', False),
        ("pars review", False),
        ("pa", False),
        ("review \"isn't don", True),
        ("cafe", True),
        ("naïve", True),
        ("straße", True),
        ("本語", True),
        ("語本", False),
        ("국", True),
        ("Текст", True),
        ("fine", True),
        ("(parser OR nothing) NOT review*", False),
        ('" " parser', True),
        ("body:parser", False),
        ("!!!", False),
        ('"', False),
    ],
)
def test_a_search_finds_all_its_words(search: str, is_found: bool) -> None:
    parsed = Search.parse(search)

    assert parsed.finds(TEXT) is is_found
    assert matches_in_sqlite(parsed, TEXT) is is_found


def matches_in_sqlite(search: Search, text: str) -> bool:
    """Returns what the index would say."""
    if not search.expression:
        return False
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5(body, tokenize = 'ascii', prefix = '3')")
        connection.execute("INSERT INTO texts VALUES (?)", (normalized(text),))
        return bool(connection.execute("SELECT * FROM texts WHERE texts MATCH ?", (search.expression,)).fetchall())
    finally:
        connection.close()


@pytest.mark.parametrize("word", ["a ", "語", "ab ", '"a b" ', "a-b "])
def test_the_longest_search_is_one_that_sqlite_understands(word: str) -> None:
    search = Search.parse((word * MAX_SEARCH)[:MAX_SEARCH])

    assert matches_in_sqlite(search, word * MAX_SEARCH)


def test_a_longer_search_is_refused() -> None:
    with pytest.raises(InvalidField, match="500"):
        Search.parse("a" * (MAX_SEARCH + 1))


def test_the_text_of_a_task_is_its_messages_and_answers_without_files() -> None:
    parts = (TextPart(text="one"), FilePart(content=b"file bytes", name="file.txt"), DataPart(data={"data": "value"}))
    first = opened(message=Message(message_id=MessageId("m"), role=Role.USER, parts=parts))

    task = replay([first, said("two"), handed("thr", append=False), handed("ee", append=True)])

    assert text_of_task(task) == "one\ntwo\nthree"
