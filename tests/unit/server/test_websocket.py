"""A WebSocket is handed to its handler, or refused with an HTTP answer before the handshake."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import MutableMapping
from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import AccessDenied, PersonRequired
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits, Scope
from synapse.server.websocket import ChannelClosed, ForEveryCaller, WebSocketChannel
from tests.unit.server.exchange import ME, FixedService
from tests.unit.server.test_app import DIALECT

OVER_TCP = Caller()


class Call:
    """One attempt to open a WebSocket; `frames` arrive after the handshake, then the peer disconnects."""

    def __init__(self, path: str = "/attach", *frames: bytes | str, query: bytes = b"") -> None:
        self.scope: Scope = {"type": "websocket", "path": path, "query_string": query, "headers": []}
        self._incoming: list[MutableMapping[str, Any]] = [{"type": "websocket.connect"}]
        for frame in frames:
            key = "bytes" if isinstance(frame, bytes) else "text"
            self._incoming.append({"type": "websocket.receive", key: frame})
        self._incoming.append({"type": "websocket.disconnect", "code": 1000})
        self.sent: list[MutableMapping[str, Any]] = []
        self.gone = False

    async def receive(self) -> MutableMapping[str, Any]:
        return self._incoming.pop(0)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self.gone:
            raise OSError("gone")
        self.sent.append(message)

    async def run(self, handler: Any, caller: Caller = ME) -> Call:
        app = HttpApp(FixedService(None), [DIALECT], admit=lambda _: caller, websockets={"/attach": handler})
        await app(self.scope, self.receive, self.send)
        return self

    @property
    def refusal(self) -> tuple[int, str]:
        start, body = self.sent
        assert start["type"] == "websocket.http.response.start"
        return int(start["status"]), str(json.loads(body["body"])["error"]["code"])


async def echo(channel: WebSocketChannel, _caller: Caller) -> None:
    await channel.accept()
    while (frame := await channel.receive()) is not None:
        await channel.send(frame)


async def never(_channel: WebSocketChannel, _caller: Caller) -> None:
    raise AssertionError("this must not be called")


async def test_bytes_and_text_go_both_ways_until_the_peer_closes() -> None:
    call = await Call("/attach", b"\x1b[A", '{"type": "resize"}').run(echo)

    assert call.sent == [
        {"type": "websocket.accept"},
        {"type": "websocket.send", "bytes": b"\x1b[A"},
        {"type": "websocket.send", "text": '{"type": "resize"}'},
    ]


async def test_the_handler_knows_the_caller_and_the_query() -> None:
    seen: list[object] = []

    async def look(channel: WebSocketChannel, caller: Caller) -> None:
        seen.extend([caller, dict(channel.query)])
        await channel.accept()

    call = await Call(query=b"columns=80").run(look)

    assert seen == [ME, {"columns": "80"}]
    assert call.sent[-1] == {"type": "websocket.close", "code": 1000, "reason": ""}


async def test_another_path_is_not_found() -> None:
    assert (await Call("/other").run(never)).refusal == (404, "route_not_found")


async def test_a_websocket_is_served_on_the_unix_socket_only() -> None:
    assert (await Call().run(never, OVER_TCP)).refusal == (403, "access_denied")


async def test_an_error_before_the_handshake_refuses_the_websocket() -> None:
    async def persons_only(_channel: WebSocketChannel, _caller: Caller) -> None:
        raise PersonRequired

    assert (await Call().run(persons_only)).refusal == (403, "person_required")


async def test_an_error_after_the_handshake_closes_with_its_code() -> None:
    async def regret(channel: WebSocketChannel, _caller: Caller) -> None:
        await channel.accept()
        raise AccessDenied

    assert (await Call().run(regret)).sent[-1] == {"type": "websocket.close", "code": 1008, "reason": "access_denied"}


async def test_a_defect_is_logged_and_the_caller_gets_no_details(caplog: pytest.LogCaptureFixture) -> None:
    async def defect(_channel: WebSocketChannel, _caller: Caller) -> None:
        raise ZeroDivisionError("secret")

    with caplog.at_level(logging.ERROR):
        call = await Call().run(defect)

    assert call.refusal == (500, "internal")
    assert [record.message for record in caplog.records] == ["websocket_failed"]


async def test_sending_to_a_closed_websocket_ends_the_handler_quietly(caplog: pytest.LogCaptureFixture) -> None:
    call = Call()

    async def talk(channel: WebSocketChannel, _caller: Caller) -> None:
        await channel.accept()
        call.gone = True
        with pytest.raises(ChannelClosed):
            await channel.send(b"x")
        await channel.send(b"y")

    await call.run(talk)

    assert call.sent == [{"type": "websocket.accept"}]
    assert caplog.records == []


async def test_closing_is_no_error_when_the_peer_has_closed_first() -> None:
    call = Call()

    async def close(channel: WebSocketChannel, _caller: Caller) -> None:
        await channel.accept()
        call.gone = True
        await channel.close()

    assert (await call.run(close)).sent == [{"type": "websocket.accept"}]


async def test_nothing_is_received_after_the_end() -> None:
    ends: list[object] = []

    async def read_on(channel: WebSocketChannel, _caller: Caller) -> None:
        await channel.accept()
        ends.extend([await channel.receive(), await channel.receive()])

    await Call().run(read_on)

    assert ends == [None, None]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["synapse.terminals", "token.secret"], "synapse.terminals"), (["other"], None), ([], None)],
)
async def test_a_subprotocol_is_named_if_it_is_offered(offered: list[str], chosen: str | None) -> None:
    async def handler(channel: WebSocketChannel, _caller: Caller) -> None:
        await channel.accept("synapse.terminals")

    call = Call()
    call.scope["subprotocols"] = offered
    await call.run(handler)

    assert call.sent[0].get("subprotocol") == chosen


async def test_a_connection_ends_when_its_caller_loses_its_access() -> None:
    is_valid, has_ended = True, asyncio.Event()

    async def handler(channel: WebSocketChannel, _caller: Caller) -> None:
        nonlocal is_valid
        await channel.accept()
        is_valid = False
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    call = Call()
    app = HttpApp(
        FixedService(None),
        [DIALECT],
        admit=lambda _: Caller(holds=lambda: is_valid),
        websockets={"/attach": ForEveryCaller(handler)},
        limits=HttpLimits(recheck_seconds=0.01),
    )
    async with asyncio.timeout(5):
        await app(call.scope, call.receive, call.send)

    assert has_ended.is_set()
    assert call.sent[-1] == {"type": "websocket.close", "code": 1008, "reason": "unauthenticated"}
