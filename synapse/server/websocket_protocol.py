"""uvicorn's protocol of a WebSocket, with closes that arrive and no URLs in its log.

    a slow reader       the close does not wait until the other side has read the earlier frames
    a frame too large   the rest of it is read and discarded: closing at once would reset the connection

Importing this loads a WebSocket library; `server.http` does so for the first WebSocket.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from synapse.core.override import override
from synapse.server.acceptor import SLOT

CLOSE_SECONDS: Final = 30.0
"""The connection is aborted if the other side has not read our close frame by then."""
LINGER_SECONDS: Final = 5.0
"""How long the rest of a frame that is too large is read and discarded."""

_QUIET: Final = logging.getLogger("uvicorn.error.websocket")
# It logs each URL at INFO, and the ticket of a browser stands in the URL.
_QUIET.setLevel(logging.WARNING)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol of one WebSocket; see the module."""

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
        """Sends the close frame, and keeps the connection until the other side has read it."""
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
            # It tells the other side that nothing more comes, so that it closes the connection.
            self.transport.write_eof()
        self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    @override
    async def send(self, message: Any) -> None:
        """Sends a message; a close does not wait until the other side has read the earlier frames."""
        if self._is_over:
            raise ClientDisconnected
        if message["type"] != "websocket.close":
            await super().send(message)
            if message["type"] == "websocket.http.response.body":
                # A refusal: uvicorn would log it as a failure of ours, and any caller can cause one.
                self.handshake_complete = True
            return
        self.writable.set()
        await super().send(message)
        self.loop.call_later(CLOSE_SECONDS, self.transport.abort)
