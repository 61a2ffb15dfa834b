"""The SQL of queries.sql, by name."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def query(name: str) -> str:
    """Return the statement of that name."""
    return _queries()[name]


def migrations() -> list[tuple[int, str]]:
    """Return the migrations in order: the schema's version after each, and its statements."""
    folder = resources.files("synapse.stores").joinpath("migrations")
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name.partition("_")[0]), file.read_text(encoding="utf-8")) for file in files)


@cache
def _queries() -> dict[str, str]:
    text = resources.files("synapse.stores").joinpath("queries.sql").read_text(encoding="utf-8")
    _, *pieces = _NAME.split(text)
    return {name: body.strip().removesuffix(";") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}
