"""A WebSocket as a handler sees it: it accepts, then takes and gives bytes and text until either side leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from synapse.core.caller import Caller
from synapse.core.errors import SynapseError
from synapse.dialects.dialect import WireAnswer
from synapse.transports.asgi import Receive, Send


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
