"""Discovery at a gateway: the agents' cards, the list of agents, and the registration of external agents.

A card depends on the version that the request names:

    no version          the fields of the supervisor contract, of 0.3 and of 1.0, as far as the agent's settings allow
    A2A-Version given   the card of that version alone
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from synapse.auth.gateway import nothing_is_public
from synapse.core.agent import READY, AgentEntry
from synapse.core.caller import AuthMethods
from synapse.core.errors import InvalidRequest, MalformedJson, RouteNotFound, SynapseError
from synapse.core.requests import ExternalAgent, GetAgent, ListAgents, ListedAgent, RegisterAgent, RemoveAgent
from synapse.dialects import proto_json
from synapse.dialects.a2a_v0_3 import encode as encode_0_3
from synapse.dialects.a2a_v0_3.routes import encode_error as encode_error_0_3
from synapse.dialects.a2a_v1 import encode as encode_1_0
from synapse.dialects.a2a_v1.routes import encode_error as encode_error_1_0
from synapse.dialects.dialect import (
    AGENT,
    NO_STORE,
    CachedDocument,
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    Headers,
    WireAnswer,
    WireRequest,
)
from synapse.dialects.negotiation import asked_dialect, asked_version
from synapse.dialects.paths import A2A_V0_3, A2A_V1, TENANT
from synapse.dialects.supervisor import encode as encode_supervisor
from synapse.dialects.supervisor.routes import encode_error
from synapse.gateway.config import AgentConfig
from synapse.server.middleware import Addresses
from synapse.tasks.admission import MODES, shown_modes

Wire = dict[str, Any]

CARD_SECONDS: Final = 10
"""How long clients may cache a card: agents come and go while the gateway stays."""
BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
DISCOVERY: Final = "discovery"
LIST_PATH: Final = "/agents/list.json"
REGISTERED_CARD: Final = f"/.well-known/agent-cards/{{{AGENT}}}"
CARD_PATHS: Final = (
    f"/agents/{{{AGENT}}}/.well-known/agent-card.json",
    f"/agents/{{{AGENT}}}/v1/.well-known/agent-card.json",
    REGISTERED_CARD,
)
EXTENDED_CARD_PATHS: Final = (
    f"/agents/{{{AGENT}}}/v1/card",
    f"/agents/{{{AGENT}}}/v1/extendedAgentCard",
    f"/agents/{{{AGENT}}}/v1/{{{TENANT}}}/extendedAgentCard",
)
ORIGIN_CARD: Final = "/.well-known/agent-card.json"
"""The path for clients that know only the gateway's address."""
_SUFFIX: Final = ".json"
_CREDENTIALS: Final = (b"authorization", b"x-api-key")
_VARY: Final = "A2A-Version, Authorization, X-API-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCards:
    """Builds agent cards. Their URLs begin with the address of the request, if that is one of the gateway's own."""

    addresses: Addresses
    methods: AuthMethods
    config_of: Callable[[str], AgentConfig]
    grpc_port: int = 0
    """The port of the gRPC server, or 0."""
    default_agent: str = ""
    """The agent for requests that name none: gRPC of 0.3 has no tenant, and the card at the origin no agent."""
    is_public: Callable[[str], bool] = nothing_is_public
    """Decides which paths need no credentials."""

    def answer(self, wire: WireRequest, agent: ListedAgent) -> WireAnswer:
        """Answers with the card that the request asks for, and an ETag; shared caches get only public cards."""
        body = self.body(agent, asked_version(wire)[:3], wire.headers)
        shared = self.is_public(wire.path) and not any(wire.header(name) for name in _CREDENTIALS)
        return CachedDocument(body, max_age=CARD_SECONDS, vary=_VARY, shared=shared).answer(wire)

    def extended_answer(self, wire: WireRequest, agent: ListedAgent) -> WireAnswer:
        """Answers with the card for authenticated callers, who have to revalidate a cached one."""
        body = self.body(agent, asked_version(wire)[:3], wire.headers)
        return CachedDocument(body, max_age=0, vary=_VARY).answer(wire)

    def body(self, agent: ListedAgent, version: str, headers: Headers = ()) -> bytes:
        """Returns the card as JSON; an unknown version gets the current card, because cards are not versioned."""
        urls = _AgentUrls(self.addresses.of(headers), agent.id, self.grpc_port)
        if version == encode_0_3.VERSION:
            return proto_json.to_json(self._former(agent, urls))
        current = self._current(agent, urls)
        return proto_json.to_json(current if version else self._common(agent, urls, current))

    def _common(self, agent: ListedAgent, urls: _AgentUrls, current: Wire) -> Wire:
        switches = self.config_of(agent.id)
        common: Wire = {}
        if switches.advertise_supervisor:
            facts = encode_supervisor.CardFacts(agent=agent, url=f"{urls.base}/v1", extended=self._authenticates)
            common |= encode_supervisor.agent_card(facts)
        former = self._former(agent, urls) if switches.advertise_0_3 else {}
        schemes: Wire = former.get("securitySchemes", {})
        common |= {**former, **current}
        if schemes:
            # Each version has its own fields for a scheme, and ignores those of the other.
            common["securitySchemes"] = {
                name: {**schemes.get(name, {}), **scheme} for name, scheme in current["securitySchemes"].items()
            }
        return common

    def _current(self, agent: ListedAgent, urls: _AgentUrls) -> Wire:
        card: Wire = encode_1_0.agent_card(encode_1_0.CardFacts(**self._about(agent), url=f"{urls.base}/v1"))
        card["supportedInterfaces"] = self._interfaces(agent, urls)
        card["capabilities"] = {**card["capabilities"], "extendedAgentCard": True}
        return {**card, **encode_1_0.security_fields(self.methods)}

    def _former(self, agent: ListedAgent, urls: _AgentUrls) -> Wire:
        card: Wire = encode_0_3.agent_card(encode_0_3.CardFacts(**self._about(agent), url=urls.base))
        # 0.3 §5.5: "if true, the agent provides an extended card … to authenticated users". Without authentication
        # there are none.
        card["supportsAuthenticatedExtendedCard"] = self._authenticates
        if urls.grpc_port and agent.id == self.default_agent and self.config_of(agent.id).advertise_grpc:
            # 0.3 §5.6.2 wants an absolute URL for every transport; 1.0.1 wants host and port for gRPC.
            card["additionalInterfaces"].append({"url": urls.grpc_url, "transport": "GRPC"})
        return {**card, **encode_0_3.security_fields(self.methods)}

    def _interfaces(self, agent: ListedAgent, urls: _AgentUrls) -> list[Wire]:
        """Returns the agent's interfaces, the preferred first; gRPC last, because some clients fail on it."""
        switches = self.config_of(agent.id)
        versions = [(encode_1_0.VERSION, f"{urls.base}/v1")]
        if switches.advertise_0_3:
            versions.append((encode_0_3.VERSION, urls.base))
        interfaces = [
            {"url": url, "protocolBinding": binding, "protocolVersion": version}
            for version, url in versions
            for binding in BINDINGS
        ]
        if urls.grpc_port and switches.advertise_grpc:
            grpc = {"url": urls.grpc_authority, "protocolBinding": "GRPC", "protocolVersion": encode_1_0.VERSION}
            interfaces.append({**grpc, "tenant": agent.id})
        return interfaces

    @property
    def _authenticates(self) -> bool:
        return self.methods != AuthMethods()

    def _about(self, agent: ListedAgent) -> Wire:
        return {
            "name": agent.name,
            "description": agent.description,
            "version": agent.version,
            "input_modes": shown_modes(agent.input_modes),
            "output_modes": agent.output_modes or MODES,
            "extensions": agent.extensions,
            "capabilities": agent.capabilities,
        }


@dataclass(frozen=True, slots=True)
class _AgentUrls:
    """The URLs of one agent, for the client that asked for its card."""

    url: str
    """The gateway's address."""
    agent: str
    grpc_port: int

    @property
    def base(self) -> str:
        return f"{self.url}/agents/{self.agent}"

    @property
    def grpc_authority(self) -> str:
        host = urlsplit(self.url).hostname or ""
        return f"[{host}]:{self.grpc_port}" if ":" in host else f"{host}:{self.grpc_port}"

    @property
    def grpc_url(self) -> str:
        return f"{urlsplit(self.url).scheme}://{self.grpc_authority}"


def is_discovery(path: str) -> bool:
    """Returns whether a path only lists agents and may be public; extended cards never are."""
    return path == LIST_PATH or path.startswith("/.well-known/agent-cards/") or path.endswith(ORIGIN_CARD)


def discovery_dialect(cards: GatewayCards) -> Dialect:
    """Returns the dialect of the list, the cards, and the registration."""

    def card_of(agent: str, wire: WireRequest) -> Call[ListedAgent]:
        answer = partial(cards.answer, wire)
        return Call(GetAgent(agent), partial(cards.body, version=""), _error_encoder(wire), answer=answer)

    def card(wire: WireRequest) -> Call[ListedAgent]:
        return card_of(wire.params[AGENT].removesuffix(_SUFFIX), wire)

    def origin_card(wire: WireRequest) -> Call[ListedAgent] | WireAnswer:
        if cards.default_agent:
            return card_of(cards.default_agent, wire)
        hint = "set `default_agent` in gateway.toml; the card of an agent is at /agents/NAME" + ORIGIN_CARD
        error = RouteNotFound("this gateway has no default agent, so it has no card here", hint=hint)
        return _refuse(wire, error)._replace(error=error.code)

    def extended_card(wire: WireRequest) -> Call[ListedAgent] | WireAnswer:
        try:
            asked_dialect(wire)
        except SynapseError as error:
            # The public card has no version; reading the extended one is an operation, which has one (1.0 §3.6.2).
            return _refuse(wire, error)._replace(error=error.code)
        return card(wire)._replace(answer=partial(cards.extended_answer, wire))

    routes = (
        CallRoute(method="GET", path=LIST_PATH, ask=_list),
        CallRoute(method="GET", path=ORIGIN_CARD, ask=origin_card, refuse=_refuse),
        *(CallRoute(method="GET", path=path, ask=card, refuse=_refuse) for path in CARD_PATHS),
        *(CallRoute(method="GET", path=path, ask=extended_card, refuse=_refuse) for path in EXTENDED_CARD_PATHS),
        CallRoute(method="POST", path="/agents", ask=_register),
        CallRoute(method="DELETE", path=f"/agents/{{{AGENT}}}", ask=_remove),
    )
    return Dialect(name=DISCOVERY, routes=routes, encode_error=encode_error)


def _error_encoder(wire: WireRequest) -> Callable[[SynapseError], WireAnswer]:
    """Returns the error encoder of the version that the request names, else that of the supervisor contract."""
    try:
        return _ERROR_ENCODERS[asked_dialect(wire)]
    except SynapseError:
        return encode_error_1_0


def _refuse(wire: WireRequest, error: SynapseError) -> WireAnswer:
    return _error_encoder(wire)(error)


_ERROR_ENCODERS: Final[Mapping[str, Callable[[SynapseError], WireAnswer]]] = {
    "": encode_error,
    A2A_V1: encode_error_1_0,
    A2A_V0_3: encode_error_0_3,
}


def status_dialect(me: AgentEntry) -> Dialect:
    """Returns the dialect that `synapse list` asks. It names no agents, because some callers may see only some."""

    def status(_wire: WireRequest) -> WireAnswer:
        fields = {"state": READY, "status": "IDLE", "agent_id": me.agent_id, "url": me.endpoint}
        return WireAnswer(200, proto_json.to_json(fields))

    routes = (DocumentRoute(method="GET", path="/status", answer=status),)
    return Dialect(name="gateway_status", routes=routes, encode_error=encode_error)


class _Registration(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    id: str = ""


def _list(_wire: WireRequest) -> Call[tuple[ListedAgent, ...]]:
    def encode(agents: tuple[ListedAgent, ...]) -> bytes:
        return proto_json.to_json(encode_supervisor.agent_list(agents))

    return Call(ListAgents(), encode, headers=NO_STORE)


def _register(wire: WireRequest) -> Call[ListedAgent]:
    try:
        given = msgspec.json.decode(wire.body, type=_Registration)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error), hint='send {"url": "https://…", "id": "a name, or leave it out"}') from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedJson("the body is not JSON") from error

    def encode(agent: ListedAgent) -> bytes:
        listed: list[Wire] = encode_supervisor.agent_list([agent])["agents"]
        return proto_json.to_json(listed[0])

    return Call(RegisterAgent(url=given.url, agent=given.id), encode, status=201)


def _remove(wire: WireRequest) -> Call[ExternalAgent]:
    def encode(_removed: ExternalAgent) -> bytes:
        return b""

    return Call(RemoveAgent(wire.params[AGENT]), encode, status=204)
