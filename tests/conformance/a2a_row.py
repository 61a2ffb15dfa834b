"""A clause of A2A that a host must keep, as a row: id, versions, source, sentence, check.

Rows are spoken by every binding of the versions that they name, to the agent of docs/examples/conformance.toml.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.conformance.a2a_words import Refused

BOTH: Final = ("1.0", "0.3")
NEW: Final = ("1.0",)
SPEC: Final = "A2A 1.0.1"
READINGS: Final = "contracts/README.md"


@dataclass(frozen=True)
class Row:
    """One clause."""

    id: str
    versions: tuple[str, ...]
    source: str
    sentence: str
    check: Callable[[Any], None]


ROWS: Final[list[Row]] = []


def row(id: str, versions: tuple[str, ...], source: str, sentence: str) -> Callable[[Callable[[Any], None]], None]:  # noqa: A002 - its name in the table
    def add(check: Callable[[Any], None]) -> None:
        ROWS.append(Row(id, versions, source, sentence, check))

    return add


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4()}"


def refusal(act: Callable[[], object]) -> str:
    """The word of the error that `act` is answered with."""
    with pytest.raises(Refused) as refused:
        act()
    return str(refused.value)


def first_event(stream: Any) -> None:
    with stream as events:
        next(events)
