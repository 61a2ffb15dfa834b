"""The ASGI application of hosts and gateways: turns HTTP requests into core requests, and results into answers.

    admit the caller → find the route → read the body → choose the dialect → decode → service → encode

A request that is refused before its body is read is answered in the dialect of its path and headers. The application
knows no dialect by name, only the table that it was given. It waits for a pending result as long as the caller stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar, cast

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
    Unauthenticated,
    UnsupportedMediaType,
)
from synapse.core.requests import Pending, Stream
from synapse.core.service import Handler
from synapse.core.trace import traced
from synapse.dialects.dialect import (
    NO_PARAMS,
    CallRoute,
    Dialect,
    DocumentRoute,
    EventAnswer,
    Headers,
    LateAnswer,
    Route,
    ServiceRoute,
    StreamCall,
    WireAnswer,
    WireEvent,
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
    until_revoked,
)
from synapse.server.routing import METHODS_WITH_BODY, Endpoint, RouteTable
from synapse.server.sse import EventWriter
from synapse.server.websocket import ChannelClosed, ForEveryCaller, WebSocketChannel, WebSocketHandler

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_DIALECT: Final = "none"
"""The dialect of a request that was refused before its dialect was known."""
CALLER_LEFT: Final = "caller_left"
REFUSALS_A_MINUTE: Final = 60
LONGEST_LOGGED_PATH: Final = 200
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})

Admit = Callable[[Scope], Caller | Awaitable[Caller]]
"""Returns the caller of a request, or an awaitable of it; raises AccessDenied, RateLimited."""
Choose = Callable[[WireRequest, Sequence[Endpoint]], Endpoint]
"""Chooses the dialect of a request among several: on a shared path, or where there is no route."""
EncodeError = Callable[[SynapseError], WireAnswer]


class Exchange(NamedTuple):
    """A request and its result, for metrics: without its text, its query and its headers."""

    method: str
    path: str
    dialect: str
    seconds: float
    error: str = ""
    """The code of the error that answered it, or empty."""
    is_stream: bool = False


Observe = Callable[[Exchange], None]
"""Called with each request after its answer."""


def first_endpoint(_wire: WireRequest, endpoints: Sequence[Endpoint]) -> Endpoint:
    """Chooses the first dialect of the table."""
    return endpoints[0]


class HttpApp:
    """Serves dialects over one service. The first dialect encodes errors that belong to none.

    WebSockets are served on the Unix socket only, unless they are for every caller.
    """

    def __init__(  # noqa: PLR0913 - each is a part of what is served
        self,
        service: Handler,
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
        self._fallbacks = [Endpoint(dialect, _NO_ROUTE) for dialect in dialects]
        self._admit = admit
        self._choose = choose
        self._websockets = websockets or {}
        self.limits = limits or HttpLimits()
        self._observe = observe
        self._pending_results = PendingResults()
        self._refusals = _RefusalLog()
        self._closing: asyncio.Future[None] | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        if scope["type"] == "websocket":
            return self._serve_websocket(scope, receive, send)
        if self._observe is None:
            return self._serve_http(scope, receive, send, _Exchange())
        return self._serve_observed(scope, receive, send, self._observe)

    def close(self) -> None:
        """Ends all streams, so that their readers can reconnect elsewhere; new ones end at once."""
        closing = self._closed()
        if not closing.done():
            closing.set_result(None)
        self._pending_results.end()

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        """Encodes an error for a request that never arrived whole; `scope` is its head, if that arrived."""
        return self._default.encode_error(error) if scope is None else self._error_encoder(scope, _Exchange())(error)

    async def _serve_observed(self, scope: Scope, receive: Receive, send: Send, observe: Observe) -> None:
        exchange, begun = _Exchange(), perf_counter()
        try:
            await self._serve_http(scope, receive, send, exchange)
        finally:
            taken = perf_counter() - begun
            observe(
                Exchange(scope["method"], scope["path"], exchange.dialect, taken, exchange.error, exchange.is_stream)
            )

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send, exchange: _Exchange) -> None:
        last = False
        try:
            answer = await self._handle(scope, receive, send, exchange)
        except SynapseError as error:
            exchange.error = error.code
            self._refusals.record(scope, error, exchange.caller)
            answer = (exchange.encode_error or self._error_encoder(scope, exchange))(error)
            # The rest of such a body is not read, so the connection must end.
            last = isinstance(error, BodyTooLarge | BodyTooSlow)
        except ClientDisconnected:
            exchange.error = CALLER_LEFT
            return
        except Exception:
            # The outermost handler: the log gets the traceback of a defect, the caller gets no details.
            exchange.error = InternalFailure.code
            log.exception("request_failed", extra={"method": scope["method"], "path": scope["path"]})
            answer = (exchange.encode_error or self._error_encoder(scope, exchange))(InternalFailure())
        if answer is None:
            return
        send_whole = answer_whole(send)
        if send_whole is None or not send_whole(answer, last=last):
            await _send_answer(answer, send, last=last)

    def _error_encoder(self, scope: Scope, exchange: _Exchange) -> EncodeError:
        """Chooses how to encode an error before the body was read: by the path and the headers alone."""
        method = scope.get("method", "GET")  # the handshake of a WebSocket is always a GET
        wire = WireRequest(method, scope["path"], NO_PARAMS, scope["query_string"], scope["headers"])
        try:
            endpoints = self._table.match(method, scope.get("raw_path", b"")).endpoints
        except SynapseError:
            return self._choose(wire, self._fallbacks).dialect.encode_error
        endpoint = self._choose(wire, endpoints)
        exchange.use_dialect(endpoint.dialect)
        if isinstance(endpoint.route, CallRoute) and endpoint.route.refuse is not None:
            return partial(endpoint.route.refuse, wire)
        return endpoint.dialect.encode_error

    async def _handle(self, scope: Scope, receive: Receive, send: Send, exchange: _Exchange) -> WireAnswer | None:
        """Returns the answer, or None when it was a stream, which is sent already."""
        admitted = self._admit(scope)
        caller = exchange.caller = admitted if isinstance(admitted, Caller) else await admitted
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
        exchange.use_dialect(endpoint.dialect)
        route = endpoint.route
        if isinstance(route, CallRoute):
            return await self._answer_call(route, wire, caller, receive, send, exchange)
        if isinstance(route, Route):
            request = traced(route.decode(wire), wire.headers)
            return WireAnswer(200, route.encode(await self._service.handle(request, caller)))
        if isinstance(route, ServiceRoute):
            return await self._answer_by_service(route, wire, caller, receive, send, exchange)
        if isinstance(route, DocumentRoute):
            return route.answer(wire)
        items = await self._service.handle(route.decode(wire), caller)
        await self._stream(route.encode, items, receive, send, exchange)
        return None

    async def _answer_call(
        self, route: CallRoute, wire: WireRequest, caller: Caller, receive: Receive, send: Send, exchange: _Exchange
    ) -> WireAnswer | None:
        call = route.ask(wire)
        if isinstance(call, WireAnswer):
            exchange.error = call.error
            return call
        if call.encode_error is not None:
            exchange.encode_error = call.encode_error
        if wire.method == "HEAD" and isinstance(call, StreamCall):
            # The headers of a stream are known only when it has begun.
            raise MethodNotAllowed("HEAD", wire.path, ["GET", "POST"])
        if isinstance(call, StreamCall):
            updates = await self._service.handle(traced(call.request, wire.headers), caller)
            await self._stream(call.encode, updates, receive, send, exchange, call.headers)
            return None
        result: object = await self._service.handle(traced(call.request, wire.headers), caller)
        if isinstance(result, Pending):
            pending = cast("Pending[object]", result)
            result = pending.now
            if not pending.is_settled:
                result = await self._pending_results.wait(asyncio.ensure_future(pending.settled()), receive, send)
        if call.answer is not None:
            return call.answer(result)
        return WireAnswer(call.status, call.encode(result), call.headers, route.media_type)

    async def _answer_by_service(
        self, route: ServiceRoute, wire: WireRequest, caller: Caller, receive: Receive, send: Send, exchange: _Exchange
    ) -> WireAnswer | None:
        answer = await route.serve(wire, self._service, caller)
        if isinstance(answer, EventAnswer):
            exchange.encode_error = answer.encode_error
            await self._stream(lambda event: event, answer.events, receive, send, exchange)
            return None
        if isinstance(answer, LateAnswer):
            exchange.encode_error = answer.encode_error
            answer = await self._pending_results.wait(asyncio.ensure_future(answer.answer), receive, send)
        exchange.error = answer.error
        return answer

    async def _stream(
        self,
        encode: Callable[[T], WireEvent | None],
        items: Stream[T],
        receive: Receive,
        send: Send,
        exchange: _Exchange,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        exchange.is_stream = True
        encode_error = exchange.encode_error or self._default.encode_error
        writer = EventWriter(
            encode,
            encode_error,
            closing=self._closed(),
            until_revoked=partial(until_revoked, exchange.caller or Caller(), self.limits.recheck_seconds),
            keep_alive=self.limits.keep_alive_seconds,
            headers=headers,
        )
        await writer.run(items, receive, send)

    def _body_at_hand(self, scope: Scope, send: Send) -> bytes:
        """Returns the body if it has arrived whole, is JSON and not too large; else b"": `_read_body` decides."""
        take = body_at_hand(send)
        length, media_type = _body_headers(scope["headers"])
        if take is None or not 0 < length <= self.limits.max_body_bytes or media_type != b"application/json":
            return b""
        return take() or b""

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes:
        """Returns the whole body. Raises BodyTooLarge, BodyTooSlow, UnsupportedMediaType."""
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
            self._refusals.record(scope, error, None)
            await channel.fail(error, self._error_encoder(scope, _Exchange())(error))
        except Exception:
            # The outermost handler, as for requests.
            log.exception("websocket_failed", extra={"path": scope["path"]})
            failure = InternalFailure()
            await channel.fail(failure, self._error_encoder(scope, _Exchange())(failure))

    async def _converse(self, channel: WebSocketChannel, scope: Scope) -> None:
        caller = await self._admitted(scope)
        served = self._websockets.get(scope["path"])
        if served is None:
            raise RouteNotFound("no WebSocket is served there")
        if not isinstance(served, ForEveryCaller) and not caller.via_socket:
            raise AccessDenied("this is served on the agent's Unix socket only", hint="`synapse status` shows it")
        channel.query = WireRequest("GET", scope["path"], query_string=scope["query_string"]).query()
        channel.readmit = partial(self._admitted, scope)
        channel.subprotocols = tuple(scope.get("subprotocols", ()))
        handler = served.handler if isinstance(served, ForEveryCaller) else served
        await self._while_admitted(handler(channel, caller), caller)

    async def _while_admitted(self, conversation: Coroutine[Any, Any, None], caller: Caller) -> None:
        """Runs a conversation; cancels it and raises Unauthenticated when the caller loses its access meanwhile."""
        talking = asyncio.ensure_future(conversation)
        revoked = asyncio.ensure_future(until_revoked(caller, self.limits.recheck_seconds))
        try:
            await asyncio.wait((talking, revoked), return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                talking.result()
                return
        finally:
            for part in (talking, revoked):
                part.cancel()
            await asyncio.gather(talking, revoked, return_exceptions=True)
        raise Unauthenticated("the credentials of this connection are no longer valid")

    async def _admitted(self, scope: Scope) -> Caller:
        admitted = self._admit(scope)
        caller = admitted if isinstance(admitted, Caller) else await admitted
        _prove_connection(scope, caller)
        return caller

    def _closed(self) -> asyncio.Future[None]:
        # Created on first use: an application may be built before its event loop runs.
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
        return self._closing


def _prove_connection(scope: Scope, caller: Caller) -> None:
    """Counts the connection as proven once an authenticated caller has used it; see `server.acceptor`."""
    slot = scope.get("state", {}).get(SLOT)
    if slot is not None and not caller.is_anonymous:
        slot.prove()


def _not_found(wire: WireRequest) -> WireAnswer:
    raise RouteNotFound(f"nothing is served at {wire.path}")


_NO_ROUTE: Final = DocumentRoute(method="", path="", answer=_not_found)
"""The route of a dialect that only encodes an error."""


class _Exchange:
    """The state of one request: its caller, its dialect and encoder of errors once known, and its result."""

    __slots__ = ("caller", "dialect", "encode_error", "error", "is_stream")

    def __init__(self) -> None:
        self.caller: Caller | None = None
        self.encode_error: EncodeError | None = None
        self.dialect = NO_DIALECT
        self.error = ""
        self.is_stream = False

    def use_dialect(self, dialect: Dialect) -> None:
        self.encode_error = dialect.encode_error
        self.dialect = dialect.name


class _RefusalLog:
    """Logs refused requests that would have changed something, or that were not admitted.

    At most REFUSALS_A_MINUTE: a stranger must not flood the log.
    """

    def __init__(self) -> None:
        self._begun = float("-inf")
        self._logged = self._left_out = 0

    def record(self, scope: Scope, error: SynapseError, caller: Caller | None) -> None:
        """Logs a refused request, unless it only reads."""
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
        fields = {"method": method, "path": scope["path"][:LONGEST_LOGGED_PATH], "error": error.code}
        if caller is not None and (caller.agent_id or caller.name):
            fields["caller"] = caller.agent_id or caller.name
        if not isinstance(error, InvalidRequest):
            # The error of an invalid request may quote it, and logs must not hold the text of messages.
            fields["why"] = str(error)[:LONGEST_LOGGED_PATH]
        log.info("request_refused", extra=fields)


async def _send_answer(answer: WireAnswer, send: Send, *, last: bool) -> None:
    headers = [*answer.headers]
    if answer.status not in WITHOUT_BODY:
        headers += [(b"content-type", answer.media_type), (b"content-length", b"%d" % len(answer.body))]
    if last:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _whole_body(message: MutableMapping[str, Any], receive: Receive, limit: int) -> bytes:
    """Returns a body whose first piece is `message`. Raises BodyTooLarge, BodyTooSlow."""
    pieces: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            # The part that arrived may happen to be valid JSON, but it is not the whole request.
            raise BodyTooSlow("the caller left before the body was complete")
        pieces.append(message["body"])
        size += len(pieces[-1])
        if size > limit:
            raise BodyTooLarge(limit)
        if not message["more_body"]:
            return b"".join(pieces)
        message = await receive()


def _body_headers(headers: Headers) -> tuple[int, bytes]:
    """Returns Content-Length (0 if there is none) and Content-Type."""
    length, media_type = 0, b""
    for name, value in headers:
        if name == b"content-type":
            media_type = value
        elif name == b"content-length" and value.isdigit():
            length = int(value[:20])
    return length, media_type


def _check_media_type(value: bytes) -> None:
    """Raises UnsupportedMediaType unless a Content-Type names a kind of JSON."""
    media_type = value.partition(b";")[0].strip().lower()
    if media_type == b"application/json" or media_type.endswith(b"+json"):
        return
    shown = media_type[:80].decode("latin-1") or "nothing"
    hint = 'add -H "Content-Type: application/json"'
    raise UnsupportedMediaType(f"the body must be JSON, but its Content-Type says {shown}", hint=hint)
