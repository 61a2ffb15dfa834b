"""Ports are taken atomically; sockets are private, and replace only those of the dead."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from synapse.core.errors import InvalidSettings, PortTaken
from synapse.transports import listener
from synapse.transports.listener import (
    LONGEST_SOCKET_PATH,
    UnixListener,
    bind_first_free,
    bind_port,
    socket_folder,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def port_of(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        yield port_of(other)


def test_a_port_is_bound_on_loopback_only_and_listens() -> None:
    with closing(bind_port(0)) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        socket.create_connection(bound.getsockname(), timeout=2).close()


def test_a_port_that_another_program_has_is_refused_by_its_number(taken: int) -> None:
    with pytest.raises(PortTaken, match=str(taken)) as caught:
        bind_port(taken)

    assert caught.value.hint


def test_a_port_that_is_bound_to_all_addresses_is_taken_too() -> None:
    with closing(socket.create_server(("0.0.0.0", 0))) as other, pytest.raises(PortTaken):
        bind_port(port_of(other))


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(InvalidSettings, match=str(port)):
        bind_port(port)


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="cannot be used"):
        bind_port(0, host="192.0.2.1")


def test_a_port_can_be_taken_again_right_after_a_connection_was_closed() -> None:
    first = bind_port(0)
    place = first.getsockname()
    client = socket.create_connection(place, timeout=2)
    server, _ = first.accept()
    server.close()
    client.close()
    first.close()

    with closing(bind_port(place[1])) as second:
        assert port_of(second) == place[1]


def test_the_first_free_port_of_a_range_is_taken(taken: int) -> None:
    with closing(bind_port(0)) as spare:
        free = port_of(spare)

    with closing(bind_first_free([taken, free])) as bound:
        assert port_of(bound) == free


def test_a_full_range_overflows(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(bind_port(0)) as spare:
        free = port_of(spare)
    monkeypatch.setattr(listener, "OVERFLOW_PORTS", [taken, free])

    with closing(bind_first_free([taken])) as bound:
        assert port_of(bound) == free


def test_the_overflow_begins_at_8200() -> None:
    assert listener.OVERFLOW_PORTS[0] == 8200


def test_when_no_port_is_free_that_is_said(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "OVERFLOW_PORTS", [taken])

    with pytest.raises(PortTaken, match="no port is free"):
        bind_first_free([taken])


def test_many_at_once_each_get_a_port_of_their_own() -> None:
    with closing(bind_port(0)) as spare:
        first = port_of(spare)
    ports = range(first, first + 200)
    bound: list[socket.socket] = []
    threads = [threading.Thread(target=lambda: bound.append(bind_first_free(ports))) for _ in range(20)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    try:
        assert len({port_of(one) for one in bound}) == 20
    finally:
        for one in bound:
            one.close()


def test_the_usual_folder_is_made_private(short: Path) -> None:
    folder = socket_folder(None, uid=os.getuid(), preferred=short / "synapse-a2a")

    assert folder == short / "synapse-a2a"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_usual_folder_is_closed_to_others_if_it_was_open(short: Path) -> None:
    (short / "synapse-a2a").mkdir(mode=0o755)

    folder = socket_folder(None, uid=os.getuid(), preferred=short / "synapse-a2a")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_left_to_him(short: Path) -> None:
    preferred = short / "synapse-a2a"
    preferred.mkdir()
    os.chown(preferred, 12345, 12345)

    folder = socket_folder(None, uid=os.getuid(), preferred=preferred)

    assert folder == short / f"synapse-a2a-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_is_not_followed(short: Path) -> None:
    (short / "elsewhere").mkdir()
    (short / "synapse-a2a").symlink_to(short / "elsewhere")

    folder = socket_folder(None, uid=os.getuid(), preferred=short / "synapse-a2a")

    assert folder == short / f"synapse-a2a-{os.getuid()}"


def test_if_both_folders_belong_to_others_the_setting_is_named(short: Path) -> None:
    with pytest.raises(InvalidSettings) as caught:
        socket_folder(None, uid=os.getuid() + 1, preferred=short / "synapse-a2a")

    assert "SYNAPSE_UDS_DIR" in caught.value.hint


def test_a_wished_folder_is_made_private_and_an_existing_one_keeps_its_mode(short: Path) -> None:
    made = socket_folder(short / "deep" / "made", uid=os.getuid())
    (short / "mine").mkdir()
    (short / "mine").chmod(0o755)
    kept = socket_folder(short / "mine", uid=os.getuid())

    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.stat().st_mode) == 0o755


def test_a_wished_folder_that_others_can_write_into_is_refused(short: Path) -> None:
    (short / "open").mkdir()
    (short / "open").chmod(0o777)

    with pytest.raises(InvalidSettings, match="others can write"):
        socket_folder(short / "open", uid=os.getuid())


def test_a_wished_folder_of_another_user_is_refused(short: Path) -> None:
    with pytest.raises(InvalidSettings, match="another user"):
        socket_folder(short, uid=os.getuid() + 1)


def test_a_folder_that_cannot_be_made_is_refused(short: Path) -> None:
    (short / "file").touch()

    with pytest.raises(InvalidSettings, match="cannot be a folder"):
        socket_folder(short / "file", uid=os.getuid())


def test_a_socket_is_private_listens_and_leaves_nothing_behind(short: Path) -> None:
    unix = UnixListener(short / "a.sock")
    mode = stat.S_IMODE(unix.path.stat().st_mode)
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(unix.path))
    unix.close()

    assert mode == 0o600
    assert list(short.iterdir()) == []


def test_it_is_private_whatever_the_umask(short: Path) -> None:
    old = os.umask(0)
    try:
        unix = UnixListener(short / "a.sock")
    finally:
        os.umask(old)
    try:
        assert stat.S_IMODE(unix.path.stat().st_mode) == 0o600
    finally:
        unix.close()


def test_the_socket_of_a_dead_host_is_replaced(short: Path) -> None:
    path = short / "a.sock"
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    assert path.exists()

    unix = UnixListener(path)
    try:
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(str(path))
    finally:
        unix.close()


def test_the_socket_of_a_living_host_is_left_to_it(short: Path) -> None:
    living = UnixListener(short / "a.sock")
    try:
        with pytest.raises(PortTaken, match=r"a\.sock"):
            UnixListener(short / "a.sock")
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(str(living.path))
    finally:
        living.close()


def test_closing_leaves_the_socket_of_a_successor(short: Path) -> None:
    old = UnixListener(short / "a.sock")
    old.socket.close()
    new = UnixListener(short / "a.sock")
    old.close()
    try:
        assert new.path.exists()
    finally:
        new.close()
        new.close()
    assert not new.path.exists()


def test_a_path_of_the_greatest_length_works_and_one_more_byte_is_refused(short: Path) -> None:
    longest = short / ("x" * (LONGEST_SOCKET_PATH - len(os.fsencode(short)) - 1))
    UnixListener(longest).close()

    with pytest.raises(InvalidSettings, match=str(LONGEST_SOCKET_PATH)) as caught:
        UnixListener(longest.with_name(longest.name + "x"))

    assert "SYNAPSE_UDS_DIR" in caught.value.hint


def test_a_folder_that_is_not_there_is_named(short: Path) -> None:
    with pytest.raises(InvalidSettings, match="no socket can be made"):
        UnixListener(short / "missing" / "a.sock")


def test_a_folder_in_the_place_of_the_socket_is_named_and_no_draft_stays(short: Path) -> None:
    (short / "a.sock").mkdir()

    with pytest.raises(InvalidSettings, match="no socket can be made"):
        UnixListener(short / "a.sock")

    assert [path.name for path in short.iterdir()] == ["a.sock"]
