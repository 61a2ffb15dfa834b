"""The dialects of a gateway, their paths, and the choice of the dialect for each request.

    /agents/{agentId}/v1/…            supervisor, A2A 1.0 and 0.3, as REST
    POST /agents/{agentId}/v1         JSON-RPC of both versions of A2A; also at /agents/{agentId}, where 0.3 has it
    /agents, /tasks, /messages        the hub
    POST /mcp                         the tools for clients of MCP; see `gateway.mcp`
    /dashboard/…                      what the gateway's own page asks; its sessions: see `gateway.sessions`
    cards, the list of agents and registration; see `gateway.cards`

On the shared paths:

    the request names a version (A2A-Version)     that version
    none, with a message in the body              the dialect whose format the message has
    none, without a message                       the dialect that the task was created in, else supervisor
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final, cast

from synapse.core.errors import SynapseError
from synapse.core.events import Update
from synapse.core.push import PushConfig
from synapse.core.requests import GetAgent, ListedAgent
from synapse.core.task import Task
from synapse.dialects.a2a_v0_3.routes import a2a_v0_3_dialect
from synapse.dialects.a2a_v1.routes import a2a_v1_dialect
from synapse.dialects.dialect import (
    AGENT,
    AnyCall,
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    Params,
    StreamCall,
    WireAnswer,
    WireEvent,
    WireRequest,
    mounted,
)
from synapse.dialects.negotiation import ExtensionsOf, address_with_extensions, asked_dialect, spoken_dialect
from synapse.dialects.paths import A2A_V0_3, A2A_V1, DASHBOARD, DASHBOARD_PATHS, HUB, MCP, MCP_PATH, SUPERVISOR, TENANT
from synapse.dialects.supervisor.routes import supervisor_dialect
from synapse.gateway.cards import DISCOVERY, LIST_PATH, GatewayCards, discovery_dialect
from synapse.server.jsonrpc import JSONRPC, rpc_dialect
from synapse.server.routing import Endpoint

MOUNT: Final = f"/agents/{{{AGENT}}}/v1"
FORMER_MOUNT: Final = f"/agents/{{{AGENT}}}"
_EXTENDED_CARD: Final = {A2A_V1: "GetExtendedAgentCard", A2A_V0_3: "agent/getAuthenticatedExtendedCard"}
_BELOW: Final = frozenset({"v1", ".well-known"})
_VERSIONS: Final = {A2A_V1: "1.0", A2A_V0_3: "0.3"}


def gateway_dialects(
    cards: GatewayCards, *more: Dialect, extensions_of: ExtensionsOf = lambda _agent: ()
) -> list[Dialect]:
    """Returns all dialects of a gateway, with `more`. The first encodes errors that belong to none of them."""
    address = address_with_extensions(extensions_of)
    current = _with_cards(mounted(a2a_v1_dialect(), MOUNT, address), cards)
    former = _with_cards(mounted(a2a_v0_3_dialect(), MOUNT, address), cards)
    return [
        mounted(supervisor_dialect(), MOUNT),
        discovery_dialect(cards),
        current,
        former,
        *(rpc_dialect((current, former), asked_dialect, path) for path in (MOUNT, FORMER_MOUNT)),
        *more,
    ]


def _with_cards(dialect: Dialect, cards: GatewayCards) -> Dialect:
    """Returns the dialect with an RPC method that answers with the agent's extended card."""
    rpc = dialect.rpc
    if rpc is None:
        return dialect
    version = _VERSIONS[dialect.name]

    def extended_card(_params: Params, wire: WireRequest) -> Call[ListedAgent]:
        return Call(GetAgent(wire.params[AGENT]), partial(cards.body, version=version, headers=wire.headers))

    return replace(dialect, rpc=replace(rpc, methods={**rpc.methods, _EXTENDED_CARD[dialect.name]: extended_card}))


class GatewayChoice:
    """Chooses the dialect for each request among those of its path."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self._by_name: Mapping[str, Dialect] = {dialect.name: dialect for dialect in dialects}

    def __call__(self, wire: WireRequest, endpoints: Sequence[Endpoint]) -> Endpoint:
        """Returns the endpoint that answers, or one that answers with the error of an invalid version."""
        if endpoints[0].dialect.name == JSONRPC:
            return endpoints[0]  # the only one at its path, and it knows all versions of its protocol
        if owner := _owner(wire.path):
            return _of(owner, endpoints)
        is_unknown = not endpoints[0].route.path
        discovery = next((endpoint for endpoint in endpoints if endpoint.dialect.name == DISCOVERY), None)
        if discovery is not None and not is_unknown:
            return discovery
        try:
            demanded = asked_dialect(wire)
        except SynapseError as error:
            standard = self._by_name[A2A_V1]
            refusal = standard.encode_error(error)
            route = DocumentRoute(method=wire.method, path=endpoints[0].route.path, answer=lambda _: refusal)
            return Endpoint(standard, route)
        if is_unknown and not demanded:
            return _of(SUPERVISOR if _is_of_supervisor(wire.path) else HUB, endpoints)
        if not demanded and TENANT in endpoints[0].names:
            demanded = A2A_V1  # no other dialect has tenants
        spoken = demanded or (spoken_dialect(wire.body) if wire.body else "")
        return _of(spoken, endpoints) if spoken else _by_task(endpoints)


def _owner(path: str) -> str:
    """Returns the dialect that has the path for itself, so that errors there are its own too; empty if none has."""
    if path == MCP_PATH:
        return MCP
    return DASHBOARD if f"{path}/".startswith(DASHBOARD_PATHS) else ""


def _is_of_supervisor(path: str) -> bool:
    """Returns whether errors on a path without a route belong to the supervisor contract."""
    _, first, *rest = path.split("/")
    return first == ".well-known" or path == LIST_PATH or (first == "agents" and len(rest) > 1 and rest[1] in _BELOW)


def _of(name: str, endpoints: Sequence[Endpoint]) -> Endpoint:
    return next((endpoint for endpoint in endpoints if endpoint.dialect.name == name), endpoints[0])


def _by_task(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Returns an endpoint that answers in the dialect of the task, which is known only with the result."""
    first = endpoints[0]
    if not isinstance(first.route, CallRoute):
        return first
    others = {end.dialect.name: end for end in endpoints[1:] if isinstance(end.route, CallRoute)}
    return Endpoint(first.dialect, replace(first.route, ask=partial(_ask_by_task, first, others)))


def _dialect_of(result: object) -> str:
    """Returns the dialect that a task, or one or several push configurations, were created in; empty for others."""
    if isinstance(result, tuple):
        several = cast("tuple[object, ...]", result)
        result = several[0] if several else None
    return result.dialect if isinstance(result, Task | PushConfig) else ""


def _ask_renamed(endpoint: Endpoint, wire: WireRequest) -> AnyCall | WireAnswer:
    """Asks an endpoint of another dialect, which has its own names for the parameters of the path."""
    params = dict(zip(endpoint.names, wire.params.values(), strict=True))
    return cast("CallRoute", endpoint.route).ask(wire._replace(params=params))


def _ask_by_task(first: Endpoint, others: Mapping[str, Endpoint], wire: WireRequest) -> AnyCall | WireAnswer:
    call = cast("CallRoute", first.route).ask(wire)
    if isinstance(call, WireAnswer):
        return call
    # The dialect used last: a stream that fails reports the error in the dialect of its events.
    spoken = first

    @cache
    def call_in(dialect: str) -> AnyCall | WireAnswer:
        return _ask_renamed(others[dialect], wire) if dialect in others else call

    def speak(dialect: str) -> AnyCall | WireAnswer:
        nonlocal spoken
        spoken = others.get(dialect, first)
        return call_in(dialect)

    def encode_error(error: SynapseError) -> WireAnswer:
        return spoken.dialect.encode_error(error)

    if isinstance(call, StreamCall):

        def encode_update(update: Update) -> WireEvent | None:
            other = speak(update.task.dialect)
            return (other if isinstance(other, StreamCall) else call).encode(update)

        return call._replace(encode=encode_update, encode_error=encode_error)

    def encode(result: object) -> bytes:
        other = speak(_dialect_of(result))
        return (other if isinstance(other, Call) else call).encode(result)

    return call._replace(encode=encode, encode_error=encode_error)
