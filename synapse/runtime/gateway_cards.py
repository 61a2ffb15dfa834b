"""The cards of a gateway's agents: for clients of A2A 1.0, of 0.3, of the supervisor contract, or one card for all.

no version          the supervisor's fields, those of 0.3 and those of 1.0, as far as the agent's switches allow
A2A-Version given   the pure card of that version
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from synapse.core.auth_methods import AuthMethods
from synapse.core.listed_agent import ListedAgent
from synapse.dialects import proto_json
from synapse.dialects.a2a_v0_3 import card as card_0_3
from synapse.dialects.a2a_v0_3 import security as security_0_3
from synapse.dialects.a2a_v1 import card as card_1_0
from synapse.dialects.a2a_v1 import security as security_1_0
from synapse.dialects.dialect import Headers, WireAnswer, WireRequest
from synapse.dialects.negotiation import asked_version
from synapse.dialects.supervisor import card as card_supervisor
from synapse.runtime.gateway_config import AgentConfig
from synapse.service.acceptance import MODES, shown_modes
from synapse.transports.documents import KeptDocument
from synapse.transports.gateway_gate import nothing_is_public
from synapse.transports.web_names import Addresses

Wire = dict[str, Any]

CARD_SECONDS: Final = 10
"""How long a card may be kept: agents come and go while the gateway stays."""
BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
_CREDENTIALS: Final = (b"authorization", b"x-api-key")
_VARY: Final = "A2A-Version, Authorization, X-API-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCards:
    """Makes cards. Their addresses begin with what the request was sent to, if that is one of the gateway's own."""

    addresses: Addresses
    methods: AuthMethods
    config_of: Callable[[str], AgentConfig]
    grpc_port: int = 0
    """Where gRPC is served, if it is."""
    default_agent: str = ""
    """Who is meant where a protocol names nobody: gRPC of 0.3 knows no tenant, and an origin is nobody's path."""
    is_public: Callable[[str], bool] = nothing_is_public
    """Tells which paths are served without credentials."""

    def answer(self, wire: WireRequest, agent: ListedAgent) -> WireAnswer:
        """The card that the request asks for, with an ETag; caches share only what needs no credentials."""
        body = self.body(agent, asked_version(wire)[:3], wire.headers)
        shared = self.is_public(wire.path) and not any(wire.header(name) for name in _CREDENTIALS)
        return KeptDocument(body, max_age=CARD_SECONDS, vary=_VARY, shared=shared).answer(wire)

    def extended_answer(self, wire: WireRequest, agent: ListedAgent) -> WireAnswer:
        """The card for who has credentials: its reader shows them each time, and gets it only if it has changed."""
        body = self.body(agent, asked_version(wire)[:3], wire.headers)
        return KeptDocument(body, max_age=0, vary=_VARY).answer(wire)

    def body(self, agent: ListedAgent, version: str, headers: Headers = ()) -> bytes:
        """A version that is not spoken gets the current one: a card is not versioned itself."""
        place = _Place(self.addresses.of(headers), agent.id, self.grpc_port)
        if version == card_0_3.VERSION:
            return proto_json.to_json(self._former(agent, place))
        current = self._current(agent, place)
        return proto_json.to_json(current if version else self._common(agent, place, current))

    def _common(self, agent: ListedAgent, place: _Place, current: Wire) -> Wire:
        switches = self.config_of(agent.id)
        common: Wire = {}
        if switches.advertise_supervisor:
            facts = card_supervisor.CardFacts(agent=agent, url=f"{place.base}/v1", extended=self._authenticates)
            common |= card_supervisor.agent_card(facts)
        former = self._former(agent, place) if switches.advertise_0_3 else {}
        schemes: Wire = former.get("securitySchemes", {})
        common |= {**former, **current}
        if schemes:
            # Each version has its own words for the same scheme, and passes over those of the other.
            common["securitySchemes"] = {
                name: {**schemes.get(name, {}), **scheme} for name, scheme in current["securitySchemes"].items()
            }
        return common

    def _current(self, agent: ListedAgent, place: _Place) -> Wire:
        card: Wire = card_1_0.agent_card(card_1_0.CardFacts(**self._about(agent), url=f"{place.base}/v1"))
        card["supportedInterfaces"] = self._interfaces(agent, place)
        card["capabilities"] = {**card["capabilities"], "extendedAgentCard": True}
        return {**card, **security_1_0.security_fields(self.methods)}

    def _former(self, agent: ListedAgent, place: _Place) -> Wire:
        card: Wire = card_0_3.agent_card(card_0_3.CardFacts(**self._about(agent), url=place.base))
        # 0.3 §5.5: "if true, the agent provides an extended card … to authenticated users". Without authentication
        # there are none.
        card["supportsAuthenticatedExtendedCard"] = self._authenticates
        if place.grpc_port and agent.id == self.default_agent and self.config_of(agent.id).advertise_grpc:
            # 0.3 §5.6.2 wants an absolute URL for every transport; 1.0.1 wants host and port for gRPC.
            card["additionalInterfaces"].append({"url": place.grpc_url, "transport": "GRPC"})
        return {**card, **security_0_3.security_fields(self.methods)}

    def _interfaces(self, agent: ListedAgent, place: _Place) -> list[Wire]:
        """Where the agent listens, the preferred first; gRPC last, because some clients stumble over it."""
        switches = self.config_of(agent.id)
        versions = [(card_1_0.VERSION, f"{place.base}/v1")]
        if switches.advertise_0_3:
            versions.append((card_0_3.VERSION, place.base))
        interfaces = [
            {"url": url, "protocolBinding": binding, "protocolVersion": version}
            for version, url in versions
            for binding in BINDINGS
        ]
        if place.grpc_port and switches.advertise_grpc:
            grpc = {"url": place.grpc_authority, "protocolBinding": "GRPC", "protocolVersion": card_1_0.VERSION}
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
class _Place:
    """Where one agent is reached by whoever asked for its card."""

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
