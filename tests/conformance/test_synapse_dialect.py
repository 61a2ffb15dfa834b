"""The two Synapse documents, clause by clause, over TCP and over the Unix socket: the dialect alone, and a real host.

SYNAPSE_CONFORMANCE_PORT and SYNAPSE_CONFORMANCE_SOCKET point the rows at a host that runs already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.in_memory_service import InMemoryService
from tests.conformance.real_hosts import dummy_host
from tests.conformance.served_host import served
from tests.conformance.synapse_rows import ROWS, Ground, Row
from tests.conformance.wire_client import WireClient

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def other_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("o"), lambda entry: InMemoryService(entry, answers=True)) as other:
        yield other.entry.endpoint


@pytest.fixture(scope="module", params=["dialect", "host"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Returns the port and the socket of the host under test."""
    port, path = os.environ.get("SYNAPSE_CONFORMANCE_PORT", ""), os.environ.get("SYNAPSE_CONFORMANCE_SOCKET", "")
    if port and path:
        yield int(port), path
        return
    if request.param == "host":
        with dummy_host(tmp_path_factory.mktemp("d")) as entry:
            yield entry.port, entry.socket
        return
    with served(tmp_path_factory.mktemp("s"), InMemoryService) as host:
        yield host.port, str(host.socket)


@pytest.fixture(params=["tcp", "uds"])
def ground(request: pytest.FixtureRequest, place: tuple[int, str], other_url: str) -> Ground:
    port, path = place
    return Ground(WireClient(port, path if request.param == "uds" else ""), other_url)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id, marks=pytest.mark.requirement(row.id)) for row in ROWS])
def test_the_clause_holds(row: Row, ground: Ground) -> None:
    row.check(ground)


def test_rows_have_ids_of_their_own() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_both_documents_have_rows() -> None:
    assert {row.source for row in ROWS} >= {"synapse-readme.ja.md", "synapse-protocol-reference.md"}


def test_the_socket_is_private(tmp_path: Path) -> None:
    with served(tmp_path, InMemoryService) as host:
        assert host.socket.stat().st_mode & 0o777 == 0o600
    assert not host.socket.exists()
