"""WebSockets as handlers see them. Light: it loads no WebSocket library, `server.websocket_protocol` does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from synapse.core.caller import Caller
from synapse.core.errors import SynapseError
from synapse.dialects.dialect import WireAnswer
from synapse.server.asgi import Receive, Send


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
