"""Sends the items of one stream, such as the updates of a task, to one reader as server-sent events.

A stream ends when the feed ends, the reader leaves or loses its access, or the server stops. In the last two cases the
last event is an error, so that the reader can tell it from a complete stream. A comment every few seconds makes proxies
keep the connection, and shows when it is dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from synapse.core.errors import AgentExited, InternalFailure, SynapseError, Unauthenticated
from synapse.core.requests import Stream
from synapse.dialects.dialect import WireAnswer, WireEvent
from synapse.server.asgi import Receive, Send, caller_left

log = logging.getLogger(__name__)

T = TypeVar("T")

MEDIA_TYPE: Final = b"text/event-stream"
HEADERS: Final = (
    (b"content-type", MEDIA_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
KEEP_ALIVE: Final = b": \n\n"
_RESUBSCRIBE: Final = "subscribe again when it is back, with the last id as Last-Event-ID"


def event_bytes(event: WireEvent) -> bytes:
    """Returns the bytes of one event; its data must be on one line."""
    position = b"id: %b\n" % event.id.encode("ascii") if event.id else b""
    name = b"event: %b\n" % event.name.encode("ascii") if event.name else b""
    encoded = b"%b%bdata: %b\n\n" % (position, name, event.data)
    return encoded if event.then is None else encoded + event_bytes(event.then)


class EventWriter(Generic[T]):
    """Sends the items of one stream to one reader. `closing` is done when the server stops.

    `until_revoked` returns when the reader has lost its access.
    """

    def __init__(
        self,
        encode: Callable[[T], WireEvent | None],
        encode_error: Callable[[SynapseError], WireAnswer],
        *,
        closing: asyncio.Future[None],
        until_revoked: Callable[[], Coroutine[Any, Any, None]],
        keep_alive: float,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self._encode = encode
        self._encode_error = encode_error
        self._closing = closing
        self._until_revoked = until_revoked
        self._keep_alive = keep_alive
        self._headers = (*HEADERS, *headers)

    async def run(self, items: Stream[T], receive: Receive, send: Send) -> None:
        """Sends until the stream ends, as the module says; then closes `items`."""
        ours: list[asyncio.Future[None]] = []
        revoked = asyncio.ensure_future(self._until_revoked())
        is_cut_off = False
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            ours += [asyncio.ensure_future(self._write(items, send)), asyncio.ensure_future(caller_left(receive))]
            await self._wait_for_first(ours, revoked, send)
            is_cut_off = not any(part.done() for part in ours[:2])
        finally:
            # Waits for them, so that none reads the items while they are closed.
            for part in (*ours, revoked):
                part.cancel()
            await asyncio.gather(*ours, revoked, return_exceptions=True)
            await items.aclose()
        if is_cut_off and not revoked.cancelled():
            await send(self._error_chunk(Unauthenticated("the credentials of this stream are no longer valid")))
        elif is_cut_off:
            await send(self._error_chunk(AgentExited("this server ends; the task is kept", hint=_RESUBSCRIBE)))
        await send({"type": "http.response.body", "body": b""})

    async def _wait_for_first(
        self, ours: list[asyncio.Future[None]], revoked: asyncio.Future[None], send: Send
    ) -> None:
        """Waits until one of `ours` or `revoked` is done or the server stops; sends comments while that takes long."""
        ends = {*ours, revoked, self._closing}
        while True:
            done, _ = await asyncio.wait(ends, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            # A reader that reads nothing blocks `send`; waiting for it here would miss the end.
            if len(ours) == 2 or ours[-1].done():
                ours[2:] = [asyncio.ensure_future(send(_chunk(KEEP_ALIVE)))]

    async def _write(self, items: Stream[T], send: Send) -> None:
        try:
            async for item in items:
                event = self._encode(item)
                if event is not None:
                    await send(_chunk(event_bytes(event)))
        except SynapseError as error:
            await send(self._error_chunk(error))
        except Exception:
            # The status was sent long ago, so a defect can only be reported inside the stream.
            log.exception("stream_failed")
            await send(self._error_chunk(InternalFailure()))

    def _error_chunk(self, error: SynapseError) -> dict[str, Any]:
        answer = self._encode_error(error)
        if answer.media_type == MEDIA_TYPE:
            return _chunk(answer.body)  # already an event
        return _chunk(b"event: error\ndata: %b\n\n" % answer.body)


def _chunk(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}
