"""uvicorn's WebSocket, with last words that arrive, and without addresses in its log.

    a slow reader       the close does not wait until it has read what came before
    a frame too large   what is still on its way is read and thrown away: hanging up on it would reset the connection

Importing this loads a WebSocket library; `transports.server` does it when the first one is asked for.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from synapse.core.overriding import override
from synapse.transports.acceptor import SLOT

FAREWELL_SECONDS: Final = 30.0
"""Whoever has not read our last words by then is hung up on."""

LINGER_SECONDS: Final = 5.0
"""So long is read what nobody wants any more."""

_QUIET: Final = logging.getLogger("uvicorn.error.websocket")
# It logs each address at INFO, and a browser's ticket stands in the address.
_QUIET.setLevel(logging.WARNING)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.logger = _QUIET
        self._is_over = False

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if SLOT in self.app_state:
            self.app_state[SLOT].release()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if not self._is_over:
            super().data_received(data)

    @override
    def handle_parser_exception(self) -> None:
        """Say why the conversation ends, and wait until the other side has heard it."""
        closing = self.conn.close_sent
        code, reason = (closing.code, closing.reason) if closing is not None else (1006, "")
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self._is_over = True
        self.stop_keepalive()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            # It shows the other side that nothing more comes, so that it hangs up by itself.
            self.transport.write_eof()
        self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    @override
    async def send(self, message: Any) -> None:
        """Send a message; one that closes does not wait until the other side has read what came before it."""
        if self._is_over:
            raise ClientDisconnected
        if message["type"] != "websocket.close":
            await super().send(message)
            if message["type"] == "websocket.http.response.body":
                # By a refusal; uvicorn logs it as a failure of ours otherwise, and anybody can be refused.
                self.handshake_complete = True
            return
        self.writable.set()
        await super().send(message)
        self.loop.call_later(FAREWELL_SECONDS, self.transport.abort)
