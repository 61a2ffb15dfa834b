"""The supervisor and hub documents, example by example."""

from __future__ import annotations

import pytest

from tests.conformance import hub_rows, supervisor_rows
from tests.conformance.example_row import HUB, ROWS, SUPERVISOR, Row

EXAMPLES = (supervisor_rows, hub_rows)
"""Importing them fills the table."""


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id, marks=pytest.mark.requirement(row.id)) for row in ROWS])
def test_the_example_holds(row: Row) -> None:
    row.check()


def test_rows_have_ids_of_their_own() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_both_documents_have_rows() -> None:
    assert {row.source for row in ROWS} >= {SUPERVISOR, HUB}
