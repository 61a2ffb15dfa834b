"""What every dialect is: a name, a table of routes, and a way to say errors. Values only; a transport does the moving.

    wire request ──decode──► core request ──service──► core fact ──encode──► wire answer

A path may have routes of several dialects; whoever serves them is given a function that chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from synapse.core.access_errors import RateLimited
from synapse.core.errors import InvalidRequest, MethodNotAllowed, SynapseError, Unauthenticated
from synapse.core.events import Update
from synapse.core.requests import Request

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
class Route:
    """One question with one answer. `path` has `{name}` segments; `decode` raises InvalidRequest, nothing else."""

    method: str
    path: str
    decode: Callable[[WireRequest], Request]
    encode: Callable[[Any], bytes]
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRoute:
    """One question with a stream of updates as the answer; an update that is encoded as None is not told."""

    method: str
    path: str
    decode: Callable[[WireRequest], Request]
    encode: Callable[[Update], WireEvent | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRoute:
    """Something the dialect answers by itself, such as a card."""

    method: str
    path: str
    answer: Callable[[WireRequest], WireAnswer]


NOT_KEPT: Final = ((b"cache-control", b"no-store"),)
"""The headers of an answer that depends on who asks, so that no cache has it for anybody else."""


class Call(NamedTuple):
    """One question that was understood, and how what comes of it is told, which may depend on the question."""

    request: Request
    encode: Callable[[Any], bytes]
    encode_error: Callable[[SynapseError], WireAnswer] | None = None
    """How an error is told, when not as the dialect does elsewhere."""
    status: int = 200
    answer: Callable[[Any], WireAnswer] | None = None
    """How the whole answer is made, where it is more than a body with a status."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """What its answer has beside the usual headers, unless it is an error."""


class StreamCall(NamedTuple):
    """The same for a question that is answered with a stream; an update that is encoded as None is not told."""

    request: Request
    encode: Callable[[Update], WireEvent | None]
    encode_error: Callable[[SynapseError], WireAnswer] | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """The same as in Call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRoute:
    """A path whose question is known only when it was read; `ask` may also answer by itself."""

    method: str
    path: str
    ask: Callable[[WireRequest], Call | StreamCall | WireAnswer]
    media_type: bytes = b"application/json"
    refuse: Callable[[WireRequest, SynapseError], WireAnswer] | None = None
    """Words an error that comes before the body was read, when the dialect's `encode_error` does not know enough."""


AnyRoute = Route | StreamRoute | DocumentRoute | CallRoute

Params = bytes
"""The parameters of a JSON-RPC call as they came: JSON, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcTable:
    """A dialect's questions as the methods of JSON-RPC; `encode_fault` words the error object."""

    methods: Mapping[str, Callable[[Params, WireRequest], Call | StreamCall]]
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
