"""The owner of a TCP connection, from netlink or from the kernel's table."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from synapse.server import peer
from synapse.server.peer import SocketAddress, ask_kernel, owner_of, read_table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")

Look = Callable[[SocketAddress, SocketAddress], int | None]

THEIRS, OURS = ("127.0.0.1", 40001), ("127.0.0.1", 8100)
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
V4 = "0100007F:9C41 0100007F:1FA4"
MAPPED = "0000000000000000FFFF00000100007F:9C41 0000000000000000FFFF00000100007F:1FA4"


def row(addresses: str = V4, state: str = "01", uid: int = 1000, inode: int = 350978) -> str:
    return f"   3: {addresses} {state} 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 0000 20\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "net").mkdir()
    return tmp_path


def write(proc: Path, name: str, *rows: str) -> None:
    (proc / "net" / name).write_text(HEAD + "".join(rows), encoding="ascii")


@pytest.mark.skipif(sys.byteorder != "little", reason="the rows are written as a little-endian kernel prints them")
@pytest.mark.parametrize(
    ("name", "line", "owner"),
    [
        ("tcp", row(), 1000),
        ("tcp6", row(MAPPED), 1000),
        ("tcp", row(state="06"), None),
        ("tcp", row(state="05", uid=0, inode=0), None),
        ("tcp", row(uid=0, inode=0), None),
        ("tcp", row("0100007F:1FA4 0100007F:9C41"), None),
    ],
)
def test_only_the_peers_row_counts_if_it_is_established_and_has_an_inode(
    proc: Path, name: str, line: str, owner: int | None
) -> None:
    write(proc, name, line)

    assert read_table(THEIRS, OURS, proc) == owner


def test_without_a_table_the_owner_is_unknown(proc: Path) -> None:
    assert read_table(THEIRS, OURS, proc) is None


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with closing(client), closing(server):
            yield client, server


def places(server: socket.socket) -> tuple[SocketAddress, SocketAddress]:
    return server.getpeername(), server.getsockname()


@pytest.mark.parametrize("look", [ask_kernel, read_table, owner_of])
def test_an_open_connection_belongs_to_this_user(connection: tuple[socket.socket, socket.socket], look: Look) -> None:
    assert look(*places(connection[1])) == os.getuid()


@pytest.mark.parametrize("look", [ask_kernel, read_table])
def test_a_closed_connection_has_no_known_owner(connection: tuple[socket.socket, socket.socket], look: Look) -> None:
    client, server = connection
    theirs, ours = places(server)
    client.close()

    assert look(theirs, ours) is None


def test_a_program_that_speaks_ipv6_to_an_ipv4_address_is_found() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, closing(socket.socket(socket.AF_INET6)) as client:
        client.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        server, _ = listener.accept()
        with closing(server):
            assert ask_kernel(*places(server)) == os.getuid()
            assert read_table(*places(server)) == os.getuid()


def test_without_sock_diag_the_table_is_read(
    connection: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_built_in(_theirs: SocketAddress, _ours: SocketAddress) -> int | None:
        raise OSError("not supported")

    monkeypatch.setattr(peer, "ask_kernel", not_built_in)

    assert owner_of(*places(connection[1])) == os.getuid()
