"""A socket that is removed from under a running agent comes back by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import real_gateway
from tests.conformance.wire_client import WireClient
from tests.integration.cli.session import session
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

PATIENCE = 30.0


def remove_file(socket: Path) -> None:
    socket.unlink()


def remove_folder(socket: Path) -> None:
    shutil.rmtree(socket.parent)


@pytest.mark.parametrize("remove", [remove_file, remove_folder])
def test_an_agent_whose_socket_was_removed_is_reached_again(tmp_path: Path, remove: Callable[[Path], None]) -> None:
    with session(tmp_path / "home") as home:
        socket = Path(home.start("alone")["socket"])
        remove(socket)

        until(socket.exists, "the socket is made again")
        assert socket.stat().st_mode & 0o777 == 0o600
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        assert home.run("send", "alone", "hello", "--no-response").code == 0
        assert home.run("stop", "alone").code == 0
        assert not socket.exists()


def test_a_socket_that_another_program_put_in_its_place_is_left_alone(tmp_path: Path) -> None:
    with session(tmp_path / "home") as home:
        socket = Path(home.start("alone")["socket"])
        socket.unlink()
        socket.write_text("somebody else's", encoding="utf-8")

        assert home.run("doctor").code == 1
        assert socket.read_text(encoding="utf-8") == "somebody else's"


def test_a_gateway_whose_socket_was_removed_is_reached_again(tmp_path: Path) -> None:
    with real_gateway.gateway(tmp_path / "home") as served:
        socket = Path(served.entry.socket)
        socket.unlink()

        until(socket.exists, "the socket is made again")
        assert WireClient(0, str(socket)).request("GET", "/status").status == 200
