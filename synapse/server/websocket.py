"""WebSockets: the channel that a handler uses, and uvicorn's protocol with closes that arrive and no URLs in its log.

    a slow reader       the close does not wait until the other side has read the earlier frames
    a frame too large   the rest of it is read and discarded: closing at once would reset the connection

Importing this loads a WebSocket library; `server.http` does so for the first WebSocket.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from synapse.core.caller import Caller
from synapse.core.errors import SynapseError
from synapse.core.override import override
from synapse.dialects.dialect import WireAnswer
from synapse.server.acceptor import SLOT
from synapse.server.asgi import Receive, Send

CLOSE_SECONDS: Final = 30.0
"""The connection is aborted if the other side has not read our close frame by then."""
LINGER_SECONDS: Final = 5.0
"""How long the rest of a frame that is too large is read and discarded."""

_QUIET: Final = logging.getLogger("uvicorn.error.websocket")
# It logs each URL at INFO, and the ticket of a browser stands in the URL.
_QUIET.setLevel(logging.WARNING)


class ChannelClosed(ConnectionError):
    """The other side has closed the WebSocket."""


class WebSocketHandler(Protocol):
    """Serves one WebSocket; it is cancelled when the caller loses its access.

    A SynapseError that it raises before `accept` refuses the connection with the error's status and body.
    """

    def __call__(self, channel: WebSocketChannel, caller: Caller, /) -> Coroutine[Any, Any, None]: ...


@dataclass(frozen=True, slots=True)
class ForEveryCaller:
    """A handler for all admitted callers, also over the network; other handlers serve the Unix socket only."""

    handler: WebSocketHandler


class WebSocketChannel:
    """One WebSocket. `query` holds the query of its URL, `subprotocols` those that the other side offers."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.query: Mapping[str, str] = {}
        self.subprotocols: tuple[str, ...] = ()
        self.readmit: Callable[[], Awaitable[Caller]] | None = None
        """Checks the credentials of the handshake again; raises AccessDenied or RateLimited."""
        self.accepted = False
        self._receive = receive
        self._send = send
        self._open = True

    async def accept(self, subprotocol: str = "") -> None:
        """Accepts the connection; nothing can be sent or received before.

        Names `subprotocol` if the other side offers it: a browser that offered some fails unless one is named.
        """
        self.accepted = True
        chosen = {"subprotocol": subprotocol} if subprotocol in self.subprotocols else {}
        await self._send({"type": "websocket.accept", **chosen})

    async def receive(self) -> bytes | str | None:
        """Returns the next frame: bytes of a binary one, text of a text one, or None at the end."""
        while self._open:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._open = False
            elif message["type"] == "websocket.receive":
                data: bytes | None = message.get("bytes")
                text: str | None = message.get("text")
                return text if data is None else data
        return None

    async def send(self, data: bytes | str) -> None:
        """Sends one frame: binary for bytes, text for text. Waits while the other side is slow.

        Raises:
            ChannelClosed: the other side has closed the WebSocket.
        """
        if not self._open:
            raise ChannelClosed
        try:
            await self._send({"type": "websocket.send", "bytes" if isinstance(data, bytes) else "text": data})
        except OSError as error:
            self._open = False
            raise ChannelClosed from error

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes the WebSocket. Idempotent."""
        if not self._open:
            return
        self._open = False
        try:
            await self._send({"type": "websocket.close", "code": code, "reason": reason})
        except OSError:
            return  # the other side closed first

    async def fail(self, error: SynapseError, answer: WireAnswer) -> None:
        """Ends with an error: before the handshake by an HTTP answer, after it by a close with the error's code."""
        if self.accepted:
            await self.close(1008, error.code)
            return
        self._open = False
        headers = [(b"content-type", answer.media_type), *answer.headers]
        await self._send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "websocket.http.response.body", "body": answer.body})


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
