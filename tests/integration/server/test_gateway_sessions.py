"""WebSockets of a browser's session on real sockets: the same checks as for HTTP, and an end when it is revoked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from synapse.auth.policy import check_action
from synapse.auth.sessions import SESSION_ACTIONS, NewSession, cookie_name
from synapse.auth.settings import AccessSettings
from synapse.core.caller import ATTACH, Caller
from synapse.server.websocket import ForEveryCaller, WebSocketChannel
from tests.integration.server.served_gateway import TIMEOUT, ServedGateway, serve_gateway

pytestmark = pytest.mark.integration

PATH = "/dashboard/terminals"
APP = "https://app.example"
PROTOCOL = Subprotocol("synapse.terminals")


async def echo(channel: WebSocketChannel, caller: Caller) -> None:
    """Stands for a terminal: it returns what is typed."""
    check_action(ATTACH, caller)
    await channel.accept(PROTOCOL)
    while (frame := await channel.receive()) is not None:
        await channel.send(frame)


@pytest.fixture(scope="module", params=[False, True], ids=["with keys", "no-auth"])
def gateway(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[ServedGateway]:
    access = AccessSettings(no_auth=request.param, origins=(APP,))
    with serve_gateway(tmp_path_factory.mktemp("w"), access, {PATH: ForEveryCaller(echo)}) as served:
        yield served


def signed_in(gateway: ServedGateway, *actions: str) -> NewSession:
    return gateway.sessions.create(frozenset(actions or SESSION_ACTIONS), timedelta(hours=12))


def dial(
    gateway: ServedGateway,
    *,
    cookie: str = "",
    token: str = "",
    origin: str | None = "own",
    site: str = "same-origin",
    host: str = "",
) -> ClientConnection:
    address = f"127.0.0.1:{gateway.port}"
    headers = {"Sec-Fetch-Site": site} | ({"Cookie": f"{cookie_name(gateway.port)}={cookie}"} if cookie else {})
    offered = [PROTOCOL, *([Subprotocol(f"token.{token}")] if token else [])]
    # The name in the URL is what the handshake says; the socket goes where it goes.
    return connect(
        f"ws://{host or address}{PATH}",
        sock=gateway_socket(gateway) if host else None,
        origin=Origin(f"http://{address}" if origin == "own" else origin) if origin is not None else None,
        subprotocols=offered,
        additional_headers=headers,
        open_timeout=TIMEOUT,
    )


def gateway_socket(gateway: ServedGateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=TIMEOUT)


def test_a_page_opens_a_terminal_with_its_session(gateway: ServedGateway) -> None:
    new = signed_in(gateway)

    with dial(gateway, cookie=new.cookie, token=new.token) as terminal:
        terminal.send(b"ls")

        assert terminal.subprotocol == PROTOCOL
        assert terminal.recv(TIMEOUT) == b"ls"


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"cookie": ""}, 401),
        ({"token": ""}, 401),
        ({"token": "0" * 64}, 401),
        ({"cookie": "000000000000.guess"}, 401),
        ({"origin": None}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": APP}, 403),
        ({"origin": "null"}, 403),
        ({"site": "cross-site"}, 403),
        ({"site": "same-site"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
    ],
    ids=str,
)
def test_nothing_less_and_no_other_page_will_do(gateway: ServedGateway, wrong: dict[str, str], status: int) -> None:
    new = signed_in(gateway)

    with pytest.raises(InvalidStatus) as refused:
        dial(gateway, **{"cookie": new.cookie, "token": new.token, **wrong})
    assert refused.value.response.status_code == status


def test_without_a_session_there_is_no_terminal(gateway: ServedGateway) -> None:
    """Also at a gateway that admits every process of its user, agents included."""
    with pytest.raises(InvalidStatus) as refused:
        dial(gateway)
    assert refused.value.response.status_code in (401, 403)


def test_a_session_that_may_only_read_opens_no_terminal(gateway: ServedGateway) -> None:
    new = signed_in(gateway, "read", "send", "cancel", "approve")

    with pytest.raises(InvalidStatus) as refused:
        dial(gateway, cookie=new.cookie, token=new.token)
    assert refused.value.response.status_code == 403


def test_a_terminal_ends_when_its_session_is_revoked(gateway: ServedGateway) -> None:
    new, other = signed_in(gateway), signed_in(gateway)
    with (
        dial(gateway, cookie=new.cookie, token=new.token) as terminal,
        dial(gateway, cookie=other.cookie, token=other.token) as stays,
    ):
        gateway.sessions.revoke(new.session.session_id)

        with pytest.raises(ConnectionClosed) as closed:
            terminal.recv(TIMEOUT)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "unauthenticated")
        stays.send(b"ls")
        assert stays.recv(TIMEOUT) == b"ls"
