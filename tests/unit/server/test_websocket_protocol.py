"""A WebSocket that is refused, with any bytes after its handshake; and when the WebSocket library is loaded."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import closing

import pytest
import uvicorn
from uvicorn.server import ServerState

from synapse.server.http_protocol import HttpProtocol
from synapse.server.websocket_protocol import WebSocketProtocol
from tests.fakes.web_app import web_app
from tests.fakes.wire import FakeTransport

HANDSHAKE = (
    b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize("behind", [b"", b"\xff" * 40, b"GET / HTTP/1.1\r\n\r\n"])
async def test_a_refused_websocket_is_not_logged_as_a_failure(behind: bytes, caplog: pytest.LogCaptureFixture) -> None:
    config = uvicorn.Config(
        web_app(), http=HttpProtocol, ws="none", interface="asgi3", proxy_headers=False, log_config=None
    )
    config.load()
    state = ServerState()
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        websocket = WebSocketProtocol(config=config, server_state=state, app_state={})
        transport = FakeTransport(ours)
        transport.connection = websocket
        websocket.connection_made(transport)
        websocket.data_received(HANDSHAKE)
        if behind:
            websocket.data_received(behind)
        async with asyncio.timeout(5):
            await asyncio.gather(*state.tasks)
        transport.close()
        turned = asyncio.Event()
        asyncio.get_running_loop().call_soon(turned.set)
        await turned.wait()
        assert not state.connections
    told = bytes(transport.written)

    assert told.startswith(b"" if behind else b"HTTP/1.1 404")
    assert caplog.records == []


@pytest.mark.parametrize(
    "process", ["synapse.host.host", "synapse.host.pty", "synapse.link.link", "synapse.gateway.gateway"]
)
def test_a_process_without_websockets_does_not_load_the_library(process: str) -> None:
    code = f"import sys, {process}; assert not {{'websockets', 'uvicorn.protocols.websockets'}} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
