"""A WebSocket as a handler sees it: it accepts, then takes and gives bytes and text until either side leaves.

uvicorn's WebSocket, with last words that arrive, and without addresses in its log.

    a slow reader       the close does not wait until it has read what came before
    a frame too large   what is still on its way is read and thrown away: hanging up on it would reset the connection

Importing this loads a WebSocket library; `transports.server` does it when the first one is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
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


class ChannelClosed(ConnectionError):
    """The other side has left."""


class WebSocketHandler(Protocol):
    """Holds one conversation.

    A SynapseError that it raises before it accepts refuses the connection with the error's status and body.
    """

    async def __call__(self, channel: WebSocketChannel, caller: Caller, /) -> None: ...


@dataclass(frozen=True, slots=True)
class ForEveryCaller:
    """A handler for all who are admitted, also over the network; others are served on the Unix socket only."""

    handler: WebSocketHandler


class WebSocketChannel:
    """One conversation. `query` has the fields of the address."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.query: Mapping[str, str] = {}
        self.readmit: Callable[[], Awaitable[Caller]] | None = None
        """Judges the credentials of the handshake again, as if they came now; raises AccessDenied or RateLimited."""
        self.accepted = False
        self._receive = receive
        self._send = send
        self._open = True

    async def accept(self) -> None:
        """Say yes to the connection; nothing can be sent or received before."""
        self.accepted = True
        await self._send({"type": "websocket.accept"})

    async def receive(self) -> bytes | str | None:
        """Return what came next: bytes of a binary frame, text of a text frame, or None at the end."""
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
        """Send one frame: binary for bytes, text for text. Waits while the other side is slow.

        Raises:
            ChannelClosed: the other side has left.
        """
        if not self._open:
            raise ChannelClosed
        try:
            await self._send({"type": "websocket.send", "bytes" if isinstance(data, bytes) else "text": data})
        except OSError as error:
            self._open = False
            raise ChannelClosed from error

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End the conversation; it is no error if it has ended."""
        if not self._open:
            return
        self._open = False
        try:
            await self._send({"type": "websocket.close", "code": code, "reason": reason})
        except OSError:
            return  # the other side was first

    async def fail(self, error: SynapseError, answer: WireAnswer) -> None:
        """End with an error: before the handshake by an HTTP answer, after it by closing with the error's code."""
        if self.accepted:
            await self.close(1008, error.code)
            return
        self._open = False
        headers = [(b"content-type", answer.media_type), *answer.headers]
        await self._send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "websocket.http.response.body", "body": answer.body})


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
