"""A2A 1.0 and 0.3, clause by clause: JSON-RPC, REST and gRPC, over TCP and over Unix sockets, against a real host and
through a real gateway.

SYNAPSE_CONFORMANCE_PORT and SYNAPSE_CONFORMANCE_SOCKET point the rows of a host at one that runs already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conformance import (
    a2a_extension_rows,
    a2a_gateway_rows,
    a2a_grpc_speakers,
    a2a_list_rows,
    a2a_push_rows,
    a2a_speakers,
    a2a_stream_rows,
    a2a_task_rows,
)
from tests.conformance.a2a_row import EXTENDED, GATEWAY, HOST, PLAIN, ROWS, Row
from tests.conformance.a2a_speakers import Speaker
from tests.conformance.real_gateway import IN_PROCESS, gateway
from tests.conformance.real_hosts import EXTENSIONS, entry_of, scripted_host
from tests.conformance.wire_client import WireClient

pytestmark = pytest.mark.integration

CLAUSES = (a2a_task_rows, a2a_stream_rows, a2a_list_rows, a2a_push_rows, a2a_gateway_rows, a2a_extension_rows)
"""Importing them fills the table."""
RESIDENTS = f"""{IN_PROCESS}
[[agents]]
id = "{EXTENDED}"
driver = "scripted"
script = "{EXTENSIONS}"
"""
SPEAKERS = {
    HOST: a2a_speakers.SPEAKERS,
    GATEWAY: (*a2a_speakers.SPEAKERS, *a2a_grpc_speakers.SPEAKERS),
}


@dataclass(frozen=True)
class Place:
    """The address of an agent: its own host, or a gateway that it is behind or in."""

    port: int
    socket: str = ""
    mount: str = ""


def cases(where: str, of: str = PLAIN) -> list[object]:
    return [
        pytest.param(row, speaker, id=f"{row.id}-{speaker.__name__}", marks=pytest.mark.requirement(f"a2a-{row.id}"))
        for row in ROWS
        for speaker in SPEAKERS[where]
        if row.of == of and where in row.where and speaker.version in row.versions and speaker.binding in row.bindings
    ]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """Runs a host, and a gateway with that host behind it and other agents in it, one of which declares extensions."""
    home = tmp_path_factory.mktemp("a")
    with scripted_host(home) as host, gateway(home, RESIDENTS, "--no-auth") as running:
        given = os.environ.get("SYNAPSE_CONFORMANCE_PORT", ""), os.environ.get("SYNAPSE_CONFORMANCE_SOCKET", "")
        port, path = (int(given[0]), given[1]) if all(given) else (host.port, host.socket)
        yield {
            "tcp": Place(port),
            "uds": Place(port, path),
            "behind": Place(running.entry.port, mount="/agents/conf/v1"),
            "inside": Place(running.entry.port, running.entry.socket, mount="/agents/tck/v1"),
            # An agent inside a gateway answers on its socket as a host does.
            "extended at its socket": Place(running.entry.port, entry_of(home, EXTENDED).socket),
            "extended": Place(running.entry.port, mount=f"/agents/{EXTENDED}/v1"),
        }


@pytest.mark.parametrize("transport", ["tcp", "uds"])
@pytest.mark.parametrize(("row", "speaker"), cases(HOST))
def test_the_clause_holds(row: Row, speaker: type[Speaker], transport: str, places: dict[str, Place]) -> None:
    place = places[transport]

    row.check(speaker(WireClient(place.port, place.socket)))


@pytest.mark.parametrize("place", ["behind", "inside"])
@pytest.mark.parametrize(("row", "speaker"), cases(GATEWAY))
def test_the_clause_holds_through_a_gateway(
    row: Row, speaker: type[Speaker], place: str, places: dict[str, Place]
) -> None:
    there = places[place]

    row.check(speaker(WireClient(there.port, there.socket), there.mount))


@pytest.mark.parametrize(("row", "speaker"), cases(HOST, EXTENDED))
def test_the_clause_holds_with_extensions(row: Row, speaker: type[Speaker], places: dict[str, Place]) -> None:
    place = places["extended at its socket"]

    row.check(speaker(WireClient(place.port, place.socket)))


@pytest.mark.parametrize(("row", "speaker"), cases(GATEWAY, EXTENDED))
def test_the_clause_holds_with_extensions_through_a_gateway(
    row: Row, speaker: type[Speaker], places: dict[str, Place]
) -> None:
    place = places["extended"]

    row.check(speaker(WireClient(place.port), place.mount))


def test_rows_have_ids_of_their_own() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
