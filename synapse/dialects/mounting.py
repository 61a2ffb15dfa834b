"""A dialect of one agent, served for many: the same questions below a path that names the agent.

/tasks/{id}  ─►  /agents/{agentId}/v1/tasks/{id}        GetTask  ─►  ToAgent(agentId, GetTask)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, assert_never

from synapse.core.requests import Request, ToAgent
from synapse.dialects.dialect import (
    AnyRoute,
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    Headers,
    Params,
    Route,
    RpcTable,
    StreamCall,
    StreamRoute,
    WireAnswer,
    WireRequest,
)

AGENT: Final = "agentId"
"""The parameter of a path that names the agent."""
_LEGACY_PREFIX: Final = "/v1/"
"""Below it the standard dialects have each of their paths once more, for hosts; a mount names its place itself."""


Address = Callable[[Call | StreamCall, str, Headers], Call | StreamCall]
"""Makes of a question one to the agent that the path names; the headers may say more of how it is asked."""


def addressed(call: Call | StreamCall, agent: str, _headers: Headers) -> Call | StreamCall:
    """The question, of that agent."""
    return call._replace(request=ToAgent(agent, call.request))


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


def _to_agent_decoder(decode: Callable[[WireRequest], Request]) -> Callable[[WireRequest], Request]:
    return lambda wire: ToAgent(wire.params[AGENT], decode(wire))


def _to_agent(
    ask: Callable[[WireRequest], Call | StreamCall | WireAnswer], address: Address
) -> Callable[[WireRequest], Call | StreamCall | WireAnswer]:
    def ask_agent(wire: WireRequest) -> Call | StreamCall | WireAnswer:
        call = ask(wire)
        return call if isinstance(call, WireAnswer) else address(call, wire.params[AGENT], wire.headers)

    return ask_agent


def _to_agent_rpc(
    ask: Callable[[Params, WireRequest], Call | StreamCall], address: Address
) -> Callable[[Params, WireRequest], Call | StreamCall]:
    return lambda params, wire: address(ask(params, wire), wire.params[AGENT], wire.headers)
