"""Ports are bound atomically; sockets are private, and replace only those of dead hosts."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from synapse.core.errors import InvalidSettings, PortTaken
from synapse.server import listener
from synapse.server.listener import (
    LONGEST_SOCKET_PATH,
    UnixListener,
    bind_first_free,
    bind_port,
    listen_in,
    listen_in_first,
    socket_folders,
)
from tests.samples.ports import own_port, own_ports

pytestmark = pytest.mark.integration


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def port_of(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


@pytest.fixture
def taken() -> Iterator[int]:
    """Yields a port that another program listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        yield port_of(other)


def test_a_port_is_bound_on_loopback_only_and_listens() -> None:
    with closing(bind_port(0)) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        socket.create_connection(bound.getsockname(), timeout=2).close()


def test_a_port_of_another_program_is_refused_by_number(taken: int) -> None:
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
    first = bind_port(own_port())
    place = first.getsockname()
    client = socket.create_connection(place, timeout=2)
    server, _ = first.accept()
    server.close()
    client.close()
    first.close()

    with closing(bind_port(place[1])) as second:
        assert port_of(second) == place[1]


def test_the_first_free_port_of_a_range_is_taken(taken: int) -> None:
    free = own_port()

    with closing(bind_first_free([taken, free])) as bound:
        assert port_of(bound) == free


def test_a_full_range_overflows(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    free = own_port()
    monkeypatch.setattr(listener, "OVERFLOW_PORTS", [taken, free])

    with closing(bind_first_free([taken])) as bound:
        assert port_of(bound) == free


def test_the_overflow_begins_at_8200() -> None:
    assert listener.OVERFLOW_PORTS[0] == 8200


def test_when_no_port_is_free_an_error_says_so(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "OVERFLOW_PORTS", [taken])

    with pytest.raises(PortTaken, match="no port is free"):
        bind_first_free([taken])


def test_concurrent_processes_each_get_their_own_port() -> None:
    bound: list[socket.socket] = []
    threads = [threading.Thread(target=lambda: bound.append(bind_first_free(own_ports()))) for _ in range(20)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    try:
        assert len({port_of(one) for one in bound}) == 20
    finally:
        for one in bound:
            one.close()


UID = os.getuid()
NAME = "a.sock"


def usual(short: Path, runtime: Path | None = None) -> tuple[Path, ...]:
    return socket_folders(str(runtime or ""), uid=UID, preferred=short / "synapse-a2a")


def folder_of(folders: tuple[Path, ...]) -> Path:
    """Returns the folder in which a socket is created."""
    made = listen_in_first(folders, NAME, uid=UID)
    made.close()
    return made.path.parent


def test_the_default_folder_is_created_private(short: Path) -> None:
    folder = folder_of(usual(short))

    assert folder == short / "synapse-a2a"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_default_folder_is_made_private_if_it_was_open(short: Path) -> None:
    (short / "synapse-a2a").mkdir()
    (short / "synapse-a2a").chmod(0o777)

    assert stat.S_IMODE(folder_of(usual(short)).stat().st_mode) == 0o700


def touch(path: Path) -> None:
    path.touch()


def link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def link_to_a_folder(path: Path) -> None:
    path.with_name("elsewhere").mkdir(exist_ok=True)
    path.symlink_to(path.with_name("elsewhere"))


def others_folder(path: Path) -> None:
    path.mkdir()
    os.chown(path, 12345, 12345)


def others_file(path: Path) -> None:
    path.touch()
    os.chown(path, 12345, 12345)


as_root = pytest.mark.skipif(UID != 0, reason="only root can give a file away")
OBSTACLES = [
    touch,
    link_to_nothing,
    link_to_a_folder,
    pytest.param(others_folder, marks=as_root),
    pytest.param(others_file, marks=as_root),
]


@pytest.mark.parametrize("obstruct", OBSTACLES)
def test_an_unusable_folder_is_skipped_for_the_next(short: Path, obstruct: Callable[[Path], None]) -> None:
    runtime = short / "run"
    runtime.mkdir()
    folders = usual(short, runtime)
    obstruct(folders[0])

    assert folder_of(folders) == runtime / "synapse-a2a"
    assert not any((short / "elsewhere").glob("*"))


@pytest.mark.parametrize("obstruct", OBSTACLES)
def test_the_last_folder_is_used_if_the_others_are_unusable(short: Path, obstruct: Callable[[Path], None]) -> None:
    runtime = short / "run"
    runtime.mkdir()
    folders = usual(short, runtime)
    for folder in folders[:2]:
        obstruct(folder)

    assert folder_of(folders) == short / f"synapse-a2a-{UID}"


def test_a_runtime_folder_that_is_too_deep_missing_or_relative_is_skipped(short: Path) -> None:
    deep = short / ("x" * 100)
    deep.mkdir()
    for runtime in (deep, short / "missing", Path("relative")):
        folders = usual(short, runtime)
        touch(folders[0])

        assert folder_of(folders) == short / f"synapse-a2a-{UID}"
        folders[0].unlink()


def test_a_folder_that_others_could_replace_is_skipped(short: Path) -> None:
    open_to_all = short / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    folders = (open_to_all / "synapse-a2a", short / "mine")

    assert folder_of(folders) == short / "mine"


def test_without_a_usable_folder_the_error_names_the_setting_and_each_reason(short: Path) -> None:
    folders = usual(short)
    touch(folders[0])
    link_to_nothing(folders[1])

    with pytest.raises(InvalidSettings, match=r"not a folder.*it is a link") as caught:
        listen_in_first(folders, NAME, uid=UID)

    assert "SYNAPSE_UDS_DIR" in caught.value.hint


@as_root
def test_a_socket_that_another_user_left_in_our_folder_is_replaced(short: Path) -> None:
    (folder, *_) = usual(short)
    folder.mkdir()
    with closing(socket.socket(socket.AF_UNIX)) as planted:
        planted.bind(str(folder / NAME))
        planted.listen()
        os.chown(folder / NAME, 12345, 12345)

        assert folder_of((folder,)) == folder


def test_a_running_agent_keeps_its_socket(short: Path) -> None:
    living = listen_in_first(usual(short), NAME, uid=UID)
    try:
        with pytest.raises(PortTaken):
            listen_in_first(usual(short), NAME, uid=UID)
    finally:
        living.close()


def test_a_chosen_folder_is_created_private_and_an_existing_one_keeps_its_mode(short: Path) -> None:
    listen_in(short / "deep" / "made", NAME, uid=UID).close()
    (short / "mine").mkdir()
    (short / "mine").chmod(0o755)
    listen_in(short / "mine", NAME, uid=UID).close()

    assert stat.S_IMODE((short / "deep" / "made").stat().st_mode) == 0o700
    assert stat.S_IMODE((short / "mine").stat().st_mode) == 0o755


def test_a_chosen_folder_that_others_can_write_into_is_refused(short: Path) -> None:
    (short / "open").mkdir()
    (short / "open").chmod(0o777)

    with pytest.raises(InvalidSettings, match="others can write"):
        listen_in(short / "open", NAME, uid=UID)


def test_a_chosen_folder_of_another_user_is_refused(short: Path) -> None:
    with pytest.raises(InvalidSettings, match="another user"):
        listen_in(short, NAME, uid=UID + 1)


def test_a_folder_that_cannot_be_created_is_refused(short: Path) -> None:
    (short / "file").touch()

    with pytest.raises(InvalidSettings, match="cannot be a folder"):
        listen_in(short / "file", NAME, uid=UID)


def test_a_socket_is_private_listens_and_is_removed_at_the_end(short: Path) -> None:
    unix = UnixListener(short / "a.sock")
    mode = stat.S_IMODE(unix.path.stat().st_mode)
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(unix.path))
    unix.close()

    assert mode == 0o600
    assert list(short.iterdir()) == []


def test_a_socket_is_private_with_any_umask(short: Path) -> None:
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


def test_the_socket_of_a_running_host_is_not_replaced(short: Path) -> None:
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


def test_a_missing_folder_is_named(short: Path) -> None:
    with pytest.raises(InvalidSettings, match="no socket can be made"):
        UnixListener(short / "missing" / "a.sock")


def test_a_folder_at_the_sockets_path_is_named_and_no_draft_is_left(short: Path) -> None:
    (short / "a.sock").mkdir()

    with pytest.raises(InvalidSettings, match="no socket can be made"):
        UnixListener(short / "a.sock")

    assert [path.name for path in short.iterdir()] == ["a.sock"]
