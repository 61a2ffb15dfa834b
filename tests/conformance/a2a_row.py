"""A clause of A2A that must be kept, as a row: id, versions, source, sentence, check.

Every binding of the versions that a row names checks it with the agent of docs/examples/conformance.toml: at its own
host, and through a gateway. Rows about extensions are checked with the agent of docs/examples/extensions.toml.
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
HOST: Final = "host"
GATEWAY: Final = "gateway"
PLAIN: Final = "plain"
EXTENDED: Final = "extended"
HTTP: Final = frozenset({"JSONRPC", "REST"})
EVERY_BINDING: Final = HTTP | {"GRPC"}


@dataclass(frozen=True)
class Row:
    """One clause."""

    id: str
    versions: tuple[str, ...]
    source: str
    sentence: str
    check: Callable[[Any], None]
    where: frozenset[str] = frozenset({HOST, GATEWAY})
    bindings: frozenset[str] = EVERY_BINDING
    of: str = PLAIN


ROWS: Final[list[Row]] = []


def row(  # noqa: PLR0913 - a row's columns
    id: str,  # noqa: A002 - its name in the table
    versions: tuple[str, ...],
    source: str,
    sentence: str,
    *,
    only: str = "",
    bindings: frozenset[str] = EVERY_BINDING,
    of: str = PLAIN,
) -> Callable[[Callable[[Any], None]], None]:
    """Adds a clause for hosts and gateways, or `only` one of them, in some `bindings`; `of` names the agent."""

    def add(check: Callable[[Any], None]) -> None:
        where = frozenset({only} if only else {HOST, GATEWAY})
        ROWS.append(Row(id, versions, source, sentence, check, where, bindings, of))

    return add


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4()}"


def refusal(act: Callable[[], object]) -> str:
    """Returns the name of the error that `act` gets as its answer."""
    with pytest.raises(Refused) as refused:
        act()
    return str(refused.value)


def first_event(stream: Any) -> None:
    with stream as events:
        next(events)
