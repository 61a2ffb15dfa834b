"""The statements of queries.sql by name, and the keys of the indexes that they use.

An index on a random text is slow: each new entry lands on another page, which is written twice. So indexes hold a
64-bit key instead. A page holds three times as many keys as texts, so fewer pages are written, and those needed again
are still in memory. Synapse's own ids contain the time, and their keys are in its order, so new entries share a page.
Different texts may have the same key: a statement that finds a row by key compares the text, too.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from importlib import resources
from itertools import chain
from typing import Any, Final

Row = tuple[object, ...]

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_VALUES: Final = re.compile(r"(?<=VALUES )\([?, ]+\)")
_GROUP_SIZES: Final = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
"""How many rows one statement takes. Any number of rows needs few steps, and few prepared statements are cached; more
rows of this many columns would exceed the limit of values in older versions of SQLite."""
_KEY_BYTES: Final = 8
_SMALLEST_KEY: Final = -(2 ** (8 * _KEY_BYTES - 1))
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([78])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""A UUID of version 7, which begins with the time, or of version 8, which ends with it if Synapse made it."""


def query(name: str) -> str:
    """Returns the statement with this name."""
    return _queries()[name]


def write_many(connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> None:
    """Runs a statement with VALUES for many rows, in few steps.

    Each step releases the GIL, and the thread gets it back only when the busy event loop releases it.
    """
    for statement, values in _grouped(name, rows):
        connection.execute(statement, values)


def read_many(connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> list[Any]:
    """Runs a query with VALUES for many rows, in few steps; returns the rows that it finds."""
    return [row for statement, values in _grouped(name, rows) for row in connection.execute(statement, values)]


def text_key(text: str) -> int:
    """Returns the key of a text that a caller chose. It is a hash for which many collisions are too costly to find.

    Raises UnicodeEncodeError.
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=_KEY_BYTES).digest(), signed=True)


def id_key(text: str) -> int:
    """Returns the key of the id of a task or a context; see `config.process.new_id`.

    Raises UnicodeEncodeError.
    """
    uuid = _UUID.fullmatch(text)
    if uuid is None:
        return text_key(text)
    if uuid[1] == "7":
        return _SMALLEST_KEY + int(text[:8] + text[9:13] + text[14:18], 16)
    return _SMALLEST_KEY + int(text[24:] + text[19:23], 16)


def _grouped(name: str, rows: Sequence[Row]) -> Iterator[tuple[str, list[object]]]:
    done = 0
    while done < len(rows):
        count = next(size for size in _GROUP_SIZES if size <= len(rows) - done)
        yield _for_many(name, count), list(chain.from_iterable(rows[done : done + count]))
        done += count


@cache
def _for_many(name: str, count: int) -> str:
    return _VALUES.sub(lambda one: ", ".join([one[0]] * count), query(name))


@cache
def _queries() -> dict[str, str]:
    text = resources.files("synapse.store").joinpath("queries.sql").read_text(encoding="utf-8")
    _, *pieces = _NAME.split(text)
    return {name: body.strip().removesuffix(";") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}
