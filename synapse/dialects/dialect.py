"""What a dialect consists of: a name, routes, and an encoder for errors. The server does the I/O.

    wire request ──decode──► core request ──service──► core result ──encode──► wire answer

Several dialects may have routes for one path; the server is given a function that chooses among them.

`mounted` serves a dialect of one agent for many, below a path that names the agent:

    /tasks/{id}  ─►  /agents/{agentId}/v1/tasks/{id}        GetTask  ─►  ForAgent(agentId, GetTask)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, assert_never
from urllib.parse import parse_qsl

from synapse.core.errors import InvalidRequest, MethodNotAllowed, RateLimited, SynapseError, Unauthenticated
from synapse.core.events import Update
from synapse.core.requests import ForAgent, Pending, Request, TaskStream

R = TypeVar("R")

Headers = Iterable[tuple[bytes, bytes]]

NO_PARAMS: Final[Mapping[str, str]] = MappingProxyType({})
QUERY_FIELDS_LIMIT: Final = 100
NOT_KEPT: Final = ((b"cache-control", b"no-store"),)
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
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRoute:
    """One request whose answer is a stream, usually of updates. An item that is encoded as None is not sent."""

    method: str
    path: str
    decode: Callable[[WireRequest], Request[Any]]
    encode: Callable[[Any], WireEvent | None]


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


AnyRoute = Route[Any] | StreamRoute | DocumentRoute | CallRoute

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


AddressCall = Callable[[AnyCall, str, Headers], AnyCall]
"""Addresses a call to the agent that the path names. The headers may name extensions."""


def addressed(call: AnyCall, agent: str, _headers: Headers) -> AnyCall:
    """Returns the call, addressed to the agent."""
    request: ForAgent[Any] = ForAgent(agent, call.request)
    return call._replace(request=request)


def mounted(dialect: Dialect, prefix: str, address: AddressCall = addressed) -> Dialect:
    """Returns the dialect below `prefix`, which contains `{agentId}`."""
    routes = tuple(
        _mounted_route(route, prefix, address) for route in dialect.routes if not route.path.startswith(_LEGACY_PREFIX)
    )
    rpc = dialect.rpc
    if rpc is not None:
        rpc = replace(rpc, methods={name: _to_agent_rpc(ask, address) for name, ask in rpc.methods.items()})
    return replace(dialect, routes=routes, rpc=rpc)


def _mounted_route(route: AnyRoute, prefix: str, address: AddressCall) -> AnyRoute:
    path = prefix + route.path
    match route:
        case Route() | StreamRoute():
            return replace(route, path=path, decode=_to_agent_decoder(route.decode))
        case CallRoute():
            return replace(route, path=path, ask=_to_agent(route.ask, address))
        case DocumentRoute():
            return replace(route, path=path)
        case _:
            assert_never(route)


def _to_agent_decoder(decode: Callable[[WireRequest], Request[R]]) -> Callable[[WireRequest], Request[R]]:
    return lambda wire: ForAgent(wire.params[AGENT], decode(wire))


def _to_agent(
    ask: Callable[[WireRequest], AnyCall | WireAnswer], address: AddressCall
) -> Callable[[WireRequest], AnyCall | WireAnswer]:
    def ask_agent(wire: WireRequest) -> AnyCall | WireAnswer:
        call = ask(wire)
        return call if isinstance(call, WireAnswer) else address(call, wire.params[AGENT], wire.headers)

    return ask_agent


def _to_agent_rpc(
    ask: Callable[[Params, WireRequest], AnyCall], address: AddressCall
) -> Callable[[Params, WireRequest], AnyCall]:
    return lambda params, wire: address(ask(params, wire), wire.params[AGENT], wire.headers)


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
