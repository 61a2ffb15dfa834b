"""An example, or a clause, of the supervisor or hub contract as a row: id, source, sentence, check.

The examples are law: a request is sent as the document shows it, and the answer must be the document's, field by field
and in its order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

SUPERVISOR: Final = "supervisor-a2a-endpoints.md"
HUB: Final = "hub-protocol.md"
READINGS: Final = "contracts/README.md"


@dataclass(frozen=True)
class Row:
    """One example or clause."""

    id: str
    source: str
    sentence: str
    check: Callable[[], None]


ROWS: Final[list[Row]] = []


def row(id: str, source: str, sentence: str) -> Callable[[Callable[[], None]], None]:  # noqa: A002 - its name in the table
    def add(check: Callable[[], None]) -> None:
        ROWS.append(Row(id, source, sentence, check))

    return add


def same_json(told: bytes | str, example: str) -> None:
    """Checks that the answer is the document's example to the byte, once both are written without blanks."""
    text = told.decode("utf-8") if isinstance(told, bytes) else told
    assert text == _compact(json.loads(example))


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
