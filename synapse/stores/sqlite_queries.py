"""The SQL of queries.sql, by name, and how one statement takes many rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import chain
from typing import Any, Final

Row = tuple[object, ...]

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_VALUES: Final = re.compile(r"(?<=VALUES )\([?, ]+\)")
_SIZES: Final = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
"""How many rows one statement takes: few steps for any number of rows, and few statements that are kept prepared. With
the columns that they have, older SQLite takes no more values."""


def query(name: str) -> str:
    """Return the statement of that name."""
    return _queries()[name]


def write_many(connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> None:
    """Run a statement that has VALUES for many rows, in few steps.

    Each step lets go of the interpreter, and the thread gets it back only when the busy loop lets go of it too.
    """
    for statement, values in _in_groups(name, rows):
        connection.execute(statement, values)


def read_many(connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> list[Any]:
    """The same for a statement that answers."""
    return [row for statement, values in _in_groups(name, rows) for row in connection.execute(statement, values)]


def migrations() -> list[tuple[int, str]]:
    """Return the migrations in order: the schema's version after each, and its statements."""
    folder = resources.files("synapse.stores").joinpath("migrations")
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name.partition("_")[0]), file.read_text(encoding="utf-8")) for file in files)


def _in_groups(name: str, rows: Sequence[Row]) -> Iterator[tuple[str, list[object]]]:
    done = 0
    while done < len(rows):
        count = next(size for size in _SIZES if size <= len(rows) - done)
        yield _for_many(name, count), list(chain.from_iterable(rows[done : done + count]))
        done += count


@cache
def _for_many(name: str, count: int) -> str:
    return _VALUES.sub(lambda one: ", ".join([one[0]] * count), query(name))


@cache
def _queries() -> dict[str, str]:
    text = resources.files("synapse.stores").joinpath("queries.sql").read_text(encoding="utf-8")
    _, *pieces = _NAME.split(text)
    return {name: body.strip().removesuffix(";") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}
