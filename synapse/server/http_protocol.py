"""HTTP/1.1 of one connection: uvicorn's own protocol on llhttp, with the limits that it lacks.

uvicorn parses requests, runs the application, answers in order, keeps the connection alive and hands it to a
WebSocket. HttpProtocol adds:

    peer          what the kernel says of the other end is in `scope["state"]`, with the connection's slot
    arrival       a request must arrive within a time limit, and its head within a size
    reading       a client that does not read what was written is disconnected
    resting       a connection without a request is closed, with the same clock as the other limits
    pipelining    no more is read while requests wait, so neither they nor their bytes pile up
    leaving       the request that is being answered learns that its client has left, also with requests behind it
    refusals      what is not HTTP gets an answer in the words of the dialect, behind the answers to what was
    upgrades      a body behind `Upgrade: h2c` is a body, and never read as the next request
    trailers      do not become headers

The server calls `enforce_time_limits` about once a second, so no connection has a timer of its own for them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from synapse.core.errors import BodyTooSlow, InvalidRequest, SynapseError
from synapse.core.override import override
from synapse.dialects.dialect import WireAnswer
from synapse.server.acceptor import SLOT
from synapse.server.asgi import WITHOUT_BODY, Receive, Scope, Send, ServedApp
from synapse.server.peer import PEER, peer_of

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

HEAD_LIMIT: Final = 64 * 1024
"""Bytes that may come without completing a head or bringing some of a body."""
PARSED_AT_ONCE: Final = 16 * 1024
"""Bytes given to the parser before checking whether requests wait: one read can bring ten thousand requests."""
STALLED_SECONDS: Final = 120.0
"""A client that reads nothing of what waits for it is disconnected after so long. The kernel reports reading in large
steps, so a slow reader can look idle for a while."""
LINGER_SECONDS: Final = 5.0
"""What a client still sends behind its last answer is thrown away for so long."""
CLOSING_SECONDS: Final = 30.0
"""The same as STALLED_SECONDS, once the connection is closing and only the rest is to be read."""


class HttpProtocol(HttpToolsProtocol):
    """One connection to the ServedApp of `config`."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, dict(app_state), _loop)
        self._served = cast("ServedApp", config.app)
        self.app = cast("Any", self._run)
        self._answering: RequestCycle | None = None
        self._unparsed = b""
        """Received, and kept back while requests wait."""
        self._is_paused = False
        """The transport does not read."""
        self._is_arriving = False
        """A request has begun, and its end has not come."""
        self._incomplete: RequestCycle | None = None
        """The same request, once its head is here."""
        self._fruitless = 0
        self._refusal = b""
        """The last answer of this connection. Once it is set, what comes is thrown away."""
        self._is_over = False
        """The last answer is written."""
        self._over_since = math.inf
        self._arrived = 0
        self._awaited = (-1, 0.0)
        """The value of `_arrived` when a request was first seen to be awaited, and when that was."""
        self._unsent = (math.inf, 0.0)
        """Bytes that the client has not read, and when they last became fewer."""

    # Called by the transport.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        # uvicorn resumes reading with each answer and each `receive`; `resume_reading` decides whether that is time.
        self.flow = FlowControl(cast("asyncio.Transport", self))
        if PEER not in self.app_state:
            self.app_state[PEER] = peer_of(transport.get_extra_info("socket"))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        answering = self._answering
        super().connection_lost(exc)
        if answering is not None:
            answering.lose()  # uvicorn tells only the newest request
        if SLOT in self.app_state:
            self.app_state[SLOT].release()
        self._let_go()

    @override
    def data_received(self, data: bytes) -> None:
        if not self._refusal and not self._is_over:
            self._unparsed += data
            self._parse_unparsed()

    # Called by uvicorn's flow control, for which this is the transport.

    def pause_reading(self) -> None:
        self._is_paused = True
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_paused or self.pipeline or self.transport.is_closing():
            return
        if self._unparsed:
            # Later: the caller is in the middle of ending one request or beginning another.
            self.loop.call_soon(self._catch_up)
        else:
            self._is_paused = False
            self.transport.resume_reading()

    # Called by the parser.

    @override
    def on_message_begin(self) -> None:
        self._is_arriving = True
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        parser, scope = self.parser, cast("Scope", self.scope)
        if parser.should_upgrade():
            return  # to `_upgrade`, when the parser has let go
        self._fruitless = 0
        scope["http_version"] = version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        scope["raw_path"], scope["query_string"] = _split(self.url)
        path = scope["raw_path"].decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        # Trailers go into another list than the headers of the request.
        self.headers = []
        self.cycle = cycle = RequestCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            # After an answer that came before the body, nobody could tell whether the body still follows.
            keep_alive=version == "1.1" and parser.should_keep_alive() and not self.expect_100_continue,
            on_response=self.on_response_complete,
        )
        self._incomplete = cycle
        if self._answering is None:
            self._begin(cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    @override
    def on_body(self, body: bytes) -> None:
        self._fruitless = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._is_arriving = False
        self._incomplete = None
        self._arrived += 1
        super().on_message_complete()

    # Requests, one after the other.

    def _begin(self, cycle: RequestCycle) -> None:
        self._answering = cycle
        task = self.loop.create_task(cycle.run_asgi(self.app))
        # The loop itself keeps no reference to a task.
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _run(self, scope: Any, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Run the application, with the cycle itself as `send`; it may have lost its client before it began."""
        return self._served(scope, receive, self._answering or send)

    @override
    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        answered, self._answering = self._answering, None
        if self.transport.is_closing():
            return
        if answered is not None and answered.is_last:
            self._hang_up()
            return
        if self.pipeline:
            self._begin(cast("RequestCycle", self.pipeline.pop()[0]))
        elif self._refusal:
            self._send_refusal()
            return
        if self._is_paused:
            self.flow.read_paused = False
            self.resume_reading()

    # Called by the server.

    def enforce_time_limits(self, now: float) -> None:
        """Refuse a request that does not arrive, and disconnect a client that does not read; `now` is in seconds."""
        if self.transport.is_closing():
            allowed = CLOSING_SECONDS
        else:
            allowed = STALLED_SECONDS
            self._limit_arrival(now)
        unsent = self.transport.get_write_buffer_size()
        before, since = self._unsent
        self._unsent = (unsent, now if not unsent or unsent < before else since)
        if now - self._unsent[1] >= allowed:
            self.transport.abort()

    def _limit_arrival(self, now: float) -> None:
        if self._is_over:
            self._over_since = min(self._over_since, now)
            if now - self._over_since >= LINGER_SECONDS:
                self.transport.close()
            return
        is_awaited = self._is_arriving or self._answering is None
        # While we do not read, a client cannot be blamed for not sending.
        if not is_awaited or self._refusal or self._unparsed or self.pipeline or self.flow.read_paused:
            self._awaited = (-1, 0.0)
            return
        arrived, since = self._awaited
        allowed = self._served.limits.arrival_seconds
        if arrived != self._arrived:
            self._awaited = (self._arrived, now)
        elif arrived and not self._is_arriving:
            if now - since >= self.timeout_keep_alive:
                self.transport.close()
        elif now - since >= allowed:
            self._refuse(408, BodyTooSlow(f"the request did not arrive within {allowed:g} seconds"))

    # Parsing.

    def _parse_unparsed(self) -> None:
        while self._unparsed and not self.pipeline and not self.flow.read_paused:
            piece, self._unparsed = self._unparsed[:PARSED_AT_ONCE], self._unparsed[PARSED_AT_ONCE:]
            self._parse(piece)

    def _catch_up(self) -> None:
        """Parse what was kept back, and read on when nothing of it is left."""
        self._parse_unparsed()
        if not self._unparsed and not self.flow.read_paused:
            self.resume_reading()

    def _parse(self, data: bytes) -> None:
        self._fruitless += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, InvalidRequest("this cannot be read as HTTP", hint="speak HTTP/1.1"))
        else:
            if self._fruitless > HEAD_LIMIT:
                self._refuse(431, InvalidRequest(f"the head of the request is larger than {HEAD_LIMIT} bytes"))

    def _upgrade(self, rest: bytes) -> None:
        """Hand the connection to a WebSocket if one is asked for and no answer is due; else serve a plain request."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(400, InvalidRequest("this is no proxy", hint="leave CONNECT to proxies"))
            return
        if self._answering is None and self._should_upgrade():
            self.scope["method"] = method.decode("ascii")
            self.handle_websocket_upgrade()
            self._let_go()
            return
        # The parser took a body for the other protocol. What a proxy takes for a body must never be a request of its
        # own, so the head is parsed again without the header, and the body behind it.
        head = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode("ascii"))]
        head += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self._unparsed = rest + self._unparsed
        self._parse(b"\r\n".join([*head, b"", b""]))

    # The end.

    def _refuse(self, status: int, error: SynapseError) -> None:
        """Read nothing more. Answer with `error` behind the requests that arrived whole, and close the connection."""
        broken = self._incomplete
        answer = self._served.refusal(error, self._head_so_far() if broken is None else cast("Scope", broken.scope))
        self._refusal = answer_bytes(answer._replace(status=status), self.server_state.default_headers)
        self._unparsed = b""
        if self._answering is broken:
            self._send_refusal()
        elif self._answering is None:
            self.transport.close()  # the broken request was answered before all of its body came
        elif broken is not None:
            self.pipeline.popleft()

    def _send_refusal(self) -> None:
        broken = self._answering
        if broken is not None:
            broken.lose()
        if broken is not None and broken.response_started:
            self.transport.close()
            return
        self.transport.write(self._refusal)
        self._hang_up()

    def _hang_up(self) -> None:
        """End our side, and wait a little for the client to end its own.

        Closing on a client that still sends would reset the connection, and the last answer with it.
        """
        self._is_over = True
        self._answering = None
        self.pipeline.clear()
        self._unparsed = b""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.read_paused = False
        self.resume_reading()

    def _head_so_far(self) -> Scope | None:
        """Return what has come of the head of a request: enough to tell its dialect, or None."""
        if not self._is_arriving or not self.headers:
            return None
        path, _, query = self.url.partition(b"?")
        method = self.parser.get_method().decode("ascii")
        known = {"method": method, "path": unquote(path.decode("latin-1")), "raw_path": path, "query_string": query}
        return {**cast("Scope", self.scope), **known}

    def _let_go(self) -> None:
        """Break the cycles of references, which would stay in memory until the collector runs."""
        self.parser = cast("Any", None)
        self.cycle = cast("Any", None)
        self.app = cast("Any", None)
        self.flow = FlowControl(self.transport)
        self.pipeline.clear()
        self._answering = self._incomplete = None
        self._unparsed = b""


class RequestCycle(RequestResponseCycle):
    """One request and its answer. It is the `send` of the application, with the short ways that `asgi` describes."""

    is_last = False
    """Its answer is the last one of the connection, though its body may still be on its way."""
    _on_leave: Callable[[], object] | None = None

    async def __call__(self, message: Any) -> None:
        if self.scope["http_version"] != "1.1":
            # Chunks came with 1.1. Before, the end of the connection is the end of the answer.
            self.chunked_encoding = False
            self.expected_content_length = len(message.get("body", b""))
        await self.send(message)

    def answer(self, answer: WireAnswer, *, last: bool = False) -> bool:
        """Write a plain answer with one write; return False for any other, which ASGI's messages must carry."""
        if last and not self.disconnected and not self.response_started:
            self.is_last = True
            self._write_whole(answer_bytes(answer, self.default_headers))
            return True
        status, body, headers, media_type, _ = answer
        if headers or not self.keep_alive or status in WITHOUT_BODY or self.scope["method"] == "HEAD":
            return False
        if self.disconnected or self.response_started or self.flow.write_paused:
            return False
        head = _plain_head(status, media_type, tuple(self.default_headers))
        self._write_whole(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        return True

    def _write_whole(self, answer: bytes) -> None:
        self.response_started = self.response_complete = True
        self.transport.write(answer)
        self.message_event.set()
        self.on_response()

    def body_at_hand(self) -> bytes | None:
        """Return the whole body, if all of it has come."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue:
            return None
        body = bytes(self.body)
        self.body.clear()
        self.message_event.clear()
        # Only who reads notices that the client leaves.
        self.flow.resume_reading()
        return body

    def when_left(self, call: Callable[[], object] | None) -> None:
        """Call this when the client leaves; there is one such call at most."""
        self._on_leave = call
        if call is not None and self.disconnected:
            call()

    def lose(self) -> None:
        """Tell the application that its client has left."""
        self.disconnected = True
        self.message_event.set()
        if self._on_leave is not None:
            self._on_leave()


def _split(url: bytes) -> tuple[bytes, bytes]:
    """Return the path and the query; raises httptools.HttpParserInvalidURLError."""
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""


@lru_cache(maxsize=32)
def _plain_head(status: int, media_type: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return all that stands before the length of the body; `headers` change once a second, with the date."""
    if HEADER_VALUE_RE.search(media_type):
        raise ValueError(f"not a media type: {media_type[:80]!r}")
    return STATUS_LINE[status] + _lines((*headers, (b"content-type", media_type))) + b"content-length: "


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def answer_bytes(answer: WireAnswer, headers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """Return the last answer of a connection, with its body."""
    about = (
        (b"content-type", answer.media_type),
        (b"content-length", b"%d" % len(answer.body)),
        (b"connection", b"close"),
    )
    return STATUS_LINE[answer.status] + _lines((*headers, *answer.headers, *about)) + b"\r\n" + answer.body
