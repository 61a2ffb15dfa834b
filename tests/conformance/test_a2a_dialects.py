"""A2A 1.0 and 0.3, clause by clause: JSON-RPC and REST, over TCP and over the Unix socket, against a real host.

SYNAPSE_CONFORMANCE_PORT and SYNAPSE_CONFORMANCE_SOCKET point the rows at a host that runs already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance import a2a_list_rows, a2a_push_rows, a2a_stream_rows, a2a_task_rows
from tests.conformance.a2a_row import ROWS, Row
from tests.conformance.a2a_speakers import SPEAKERS, Speaker
from tests.conformance.real_hosts import scripted_host
from tests.conformance.wire_client import WireClient

pytestmark = pytest.mark.integration

CLAUSES = (a2a_task_rows, a2a_stream_rows, a2a_list_rows, a2a_push_rows)
"""Importing them fills the table."""
CASES = [
    pytest.param(row, speaker, id=f"{row.id}-{speaker.__name__}", marks=pytest.mark.requirement(f"a2a-{row.id}"))
    for row in ROWS
    for speaker in SPEAKERS
    if speaker.version in row.versions
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """The port and the socket of the host under test."""
    port, path = os.environ.get("SYNAPSE_CONFORMANCE_PORT", ""), os.environ.get("SYNAPSE_CONFORMANCE_SOCKET", "")
    if port and path:
        yield int(port), path
        return
    with scripted_host(tmp_path_factory.mktemp("a")) as entry:
        yield entry.port, entry.socket


@pytest.mark.parametrize("transport", ["tcp", "uds"])
@pytest.mark.parametrize(("row", "speaker"), CASES)
def test_the_clause_holds(row: Row, speaker: type[Speaker], transport: str, place: tuple[int, str]) -> None:
    port, path = place

    row.check(speaker(WireClient(port, path if transport == "uds" else "")))


def test_rows_have_ids_of_their_own() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
