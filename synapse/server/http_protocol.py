"""The HTTP/1.1 protocol of one connection: uvicorn's own, on llhttp, with the limits that it lacks.

uvicorn parses requests, runs the application, answers in order, keeps the connection alive and hands it to a
WebSocket. HttpProtocol adds:

    peer          puts what the kernel knows of the other end, and the connection's slot, into `scope["state"]`
    arrival       limits the time in which a request must arrive, and the size of its head
    reading       disconnects a client that does not read its answers
    keep-alive    closes an idle connection by `enforce_time_limits`, not by a timer for each connection
    pipelining    reads no more while requests wait, so neither they nor their bytes pile up
    disconnects   reports them to the request that is being answered, also if more requests follow it
    refusals      answers invalid HTTP with an error of the dialect, after the answers to earlier requests
    upgrades      reads the body after `Upgrade: h2c` as a body, never as the next request
    trailers      keeps them out of the headers

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
"""Bytes that may arrive without completing a head or adding to a body."""
PARSED_AT_ONCE: Final = 16 * 1024
"""Bytes given to the parser before checking whether requests wait: one read can bring ten thousand requests."""
STALLED_SECONDS: Final = 120.0
"""How long a client may read nothing of its answers. The kernel reports reading in large steps, so a slow reader can
look idle for a while."""
LINGER_SECONDS: Final = 5.0
"""How long bytes that a client sends after its last answer are discarded."""
CLOSING_SECONDS: Final = 30.0
"""How long a client may read nothing once the connection is closing; shorter than STALLED_SECONDS."""


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
        """Bytes that are held back while requests wait."""
        self._is_paused = False
        """Whether the transport has been told to stop reading."""
        self._is_arriving = False
        """Whether a request has begun and not arrived whole."""
        self._incomplete: RequestCycle | None = None
        """The request that is arriving, once its head is complete."""
        self._bytes_without_progress = 0
        """Bytes parsed since a head was completed or a body grew."""
        self._refusal = b""
        """The last answer of this connection. Once it is set, further bytes are discarded."""
        self._is_over = False
        """Whether the last answer is written."""
        self._over_since = math.inf
        self._arrived = 0
        """How many requests have arrived whole."""
        self._awaited = (-1, 0.0)
        """The value of `_arrived` when the wait for the present request was first noticed, and the time of that."""
        self._unsent = (math.inf, 0.0)
        """How many bytes the client has not read, and the time when they last became fewer."""

    # Called by the transport.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        # uvicorn resumes reading with each answer and each `receive`; `resume_reading` decides whether it is time.
        self.flow = FlowControl(cast("asyncio.Transport", self))
        if PEER not in self.app_state:
            self.app_state[PEER] = peer_of(transport.get_extra_info("socket"))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        answering = self._answering
        super().connection_lost(exc)
        if answering is not None:
            answering.report_disconnect()  # uvicorn tells only the newest request
        if SLOT in self.app_state:
            self.app_state[SLOT].release()
        self._break_reference_cycles()

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
            return  # to `_parse`, which calls `_upgrade`
        self._bytes_without_progress = 0
        scope["http_version"] = version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        scope["raw_path"], scope["query_string"] = _split_url(self.url)
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
            # If the answer is sent before the body, the server cannot know whether the body still follows.
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
        self._bytes_without_progress = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._is_arriving = False
        self._incomplete = None
        self._arrived += 1
        super().on_message_complete()

    # Requests, one at a time.

    def _begin(self, cycle: RequestCycle) -> None:
        self._answering = cycle
        task = self.loop.create_task(cycle.run_asgi(self.app))
        # The loop itself keeps no reference to a task.
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _run(self, scope: Any, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Runs the application with the cycle itself as `send`, unless the client left before it began."""
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
        """Refuses a request that does not arrive, and disconnects a client that does not read; `now` is in seconds."""
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
        """Parses the bytes that were held back, and resumes reading when none are left."""
        self._parse_unparsed()
        if not self._unparsed and not self.flow.read_paused:
            self.resume_reading()

    def _parse(self, data: bytes) -> None:
        self._bytes_without_progress += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, InvalidRequest("this cannot be read as HTTP", hint="speak HTTP/1.1"))
        else:
            if self._bytes_without_progress > HEAD_LIMIT:
                self._refuse(431, InvalidRequest(f"the head of the request is larger than {HEAD_LIMIT} bytes"))

    def _upgrade(self, rest: bytes) -> None:
        """Hands the connection to a WebSocket if it asks for one and no answer is due; else serves a plain request."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(400, InvalidRequest("this is no proxy", hint="leave CONNECT to proxies"))
            return
        if self._answering is None and self._should_upgrade():
            self.scope["method"] = method.decode("ascii")
            self.handle_websocket_upgrade()
            self._break_reference_cycles()
            return
        # The parser took the body for bytes of the other protocol. A proxy reads it as a body, so it must never be read
        # as a request of its own: the head is parsed again without the header, and then the body.
        head = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode("ascii"))]
        head += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self._unparsed = rest + self._unparsed
        self._parse(b"\r\n".join([*head, b"", b""]))

    # The last answer, and the end.

    def _refuse(self, status: int, error: SynapseError) -> None:
        """Reads nothing more. Answers with `error` after the requests that arrived whole, and closes the connection."""
        broken = self._incomplete
        answer = self._served.refusal(error, self._head_so_far() if broken is None else cast("Scope", broken.scope))
        self._refusal = answer_bytes(answer._replace(status=status), self.server_state.default_headers)
        self._unparsed = b""
        if self._answering is broken:
            self._send_refusal()
        elif self._answering is None:
            self.transport.close()  # the broken request was answered before all of its body arrived
        elif broken is not None:
            self.pipeline.popleft()

    def _send_refusal(self) -> None:
        broken = self._answering
        if broken is not None:
            broken.report_disconnect()
            if broken.response_started:
                self.transport.close()
                return
        self.transport.write(self._refusal)
        self._hang_up()

    def _hang_up(self) -> None:
        """Ends our side, and waits a little for the client to end its own.

        Closing while the client still sends would reset the connection, and the client would lose the last answer.
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
        """Returns the part of a request's head that has arrived, to choose the dialect by; None without a header."""
        if not self._is_arriving or not self.headers:
            return None
        path, _, query = self.url.partition(b"?")
        method = self.parser.get_method().decode("ascii")
        known = {"method": method, "path": unquote(path.decode("latin-1")), "raw_path": path, "query_string": query}
        return {**cast("Scope", self.scope), **known}

    def _break_reference_cycles(self) -> None:
        """Lets the memory be freed at once, not only when the garbage collector runs."""
        self.parser = cast("Any", None)
        self.cycle = cast("Any", None)
        self.app = cast("Any", None)
        self.flow = FlowControl(self.transport)
        self.pipeline.clear()
        self._answering = self._incomplete = None
        self._unparsed = b""


class RequestCycle(RequestResponseCycle):
    """One request and its answer. It is the `send` of the application, with the shortcuts that `asgi` describes."""

    is_last = False
    """Whether its answer is the last one of the connection, though its body may still be arriving."""
    _on_leave: Callable[[], object] | None = None

    async def __call__(self, message: Any) -> None:
        if self.scope["http_version"] != "1.1":
            # HTTP/1.0 has no chunks: the end of the connection is the end of the answer.
            self.chunked_encoding = False
            self.expected_content_length = len(message.get("body", b""))
        await self.send(message)

    def answer(self, answer: WireAnswer, *, last: bool = False) -> bool:
        """Writes a plain answer with one write; returns False for any other, which must be sent by ASGI messages."""
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
        """Takes the whole body if all of it has arrived; else returns None."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue:
            return None
        body = bytes(self.body)
        self.body.clear()
        self.message_event.clear()
        # A disconnect is noticed only while the transport reads.
        self.flow.resume_reading()
        return body

    def when_left(self, call: Callable[[], object] | None) -> None:
        """Sets the function to call when the client disconnects, or None for no function."""
        self._on_leave = call
        if call is not None and self.disconnected:
            call()

    def report_disconnect(self) -> None:
        """Tells the application that its client has disconnected."""
        self.disconnected = True
        self.message_event.set()
        if self._on_leave is not None:
            self._on_leave()


def _split_url(url: bytes) -> tuple[bytes, bytes]:
    """Returns the path and the query. Raises httptools.HttpParserInvalidURLError."""
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""


@lru_cache(maxsize=32)
def _plain_head(status: int, media_type: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Returns the answer up to the length of its body; `headers` change once a second, with the date."""
    if HEADER_VALUE_RE.search(media_type):
        raise ValueError(f"not a media type: {media_type[:80]!r}")
    return STATUS_LINE[status] + _lines((*headers, (b"content-type", media_type))) + b"content-length: "


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def answer_bytes(answer: WireAnswer, headers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """Returns the bytes of the last answer of a connection."""
    about_body = (
        (b"content-type", answer.media_type),
        (b"content-length", b"%d" % len(answer.body)),
        (b"connection", b"close"),
    )
    return STATUS_LINE[answer.status] + _lines((*headers, *answer.headers, *about_body)) + b"\r\n" + answer.body
