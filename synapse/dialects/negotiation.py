"""What a request says about itself before it is read: the version of A2A that it speaks.

A2A-Version given                                    it decides alone; one that is not spoken here is refused
none, `content` is a text                            supervisor, which alone has that
none, `content` is a list, or `kind`, or `user`      A2A 0.3
none, `parts` with ROLE_…                            A2A 1.0; by the letter it were 0.3, but it can mean nothing else
none, no message in the body                         not decided here

The extensions of A2A that a request names, and what comes of it for an agent that declares some.

    A2A-Extensions: uri, uri        X-A2A-Extensions in 0.3; the same words as metadata of gRPC

a required one is not named      ExtensionRequired
a declared one is named          the answer names it in the same header: it is in use
any other one is named           nothing

Reading a card requires nothing: it is where a client learns of them, and of the capabilities that an agent lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from synapse.core.errors import VersionNotSupported
from synapse.core.extension import Extensions, check_named
from synapse.core.requests import ForAgent, check_capable
from synapse.dialects.dialect import AnyCall, CallRoute, Dialect, Headers, Params, WireAnswer, WireRequest

A2A_1_0: Final = "a2a_v1"
A2A_0_3: Final = "a2a_v0_3"
SUPERVISOR: Final = "supervisor"

DIALECTS: Final[Mapping[str, str]] = {"1.0": A2A_1_0, "0.3": A2A_0_3}
"""The dialect of each version, newest first."""

_VERSION: Final = b"a2a-version"


def asked_dialect(wire: WireRequest) -> str:
    """The dialect that the request demands by its version, or nothing when it names none.

    Raises VersionNotSupported.
    """
    version = asked_version(wire)
    if not version:
        return ""
    # 1.0 §3.6.1: major and minor count, a patch does not.
    dialect = DIALECTS.get(version) or DIALECTS.get(".".join(version.split(".")[:2]))
    if dialect is None:
        raise VersionNotSupported(version[:40], DIALECTS)
    return dialect


def asked_version(wire: WireRequest) -> str:
    """The version in the header, else in the query; empty when there is none."""
    for name, value in wire.headers:
        if name == _VERSION:
            return value.strip().decode("latin-1")
    if wire.query_string and _VERSION in wire.query_string.lower():
        return next((value for name, value in wire.query().items() if name.lower() == _VERSION.decode()), "").strip()
    return ""


def spoken_dialect(body: bytes) -> str:
    """The dialect whose message this body holds, or nothing when it holds none that can be told."""
    try:
        peeked = _PEEK.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    message = peeked.message or peeked.request
    if message is None:
        # A webhook is configured so by REST of 0.3 alone, whose clients name no version.
        return A2A_0_3 if isinstance(peeked.config, dict) else ""
    if isinstance(message.content, str):
        return SUPERVISOR
    if isinstance(message.content, list) or message.role in ("user", "agent"):
        return A2A_0_3
    parts: list[Any] = message.parts if isinstance(message.parts, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  # any JSON
    if any(isinstance(part, dict) and "kind" in part for part in parts):
        return A2A_0_3
    return A2A_1_0 if parts else ""


class _PeekedMessage(msgspec.Struct):
    role: Any = None
    content: Any = None
    parts: Any = None


class _Peeked(msgspec.Struct):
    message: _PeekedMessage | None = None
    request: _PeekedMessage | None = None
    config: Any = None


_PEEK: Final = msgspec.json.Decoder(_Peeked)


CURRENT: Final = b"a2a-extensions"
FORMER: Final = b"x-a2a-extensions"

RequestedExtensions = AnyCall
Settle = Callable[[RequestedExtensions, WireRequest], RequestedExtensions]
ExtensionsOf = Callable[[str], Extensions]
"""What the agent of that name declares."""


class Named(NamedTuple):
    """What a request names, and in which header."""

    header: bytes
    uris: frozenset[str]


_NOTHING: Final = Named(CURRENT, frozenset())


def named_in(headers: Headers) -> Named:
    """The extensions that a request names; a header may come more than once."""
    found = [(name, value) for name, value in headers if name in (CURRENT, FORMER)]
    if not found:
        return _NOTHING
    uris = (uri.strip() for _, value in found for uri in value.decode("latin-1").split(","))
    return Named(found[0][0], frozenset(uri for uri in uris if uri))


def extended(dialect: Dialect, extensions: Extensions) -> Dialect:
    """The dialect as an agent speaks it that declares these extensions; one that declares none speaks it as it is."""
    if not extensions:
        return dialect

    def settle(call: RequestedExtensions, wire: WireRequest) -> RequestedExtensions:
        named = named_in(wire.headers)
        check_named(extensions, named.uris)
        return _activated(call, named, extensions)

    return _settled(dialect, settle)


def limited(dialect: Dialect, lacks: Collection[str]) -> Dialect:
    """The dialect as an agent speaks it that lacks these capabilities: what needs one of them is refused."""
    if not lacks:
        return dialect

    def check(call: RequestedExtensions, _wire: WireRequest) -> RequestedExtensions:
        check_capable(lacks, call.request)
        return call

    return _settled(dialect, check)


def naming(extensions_of: ExtensionsOf) -> Callable[[RequestedExtensions, str, Headers], RequestedExtensions]:
    """How a dialect that is mounted for many agents asks one of them. What the agent requires is checked where it is
    known that the caller may know of it at all; what is told here is told only with what comes of the request.
    """

    def address(call: RequestedExtensions, agent: str, headers: Headers) -> RequestedExtensions:
        named = named_in(headers)
        request: ForAgent[Any] = ForAgent(agent, call.request, named.uris)
        addressed = call._replace(request=request)
        return _activated(addressed, named, extensions_of(agent)) if named.uris else addressed

    return address


def _activated(call: RequestedExtensions, named: Named, extensions: Extensions) -> RequestedExtensions:
    activated = [one.uri for one in extensions if one.uri in named.uris]
    if not activated:
        return call
    return call._replace(headers=(*call.headers, (named.header, ", ".join(activated).encode("ascii"))))


def _settled(dialect: Dialect, settle: Settle) -> Dialect:
    """The dialect, each of whose questions goes through `settle` once it is understood."""
    routes = tuple(
        replace(route, ask=_route_ask(route.ask, settle)) if isinstance(route, CallRoute) else route
        for route in dialect.routes
    )
    rpc = dialect.rpc
    if rpc is not None:
        rpc = replace(rpc, methods={name: _rpc_ask(ask, settle) for name, ask in rpc.methods.items()})
    return replace(dialect, routes=routes, rpc=rpc)


def _route_ask(
    ask: Callable[[WireRequest], RequestedExtensions | WireAnswer], settle: Settle
) -> Callable[[WireRequest], RequestedExtensions | WireAnswer]:
    def settled(wire: WireRequest) -> RequestedExtensions | WireAnswer:
        call = ask(wire)
        return call if isinstance(call, WireAnswer) else settle(call, wire)

    return settled


def _rpc_ask(
    ask: Callable[[Params, WireRequest], RequestedExtensions], settle: Settle
) -> Callable[[Params, WireRequest], RequestedExtensions]:
    return lambda params, wire: settle(ask(params, wire), wire)
