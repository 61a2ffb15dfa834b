"""The extensions of A2A that a request names, and what comes of it for an agent that declares some.

    A2A-Extensions: uri, uri        X-A2A-Extensions in 0.3; the same words as metadata of gRPC

a required one is not named      ExtensionRequired
a declared one is named          the answer names it in the same header: it is in use
any other one is named           nothing

Reading a card requires nothing: it is where a client learns of them, and of the capabilities that an agent lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, NamedTuple

from synapse.core.capability import check_capable
from synapse.core.extension import Extensions, check_named
from synapse.core.requests import ToAgent
from synapse.dialects.dialect import Call, CallRoute, Dialect, Headers, Params, StreamCall, WireAnswer, WireRequest

CURRENT: Final = b"a2a-extensions"
FORMER: Final = b"x-a2a-extensions"

Asked = Call | StreamCall
Settle = Callable[[Asked, WireRequest], Asked]
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

    def settle(call: Asked, wire: WireRequest) -> Asked:
        named = named_in(wire.headers)
        check_named(extensions, named.uris)
        return _activated(call, named, extensions)

    return _settled(dialect, settle)


def limited(dialect: Dialect, lacks: Collection[str]) -> Dialect:
    """The dialect as an agent speaks it that lacks these capabilities: what needs one of them is refused."""
    if not lacks:
        return dialect

    def check(call: Asked, _wire: WireRequest) -> Asked:
        check_capable(lacks, call.request)
        return call

    return _settled(dialect, check)


def naming(extensions_of: ExtensionsOf) -> Callable[[Asked, str, Headers], Asked]:
    """How a dialect that is mounted for many agents asks one of them. What the agent requires is checked where it is
    known that the caller may know of it at all; what is told here is told only with what comes of the request.
    """

    def address(call: Asked, agent: str, headers: Headers) -> Asked:
        named = named_in(headers)
        addressed = call._replace(request=ToAgent(agent, call.request, named.uris))
        return _activated(addressed, named, extensions_of(agent)) if named.uris else addressed

    return address


def _activated(call: Asked, named: Named, extensions: Extensions) -> Asked:
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
    ask: Callable[[WireRequest], Asked | WireAnswer], settle: Settle
) -> Callable[[WireRequest], Asked | WireAnswer]:
    def settled(wire: WireRequest) -> Asked | WireAnswer:
        call = ask(wire)
        return call if isinstance(call, WireAnswer) else settle(call, wire)

    return settled


def _rpc_ask(ask: Callable[[Params, WireRequest], Asked], settle: Settle) -> Callable[[Params, WireRequest], Asked]:
    return lambda params, wire: settle(ask(params, wire), wire)
