"""Where somebody with a key may send us: every address of the name is checked, and only a checked one is called."""

from __future__ import annotations

import socket
from collections.abc import Generator, Sequence
from ipaddress import ip_address

import pytest

from synapse.core.errors import ExternalAddressRefused
from synapse.net.address_guard import Address, GuardedDial, dial_anywhere

SECONDS = 5.0


class Names:
    """A resolver that says what it was told, and how often it was asked."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = [ip_address(address) for address in addresses]
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append((host, port))
        return self.addresses


@pytest.fixture
def listener() -> Generator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def nobody_came(listener: socket.socket) -> bool:
    try:
        listener.accept()
    except BlockingIOError:
        return True
    return False


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "192.168.1.1", "2130706433"])
def test_an_address_of_this_machine_or_network_is_not_called(listener: socket.socket, host: str) -> None:
    names = Names("127.0.0.1")

    with pytest.raises(ExternalAddressRefused):
        GuardedDial(allow_private=False, resolve=names)(f"http://{host}:{port_of(listener)}/", SECONDS)

    assert nobody_came(listener)
    assert names.asked == []


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["203.0.114.7", "127.0.0.1"], ["169.254.169.254"]])
def test_a_name_that_leads_there_is_not_called(listener: socket.socket, addresses: list[str]) -> None:
    dial = GuardedDial(allow_private=False, resolve=Names(*addresses))

    with pytest.raises(ExternalAddressRefused, match=r"'friendly\.example' leads to"):
        dial(f"http://friendly.example:{port_of(listener)}/", SECONDS)

    assert nobody_came(listener)


def test_the_refusal_names_the_setting_that_would_allow_it() -> None:
    with pytest.raises(ExternalAddressRefused) as refused:
        GuardedDial(allow_private=False)("http://127.0.0.1:9/", SECONDS)
    with pytest.raises(ExternalAddressRefused) as never:
        GuardedDial(allow_private=True)("http://169.254.169.254/", SECONDS)

    assert "allow_private_agents" in refused.value.hint
    assert "allow_private_agents" not in never.value.hint


def test_the_name_is_resolved_once_and_what_was_checked_is_called(listener: socket.socket) -> None:
    # Nobody else knows this name: a second look-up, by whomever, would fail.
    names, port = Names("127.0.0.1"), port_of(listener)

    with GuardedDial(allow_private=True, resolve=names)(f"http://friendly.invalid:{port}/x", SECONDS) as connected:
        assert connected.getpeername() == ("127.0.0.1", port)

    assert names.asked == [("friendly.invalid", port)]


def test_the_next_address_is_tried_when_nobody_listens_at_the_first(listener: socket.socket) -> None:
    dial = GuardedDial(allow_private=True, resolve=Names("127.0.0.2", "127.0.0.1"))

    with dial(f"http://friendly.invalid:{port_of(listener)}", SECONDS) as connected:
        assert connected.getpeername()[0] == "127.0.0.1"


def test_a_name_without_an_address_is_not_known() -> None:
    with pytest.raises(socket.gaierror):
        GuardedDial(allow_private=True, resolve=Names())("http://friendly.invalid/", SECONDS)


def test_what_this_user_chose_is_called_wherever_it_is(listener: socket.socket) -> None:
    with dial_anywhere(f"http://localhost:{port_of(listener)}", SECONDS) as connected:
        assert connected.getpeername()[0] == "127.0.0.1"
