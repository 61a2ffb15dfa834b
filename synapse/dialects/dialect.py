"""What every dialect is: a name, a table of routes, and a way to say errors. Values only; a transport does the moving.

    wire request ──decode──► core request ──service──► core fact ──encode──► wire answer

A path may have routes of several dialects; whoever serves them is given a function that chooses.

A dialect of one agent, served for many: the same questions below a path that names the agent.

/tasks/{id}  ─►  /agents/{agentId}/v1/tasks/{id}        GetTask  ─►  ForAgent(agentId, GetTask)

Documents that change rarely: readers may keep them for a while, and one that has not changed is not sent again.
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


class WireRequest(NamedTuple):
    """A request as it came in. Nothing of it is parsed but the path; header names are in lower case."""

    method: str
    path: str
    params: Mapping[str, str] = NO_PARAMS
    query_string: bytes = b""
    headers: Headers = ()
    body: bytes = b""

    def query(self) -> dict[str, str]:
        """Return the query's fields; of a repeated one the last counts.

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
        """Return a header's value, or an empty string."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""


class WireAnswer(NamedTuple):
    """A whole answer: a document of a dialect's own, or an error as the dialect says it."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = b"application/json"
    error: str = ""
    """The code of the error that it tells, where its status does not say that it is one."""


def error_headers(error: SynapseError) -> tuple[tuple[bytes, bytes], ...]:
    """What HTTP itself asks of an answer that refuses, whatever the dialect: RFC 9110 §15.5.2, §15.5.6, §10.2.3."""
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
    """One event of a stream; a reader resumes after its `id`. It may have no name."""

    id: str
    name: str
    data: bytes
    then: WireEvent | None = None
    """What follows at once, where one update is told in two events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[R]):
    """One request with one answer. `path` has `{name}` segments; `decode` raises InvalidRequest, nothing else."""

    method: str
    path: str
    decode: Callable[[WireRequest], Request[R]]
    encode: Callable[[R], bytes]
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRoute:
    """One request with a stream as the answer: of updates, in most cases. What is encoded as None is not told."""

    method: str
    path: str
    decode: Callable[[WireRequest], Request[Any]]
    encode: Callable[[Any], WireEvent | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRoute:
    """Something the dialect answers by itself, such as a card."""

    method: str
    path: str
    answer: Callable[[WireRequest], WireAnswer]


NOT_KEPT: Final = ((b"cache-control", b"no-store"),)
"""The headers of an answer that depends on who asks, so that no cache has it for anybody else."""


class Call(NamedTuple, Generic[R]):
    """A decoded request, and how to encode its result. The type checkers compare the two.

    A result that is pending is awaited, and then encoded.
    """

    request: Request[R | Pending[R]]
    encode: Callable[[R], bytes]
    encode_error: Callable[[SynapseError], WireAnswer] | None = None
    """How an error is told, when not as the dialect does elsewhere."""
    status: int = 200
    answer: Callable[[R], WireAnswer] | None = None
    """How the whole answer is made, where it is more than a body with a status."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """What its answer has beside the usual headers, unless it is an error."""


class StreamCall(NamedTuple):
    """A decoded request with a stream of updates as the answer; an update that is encoded as None is not told."""

    request: Request[TaskStream]
    encode: Callable[[Update], WireEvent | None]
    encode_error: Callable[[SynapseError], WireAnswer] | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """The same as in Call."""


AnyCall = Call[Any] | StreamCall
"""A call of any result: where it is made, its encoder was checked against its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRoute:
    """A path whose request is known only when it was read; `ask` may also answer by itself."""

    method: str
    path: str
    ask: Callable[[WireRequest], AnyCall | WireAnswer]
    media_type: bytes = b"application/json"
    refuse: Callable[[WireRequest, SynapseError], WireAnswer] | None = None
    """Words an error that comes before the body was read, when the dialect's `encode_error` does not know enough."""


AnyRoute = Route[Any] | StreamRoute | DocumentRoute | CallRoute

Params = bytes
"""The parameters of a JSON-RPC call as they came: JSON, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcTable:
    """A dialect's questions as the methods of JSON-RPC; `encode_fault` words the error object."""

    methods: Mapping[str, Callable[[Params, WireRequest], AnyCall]]
    encode_fault: Callable[[SynapseError], bytes]
    faults_as_events: frozenset[str] = frozenset()
    """Methods whose callers expect a stream even when there is only an error to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one world says it."""

    name: str
    routes: tuple[AnyRoute, ...]
    encode_error: Callable[[SynapseError], WireAnswer]
    rpc: RpcTable | None = None


AGENT: Final = "agentId"
"""The parameter of a path that names the agent."""
_LEGACY_PREFIX: Final = "/v1/"
"""Below it the standard dialects have each of their paths once more, for hosts; a mount names its place itself."""


Address = Callable[[AnyCall, str, Headers], AnyCall]
"""Makes of a question one to the agent that the path names; the headers may say more of how it is asked."""


def addressed(call: AnyCall, agent: str, _headers: Headers) -> AnyCall:
    """Return the call, for that agent. The result of its request stays the same."""
    request: ForAgent[Any] = ForAgent(agent, call.request)
    return call._replace(request=request)


def mounted(dialect: Dialect, prefix: str, address: Address = addressed) -> Dialect:
    """The dialect below `prefix`, which has `{agentId}` in it."""
    routes = tuple(
        _mounted_route(route, prefix, address) for route in dialect.routes if not route.path.startswith(_LEGACY_PREFIX)
    )
    return replace(dialect, routes=routes, rpc=_for_agents(dialect.rpc, address) if dialect.rpc is not None else None)


def _for_agents(rpc: RpcTable, address: Address) -> RpcTable:
    """The same methods, asked of the agent that the path names."""
    return replace(rpc, methods={name: _to_agent_rpc(ask, address) for name, ask in rpc.methods.items()})


def _mounted_route(route: AnyRoute, prefix: str, address: Address) -> AnyRoute:
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
    ask: Callable[[WireRequest], AnyCall | WireAnswer], address: Address
) -> Callable[[WireRequest], AnyCall | WireAnswer]:
    def ask_agent(wire: WireRequest) -> AnyCall | WireAnswer:
        call = ask(wire)
        return call if isinstance(call, WireAnswer) else address(call, wire.params[AGENT], wire.headers)

    return ask_agent


def _to_agent_rpc(
    ask: Callable[[Params, WireRequest], AnyCall], address: Address
) -> Callable[[Params, WireRequest], AnyCall]:
    return lambda params, wire: address(ask(params, wire), wire.params[AGENT], wire.headers)


class CachedDocument:
    """One JSON document. `vary` names the headers that choose among several documents of the same path.

    Only one that is `shared`, because everybody gets it without credentials, may be kept by caches between us and its
    reader; any other is kept by the reader alone. With a `max_age` of 0 the reader asks each time if it has changed.
    """

    def __init__(self, body: bytes, *, max_age: int, vary: str, shared: bool = False) -> None:
        self._etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = (
            (b"etag", self._etag.encode("ascii")),
            (b"cache-control", b"%s, %s" % (b"public" if shared else b"private", _keeping(max_age))),
            (b"vary", vary.encode("ascii")),
        )
        self._whole = WireAnswer(200, body, headers)
        self._unchanged = WireAnswer(304, b"", headers)

    def answer(self, wire: WireRequest) -> WireAnswer:
        """The document, or that it is the one which the reader has."""
        known = [tag.strip().removeprefix("W/") for tag in wire.header(b"if-none-match").split(",")]
        return self._unchanged if self._etag in known or "*" in known else self._whole


def _keeping(max_age: int) -> bytes:
    return b"max-age=%d" % max_age if max_age else b"no-cache"
