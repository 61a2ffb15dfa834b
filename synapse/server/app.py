"""HTTP as an ASGI application: from a request to a core request, and from what came of it to an answer.

    admit the caller → find the route → read the body → choose the dialect → decode → service → encode

A request that is refused before its body was read is answered in the dialect that its path and its head tell.
It knows no dialect by name, only the table that it was given. A result that is still to come is a future: it is waited
for as long as the caller stays.

One request and how it ended, for whoever counts: no text of it, no query, no header.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

from synapse.core.caller import Caller
from synapse.core.errors import (
    AccessDenied,
    BodyTooLarge,
    BodyTooSlow,
    InternalFailure,
    InvalidRequest,
    MethodNotAllowed,
    RouteNotFound,
    SynapseError,
    UnsupportedMediaType,
)
from synapse.core.events import Update
from synapse.core.requests import Request
from synapse.core.trace import traced
from synapse.dialects.dialect import (
    NO_PARAMS,
    CallRoute,
    Dialect,
    DocumentRoute,
    Headers,
    Route,
    StreamCall,
    StreamRoute,
    WireAnswer,
    WireRequest,
)
from synapse.server.acceptor import SLOT
from synapse.server.asgi import (
    WITHOUT_BODY,
    ClientDisconnected,
    HttpLimits,
    PendingResults,
    Receive,
    Scope,
    Send,
    answer_whole,
    body_at_hand,
)
from synapse.server.routing import METHODS_WITH_BODY, Endpoint, RouteTable
from synapse.server.sse import EventStream
from synapse.server.websocket import ChannelClosed, ForEveryCaller, WebSocketChannel, WebSocketHandler

log = logging.getLogger(__name__)


class Service(Protocol):
    """Does what is asked."""

    def handle(self, request: Request, caller: Caller) -> Awaitable[Any]:
        """Raises a SynapseError, at once or when it is awaited."""
        ...


Admit = Callable[[Scope], Caller | Awaitable[Caller]]
"""Tells on whose behalf a request runs, at once or when it is awaited; raises AccessDenied, RateLimited."""
Choose = Callable[[WireRequest, Sequence[Endpoint]], Endpoint]
"""Tells which of several dialects a request speaks: on a shared path, or where no route is."""
EncodeError = Callable[[SynapseError], WireAnswer]


def first_endpoint(_wire: WireRequest, endpoints: Sequence[Endpoint]) -> Endpoint:
    """Choose the dialect that stands first in the table."""
    return endpoints[0]


class HttpApp:
    """Serves dialects over one service. The first dialect words the errors that belong to none.

    WebSockets are served on the Unix socket only, unless they are for every caller.
    """

    def __init__(  # noqa: PLR0913 - what is served, to whom, and who is told of it
        self,
        service: Service,
        dialects: Sequence[Dialect],
        *,
        admit: Admit,
        choose: Choose = first_endpoint,
        websockets: Mapping[str, WebSocketHandler | ForEveryCaller] | None = None,
        limits: HttpLimits | None = None,
        observe: Observe | None = None,
    ) -> None:
        self._service = service
        self._table = RouteTable(dialects)
        self._default = dialects[0]
        self._nowhere = [Endpoint(dialect, _NO_ROUTE) for dialect in dialects]
        self._admit = admit
        self._choose = choose
        self._websockets = websockets or {}
        self.limits = limits or HttpLimits()
        self._observe = observe
        self._patience = PendingResults()
        self._refusals = _RefusalLog()
        self._closing: asyncio.Future[None] | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        if scope["type"] == "websocket":
            return self._serve_websocket(scope, receive, send)
        if self._observe is None:
            return self._serve_http(scope, receive, send, _Exchange())
        return self._serve_observed(scope, receive, send, self._observe)

    def close(self) -> None:
        """End all streams, so that their readers can go elsewhere; new ones end at once."""
        closing = self._closed()
        if not closing.done():
            closing.set_result(None)
        self._patience.end()

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        """Word an error for somebody whose bytes never became a whole request; `scope` is its head, if that came."""
        return self._default.encode_error(error) if scope is None else self._worded_for(scope, _Exchange())(error)

    async def _serve_observed(self, scope: Scope, receive: Receive, send: Send, observe: Observe) -> None:
        words, begun = _Exchange(), perf_counter()
        try:
            await self._serve_http(scope, receive, send, words)
        finally:
            taken = perf_counter() - begun
            observe(Exchange(scope["method"], scope["path"], words.dialect, taken, words.error, words.is_stream))

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send, words: _Exchange) -> None:
        last = False
        try:
            answer = await self._exchange(scope, receive, send, words)
        except SynapseError as error:
            words.error = error.code
            self._refusals.note(scope, error, words.caller)
            answer = (words.encode_error or self._worded_for(scope, words))(error)
            # What is left of such a body is not read.
            last = isinstance(error, BodyTooLarge | BodyTooSlow)
        except ClientDisconnected:
            words.error = CALLER_LEFT
            return
        except Exception:
            # The outermost handler: a defect of ours is logged whole, and the caller gets no detail of it.
            words.error = InternalFailure.code
            log.exception("request_failed", extra={"method": scope["method"], "path": scope["path"]})
            answer = (words.encode_error or self._worded_for(scope, words))(InternalFailure())
        if answer is None:
            return
        send_whole = answer_whole(send)
        if send_whole is None or not send_whole(answer, last=last):
            await _send(answer, send, last=last)

    def _worded_for(self, scope: Scope, words: _Exchange) -> EncodeError:
        """Choose how an error is told before the body was read: by the path and the head alone."""
        method = scope.get("method", "GET")  # the handshake of a WebSocket is always one
        wire = WireRequest(method, scope["path"], NO_PARAMS, scope["query_string"], scope["headers"])
        try:
            endpoints = self._table.match(method, scope.get("raw_path", b"")).endpoints
        except SynapseError:
            return self._choose(wire, self._nowhere).dialect.encode_error
        endpoint = self._choose(wire, endpoints)
        words.speaks(endpoint.dialect)
        if isinstance(endpoint.route, CallRoute) and endpoint.route.refuse is not None:
            return partial(endpoint.route.refuse, wire)
        return endpoint.dialect.encode_error

    async def _exchange(self, scope: Scope, receive: Receive, send: Send, words: _Exchange) -> WireAnswer | None:
        """Return the answer, or nothing when it was a stream and is told already."""
        admitted = self._admit(scope)
        caller = words.caller = admitted if isinstance(admitted, Caller) else await admitted
        _prove_connection(scope, caller)
        match = self._table.match(scope["method"], scope["raw_path"])
        endpoint = match.endpoints[0]
        wire = WireRequest(
            scope["method"],
            scope["path"],
            match.params(endpoint),
            scope["query_string"],
            scope["headers"],
            self._body_at_hand(scope, send) or await self._read_body(scope["headers"], receive)
            if scope["method"] in METHODS_WITH_BODY
            else b"",
        )
        if len(match.endpoints) > 1:
            endpoint = self._choose(wire, match.endpoints)
            if endpoint is not match.endpoints[0]:
                wire = wire._replace(params=match.params(endpoint))
        words.speaks(endpoint.dialect)
        route = endpoint.route
        if isinstance(route, CallRoute):
            return await self._answer_call(route, wire, caller, receive, send, words)
        if isinstance(route, Route):
            request = traced(route.decode(wire), wire.headers)
            return WireAnswer(route.status, route.encode(await self._service.handle(request, caller)))
        if isinstance(route, DocumentRoute):
            return route.answer(wire)
        updates = await self._service.handle(route.decode(wire), caller)
        await self._stream(route, updates, receive, send, words)
        return None

    async def _answer_call(
        self, route: CallRoute, wire: WireRequest, caller: Caller, receive: Receive, send: Send, words: _Exchange
    ) -> WireAnswer | None:
        call = route.ask(wire)
        if isinstance(call, WireAnswer):
            words.error = call.error
            return call
        if call.encode_error is not None:
            words.encode_error = call.encode_error
        if wire.method == "HEAD" and isinstance(call, StreamCall):
            # Its headers are known only when it has begun, and it has no end to find out.
            raise MethodNotAllowed("HEAD", wire.path, ["GET", "POST"])
        result: Any = await self._service.handle(traced(call.request, wire.headers), caller)
        if isinstance(call, StreamCall):
            await self._stream(call, result, receive, send, words)
            return None
        if isinstance(result, asyncio.Future):
            result = await self._patience.wait(result, receive, send)  # pyright: ignore[reportUnknownArgumentType]  # of whatever the service makes
        if call.answer is not None:
            return call.answer(result)
        return WireAnswer(call.status, call.encode(result), call.headers, route.media_type)

    async def _stream(
        self,
        call: StreamRoute | StreamCall,
        updates: AsyncIterator[Update],
        receive: Receive,
        send: Send,
        words: _Exchange,
    ) -> None:
        words.is_stream = True
        encode_error = words.encode_error or self._default.encode_error
        stream = EventStream(
            call.encode,
            encode_error,
            closing=self._closed(),
            keep_alive=self.limits.keep_alive_seconds,
            headers=call.headers if isinstance(call, StreamCall) else (),
        )
        await stream.run(updates, receive, send)

    def _body_at_hand(self, scope: Scope, send: Send) -> bytes:
        """The body, if it is here and there is nothing to say against it; nothing otherwise, which decides nothing."""
        take = body_at_hand(send)
        length, media_type = _body_headers(scope["headers"])
        if take is None or not 0 < length <= self.limits.max_body_bytes or media_type != b"application/json":
            return b""
        return take() or b""

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the whole body.

        Raises:
            BodyTooLarge, BodyTooSlow, UnsupportedMediaType.
        """
        limit = self.limits.max_body_bytes
        length, media_type = _body_headers(headers)
        if length > limit:
            raise BodyTooLarge(limit)
        message = await receive()
        body: bytes = message["body"] if message["type"] == "http.request" else b""
        if message["type"] != "http.request" or message["more_body"] or len(body) > limit:
            body = await _whole_body(message, receive, limit)
        if body and media_type != b"application/json":
            _check_media_type(media_type)
        return body

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        channel = WebSocketChannel(receive, send)
        try:
            await self._converse(channel, scope)
            await channel.close()
        except ChannelClosed:
            return
        except SynapseError as error:
            self._refusals.note(scope, error, None)
            await channel.fail(error, self._worded_for(scope, _Exchange())(error))
        except Exception:
            # As for requests: logged whole, told without detail.
            log.exception("websocket_failed", extra={"path": scope["path"]})
            failure = InternalFailure()
            await channel.fail(failure, self._worded_for(scope, _Exchange())(failure))

    async def _converse(self, channel: WebSocketChannel, scope: Scope) -> None:
        caller = await self._admitted(scope)
        served = self._websockets.get(scope["path"])
        if served is None:
            raise RouteNotFound("no WebSocket is served there")
        if not isinstance(served, ForEveryCaller) and not caller.via_socket:
            raise AccessDenied("this is served on the agent's Unix socket only", hint="`synapse status` shows it")
        channel.query = WireRequest("GET", scope["path"], query_string=scope["query_string"]).query()
        channel.readmit = partial(self._admitted, scope)
        handler = served.handler if isinstance(served, ForEveryCaller) else served
        await handler(channel, caller)

    async def _admitted(self, scope: Scope) -> Caller:
        admitted = self._admit(scope)
        caller = admitted if isinstance(admitted, Caller) else await admitted
        _prove_connection(scope, caller)
        return caller

    def _closed(self) -> asyncio.Future[None]:
        # Made on first use: an application may be built before its event loop runs.
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
        return self._closing


def _prove_connection(scope: Scope, caller: Caller) -> None:
    """Count a connection no longer among those of strangers, once somebody with rights has asked on it."""
    slot = scope.get("state", {}).get(SLOT)
    if slot is not None and not caller.is_anonymous:
        slot.prove()


def _nothing(wire: WireRequest) -> WireAnswer:
    raise RouteNotFound(f"nothing is served at {wire.path}")


REFUSALS_A_MINUTE: Final = 60
LONGEST_LOGGED_PATH: Final = 200
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_NO_ROUTE: Final = DocumentRoute(method="", path="", answer=_nothing)
"""Stands for the route of a dialect that is only asked for its words."""


class _Exchange:
    """What one request speaks, and how an error of it is told, once that is known; and what became of it."""

    __slots__ = ("caller", "dialect", "encode_error", "error", "is_stream")

    def __init__(self) -> None:
        self.caller: Caller | None = None
        self.encode_error: EncodeError | None = None
        self.dialect = NO_DIALECT
        self.error = ""
        self.is_stream = False

    def speaks(self, dialect: Dialect) -> None:
        self.encode_error = dialect.encode_error
        self.dialect = dialect.name


class _RefusalLog:
    """Logs refused requests that would have changed something, or that were not admitted.

    Only so many a minute: strangers must not push out of the log what a person looks for there.
    """

    def __init__(self) -> None:
        self._begun = float("-inf")
        self._logged = self._left_out = 0

    def note(self, scope: Scope, error: SynapseError, caller: Caller | None) -> None:
        """Log one, unless it only asked."""
        method = scope.get("method", "GET")
        if method in _READING and not isinstance(error, AccessDenied):
            return
        now = perf_counter()
        if now - self._begun > 60:
            if self._left_out:
                log.info("requests_refused", extra={"count": self._left_out})
            self._begun, self._logged, self._left_out = now, 0, 0
        if self._logged >= REFUSALS_A_MINUTE:
            self._left_out += 1
            return
        self._logged += 1
        log.info("request_refused", extra=_refusal_facts(method, scope["path"], error, caller))


def _refusal_facts(method: str, path: str, error: SynapseError, caller: Caller | None) -> dict[str, str]:
    facts = {"method": method, "path": path[:LONGEST_LOGGED_PATH], "error": error.code}
    if caller is not None and (caller.agent_id or caller.name):
        facts["caller"] = caller.agent_id or caller.name
    if not isinstance(error, InvalidRequest):
        # What is said of an invalid request may quote it, and no log has texts of messages.
        facts["why"] = str(error)[:LONGEST_LOGGED_PATH]
    return facts


async def _send(answer: WireAnswer, send: Send, *, last: bool) -> None:
    headers = [*answer.headers]
    if answer.status not in WITHOUT_BODY:
        headers += [(b"content-type", answer.media_type), (b"content-length", b"%d" % len(answer.body))]
    if last:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _whole_body(message: MutableMapping[str, Any], receive: Receive, limit: int) -> bytes:
    """All of a body whose first piece is there."""
    pieces: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            # What came so far may happen to be valid; it is not what was meant.
            raise BodyTooSlow("the caller left before the body was complete")
        pieces.append(message["body"])
        size += len(pieces[-1])
        if size > limit:
            raise BodyTooLarge(limit)
        if not message["more_body"]:
            return b"".join(pieces)
        message = await receive()


def _body_headers(headers: Headers) -> tuple[int, bytes]:
    """The announced length (0 if there is none) and the media type."""
    length, media_type = 0, b""
    for name, value in headers:
        if name == b"content-type":
            media_type = value
        elif name == b"content-length" and value.isdigit():
            length = int(value[:20])
    return length, media_type


def _check_media_type(value: bytes) -> None:
    media_type = value.partition(b";")[0].strip().lower()
    if media_type == b"application/json" or media_type.endswith(b"+json"):
        return
    shown = media_type[:80].decode("latin-1") or "nothing"
    raise UnsupportedMediaType(f"the body must be JSON, but its Content-Type says {shown}", hint=_HOW_TO_SAY_JSON)


_HOW_TO_SAY_JSON: Final = 'add -H "Content-Type: application/json"'


NO_DIALECT: Final = "none"
"""Of what was refused before it was known what it speaks."""
CALLER_LEFT: Final = "caller_left"


class Exchange(NamedTuple):
    """How one request went."""

    method: str
    path: str
    dialect: str
    seconds: float
    error: str = ""
    """The code of the error that it was answered with, or empty."""
    is_stream: bool = False


Observe = Callable[[Exchange], None]
"""Is told of each request when it has been answered."""
