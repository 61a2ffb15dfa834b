"""What a dialect consists of: a name, routes, and an encoder for errors. The server does the I/O.

    wire request ──decode──► core request ──service──► core result ──encode──► wire answer

Several dialects may have routes for one path; the server is given a function that chooses among them.

`mounted` serves a dialect of one agent for many, below a path that names the agent:

    /tasks/{id}  ─►  /agents/{agentId}/v1/tasks/{id}        GetTask  ─►  ForAgent(agentId, GetTask)
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from synapse.core.caller import Caller
from synapse.core.errors import InvalidRequest, MethodNotAllowed, RateLimited, SynapseError, Unauthenticated
from synapse.core.events import Update
from synapse.core.requests import ForAgent, Pending, Request, Stream, TaskStream
from synapse.core.service import Handler

R = TypeVar("R")
T = TypeVar("T")

Headers = Iterable[tuple[bytes, bytes]]

NO_PARAMS: Final[Mapping[str, str]] = MappingProxyType({})
QUERY_FIELDS_LIMIT: Final = 100
NO_STORE: Final = ((b"cache-control", b"no-store"),)
"""The headers of an answer that depends on the caller, so that no cache gives it to another one."""
AGENT: Final = "agentId"
"""The path parameter that names the agent."""
_LEGACY_PREFIX: Final = "/v1/"
"""Hosts serve every path of the standard dialects below it too. A mount skips them: its own prefix ends in /v1."""


class WireRequest(NamedTuple):
    """A request as it arrived. Only its path is parsed; header names are in lower case."""

    method: str
    path: str
    params: Mapping[str, str] = NO_PARAMS
    query_string: bytes = b""
    headers: Headers = ()
    body: bytes = b""

    def query(self) -> dict[str, str]:
        """Returns the query's fields. The last one of a repeated field counts.

        Raises:
            InvalidRequest: it is not UTF-8, or has too many fields.
        """
        if not self.query_string:
            return {}
        try:
            text = self.query_string.decode("ascii")
            return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_LIMIT))
        except ValueError as error:
            raise InvalidRequest(
                "the query cannot be read", hint="escape it as UTF-8, with %XX for all that is not ASCII"
            ) from error

    def header(self, name: bytes) -> str:
        """Returns a header's value, or an empty string."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""


class WireAnswer(NamedTuple):
    """A complete answer: a document that the dialect serves itself, or an encoded error."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = b"application/json"
    error: str = ""
    """The code of the error in the body, for answers whose status does not show that they are errors."""


def entry_for(kind: type[SynapseError], table: Mapping[type[SynapseError], T]) -> T:
    """Returns the entry of the error class in a dialect's table of errors, or that of its nearest ancestor."""
    return next(table[ancestor] for ancestor in kind.__mro__ if ancestor in table)


def error_headers(error: SynapseError) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the headers that HTTP requires of an error in any dialect: RFC 9110 §15.5.2, §15.5.6, §10.2.3."""
    match error:
        case MethodNotAllowed():
            return ((b"allow", ", ".join(error.allowed).encode("ascii")),)
        case Unauthenticated():
            return ((b"www-authenticate", error.challenge.encode("latin-1")),)
        case RateLimited():
            return ((b"retry-after", b"%d" % error.retry_after),)
        case _:
            return ()


class WireEvent(NamedTuple):
    """One event of a stream. A reader resumes after its `id`. The name may be empty, and the id where none resumes."""

    id: str
    name: str
    data: bytes
    then: WireEvent | None = None
    """The next event, when one update takes several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[R]):
    """One request with one answer. `path` has `{name}` segments; `decode` raises InvalidRequest and no other error."""

    method: str
    path: str
    decode: Callable[[WireRequest], Request[R]]
    encode: Callable[[R], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRoute(Generic[R]):
    """One request whose answer is a stream, usually of updates. An item that is encoded as None is not sent."""

    method: str
    path: str
    decode: Callable[[WireRequest], Request[Stream[R]]]
    encode: Callable[[R], WireEvent | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRoute:
    """A document that the dialect answers without the service, such as a card."""

    method: str
    path: str
    answer: Callable[[WireRequest], WireAnswer]


class Call(NamedTuple, Generic[R]):
    """A decoded request, and how to encode its result. The type checkers compare the two.

    The server awaits a pending result before it encodes it.
    """

    request: Request[R | Pending[R]]
    encode: Callable[[R], bytes]
    encode_error: Callable[[SynapseError], WireAnswer] | None = None
    """Encodes an error, in place of the dialect's `encode_error`."""
    status: int = 200
    answer: Callable[[R], WireAnswer] | None = None
    """Makes the complete answer, when it is more than a body with a status."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Additional headers of an answer that is no error."""


class StreamCall(NamedTuple):
    """A decoded request whose answer is a stream of updates. An update that is encoded as None is not sent."""

    request: Request[TaskStream]
    encode: Callable[[Update], WireEvent | None]
    encode_error: Callable[[SynapseError], WireAnswer] | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """As in Call."""


AnyCall = Call[Any] | StreamCall
"""A call with any result. Type checkers compare encoder and request where the call is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRoute:
    """A path whose request depends on the body or the headers. `ask` may answer without the service."""

    method: str
    path: str
    ask: Callable[[WireRequest], AnyCall | WireAnswer]
    media_type: bytes = b"application/json"
    refuse: Callable[[WireRequest, SynapseError], WireAnswer] | None = None
    """Encodes an error from before the body was read, when `encode_error` of the dialect needs the request."""


class LateAnswer(NamedTuple):
    """An answer that takes a while. The server cancels it when the caller leaves or the server ends."""

    answer: Awaitable[WireAnswer]
    encode_error: Callable[[SynapseError], WireAnswer]
    """Encodes an error in its place, in particular that the server ends."""


class EventAnswer(NamedTuple):
    """An answer as a stream of events. The server closes it when the caller leaves or the server ends."""

    events: Stream[WireEvent]
    encode_error: Callable[[SynapseError], WireAnswer]
    """Encodes an error as the last event, in particular that the server ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRoute:
    """A path whose answer takes any number of requests to the service, each on behalf of the caller."""

    method: str
    path: str
    serve: Callable[[WireRequest, Handler, Caller], Awaitable[WireAnswer | LateAnswer | EventAnswer]]


AnyRoute = Route[Any] | StreamRoute[Any] | DocumentRoute | CallRoute | ServiceRoute

Params = bytes
"""The parameters of a JSON-RPC call as they arrived: JSON, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcTable:
    """A dialect's operations as JSON-RPC methods; `encode_fault` returns the error object."""

    methods: Mapping[str, Callable[[Params, WireRequest], AnyCall]]
    encode_fault: Callable[[SynapseError], bytes]
    faults_as_events: frozenset[str] = frozenset()
    """Methods whose callers expect a stream even for an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One wire format: its routes, its errors, and its JSON-RPC methods if it has any."""

    name: str
    routes: tuple[AnyRoute, ...]
    encode_error: Callable[[SynapseError], WireAnswer]
    rpc: RpcTable | None = None


ChangeCall = Callable[[AnyCall, WireRequest], AnyCall]
"""Returns a decoded call, checked or changed. The second argument is the request that it was decoded from."""


def with_calls(dialect: Dialect, change: ChangeCall) -> Dialect:
    """Returns the dialect with `change` applied to every decoded call of its CallRoutes and JSON-RPC methods."""

    def changed(route: CallRoute) -> CallRoute:
        def ask(wire: WireRequest) -> AnyCall | WireAnswer:
            call = route.ask(wire)
            return call if isinstance(call, WireAnswer) else change(call, wire)

        return replace(route, ask=ask)

    def changed_method(ask: Callable[[Params, WireRequest], AnyCall]) -> Callable[[Params, WireRequest], AnyCall]:
        return lambda params, wire: change(ask(params, wire), wire)

    routes = tuple(changed(route) if isinstance(route, CallRoute) else route for route in dialect.routes)
    rpc = dialect.rpc
    if rpc is not None:
        rpc = replace(rpc, methods={name: changed_method(ask) for name, ask in rpc.methods.items()})
    return replace(dialect, routes=routes, rpc=rpc)


def addressed(call: AnyCall, wire: WireRequest) -> AnyCall:
    """Returns the call, addressed to the agent that the path names."""
    request: ForAgent[Any] = ForAgent(wire.params[AGENT], call.request)
    return call._replace(request=request)


def mounted(dialect: Dialect, prefix: str, address: ChangeCall = addressed) -> Dialect:
    """Returns the dialect below `prefix`, which contains `{agentId}`. `address` addresses each call to that agent."""

    def below(route: AnyRoute) -> AnyRoute:
        path = prefix + route.path
        if not isinstance(route, Route | StreamRoute):
            return replace(route, path=path)

        def decode(wire: WireRequest) -> Request[Any]:
            return ForAgent(wire.params[AGENT], route.decode(wire))

        return replace(route, path=path, decode=decode)

    addressing = with_calls(dialect, address)
    routes = tuple(below(route) for route in addressing.routes if not route.path.startswith(_LEGACY_PREFIX))
    return replace(addressing, routes=routes)


class CachedDocument:
    """A JSON document that changes rarely. Readers may cache it, and get 304 while it has not changed.

    `vary` names the headers that choose among several documents of one path. Only a document that needs no credentials
    is `shared`: proxies may cache it too. With a `max_age` of 0 a reader revalidates the document every time.
    """

    def __init__(self, body: bytes, *, max_age: int, vary: str, shared: bool = False) -> None:
        self._etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        lifetime = b"max-age=%d" % max_age if max_age else b"no-cache"
        headers = (
            (b"etag", self._etag.encode("ascii")),
            (b"cache-control", b"%s, %s" % (b"public" if shared else b"private", lifetime)),
            (b"vary", vary.encode("ascii")),
        )
        self._whole = WireAnswer(200, body, headers)
        self._unchanged = WireAnswer(304, b"", headers)

    def answer(self, wire: WireRequest) -> WireAnswer:
        """Returns the document, or 304 if the reader has it already."""
        known = [tag.strip().removeprefix("W/") for tag in wire.header(b"if-none-match").split(",")]
        return self._unchanged if self._etag in known or "*" in known else self._whole
