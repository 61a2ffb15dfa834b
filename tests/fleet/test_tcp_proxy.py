"""The line that the fleet's tests and benchmarks can slow down, cut and break does what they rely on."""

from __future__ import annotations

import socket
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.fleet.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = pytest.mark.integration

BOUND = 20.0
DELAY = 0.05


@dataclass
class Line:
    """A connection through a proxy, at both of its ends."""

    proxy: TcpProxy
    near: socket.socket
    far: socket.socket

    def carries(self, data: bytes) -> bool:
        """Whether what is written here comes out there, and what is written there comes out here."""
        self.near.sendall(data)
        there = read(self.far, len(data))
        self.far.sendall(data[::-1])
        return (there, read(self.near, len(data))) == (data, data[::-1])


@pytest.fixture
def line() -> Generator[Line]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(BOUND)
        with (
            tcp_proxy(server.getsockname()[1], delay=DELAY) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port), BOUND) as near,
            server.accept()[0] as far,
        ):
            far.settimeout(BOUND)
            yield Line(proxy, near, far)


def read(end: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (more := end.recv(size - len(got))):
        got += more
    return got


def test_bytes_come_whole_and_not_before_their_delay(line: Line) -> None:
    data = bytes(range(256)) * 1000
    begun = time.monotonic()

    assert line.carries(data)

    assert time.monotonic() - begun >= 2 * DELAY


def test_nothing_passes_while_the_line_is_cut_and_all_of_it_when_it_is_mended(line: Line) -> None:
    assert line.carries(b"before")
    line.proxy.cut()
    line.near.sendall(b"held")
    line.far.settimeout(4 * DELAY)
    with pytest.raises(TimeoutError):
        line.far.recv(1)
    line.far.settimeout(BOUND)

    line.proxy.mend()

    assert read(line.far, 4) == b"held"
    assert line.carries(b"after")


def test_a_reset_breaks_both_ends(line: Line) -> None:
    assert line.carries(b"before")

    line.proxy.reset()

    for end in (line.near, line.far):
        with suppress(ConnectionResetError):
            assert end.recv(1) == b""
