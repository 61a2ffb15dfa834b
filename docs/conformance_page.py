"""The reference page of all clauses that the tests prove; `docs.generate` writes it from the rows themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.conformance import (
    a2a_extension_rows,
    a2a_gateway_rows,
    a2a_list_rows,
    a2a_push_rows,
    a2a_row,
    a2a_stream_rows,
    a2a_task_rows,
    example_row,
    hub_rows,
    supervisor_rows,
    synapse_rows,
)

CLAUSES: Final = (
    a2a_task_rows,
    a2a_stream_rows,
    a2a_list_rows,
    a2a_push_rows,
    a2a_gateway_rows,
    a2a_extension_rows,
    supervisor_rows,
    hub_rows,
)
"""Importing them fills the tables."""

_INTRODUCTION: Final = """\
Each clause is a row of a table in `tests/conformance`: where it comes from, what it says, and a check. `scripts/test`
runs them all; `scripts/clients` lets clients of other makers hold conversations besides.
"""
_A2A: Final = """\
Each row is spoken in every binding of the versions that it names: at an agent's own host as JSON-RPC and REST, over TCP
and over the Unix socket; through a gateway also as gRPC, with agents behind it and in it.
"""
_EXAMPLES: Final = """\
What the documents show goes in as it stands, and what they show must come out. `test_supervisor_wire.py` and
`test_hub_wire.py` ask every endpoint of a real gateway besides.
"""
_SYNAPSE: Final = (
    "Over TCP and over the Unix socket, for the dialect alone and for a real host with a program on a terminal."
)


def conformance_page(notice: str) -> str:
    """The page, whole."""
    a2a = [
        (row.id, ", ".join(row.versions), _limits(row), row.source, row.sentence)
        for row in sorted(a2a_row.ROWS, key=lambda row: row.id)
    ]
    examples = [(row.id, row.source, row.sentence) for row in sorted(example_row.ROWS, key=lambda row: row.id)]
    own = [(row.id, row.source, row.sentence) for row in sorted(synapse_rows.ROWS, key=lambda row: row.id)]
    return "\n".join(
        [
            f"# Clauses that are proven\n\n{notice}{_INTRODUCTION}",
            f"## A2A 1.0 and 0.3\n\n{_A2A}",
            _table(("id", "versions", "only", "source", "clause"), a2a),
            f"## Supervisor and hub\n\n{_EXAMPLES}",
            _table(("id", "source", "clause"), examples),
            f"## Synapse\n\n{_SYNAPSE}\n",
            _table(("id", "source", "clause"), own),
        ]
    )


def _limits(row: a2a_row.Row) -> str:
    """Where a clause holds, when that is not everywhere."""
    where = "" if len(row.where) > 1 else next(iter(row.where))
    return ", ".join(filter(None, (where, "HTTP" if row.bindings == a2a_row.HTTP else "")))


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
    lines.insert(1, "|---" * len(columns) + "|")
    return "\n".join(lines) + "\n"
