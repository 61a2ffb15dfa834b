"""The cards of a gateway's agents: for clients of A2A 1.0, of 0.3, of the supervisor contract, or one card for all.

no version          the supervisor's fields, those of 0.3 and those of 1.0, as far as the agent's switches allow
A2A-Version given   the pure card of that version
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from synapse.core.auth_methods import AuthMethods
from synapse.core.listed_agent import ListedAgent
from synapse.dialects import proto_json
from synapse.dialects.a2a_v0_3 import card as card_0_3
from synapse.dialects.a2a_v0_3 import security as security_0_3
from synapse.dialects.a2a_v1 import card as card_1_0
from synapse.dialects.a2a_v1 import security as security_1_0
from synapse.dialects.dialect import WireAnswer, WireRequest
from synapse.dialects.negotiation import asked_version
from synapse.dialects.supervisor import card as card_supervisor
from synapse.runtime.gateway_config import AgentConfig
from synapse.service.acceptance import MODES, shown_modes
from synapse.transports.documents import KeptDocument
from synapse.transports.gateway_gate import nothing_is_public

Wire = dict[str, Any]

CARD_SECONDS: Final = 10
"""How long a card may be kept: agents come and go while the gateway stays."""
BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
_CREDENTIALS: Final = (b"authorization", b"x-api-key")
_VARY: Final = "A2A-Version, Authorization, X-API-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCards:
    """Makes cards. `url` is the gateway's public address, `grpc_url` where gRPC is served, if it is."""

    url: str
    methods: AuthMethods
    config_of: Callable[[str], AgentConfig]
    grpc_url: str = ""
    default_agent: str = ""
    """Who is meant where a protocol names nobody: gRPC of 0.3 knows no tenant."""
    is_public: Callable[[str], bool] = nothing_is_public
    """Tells which paths are served without credentials."""

    def answer(self, wire: WireRequest, agent: ListedAgent) -> WireAnswer:
        """The card that the request asks for, with an ETag; caches share only what needs no credentials."""
        body = self.body(agent, asked_version(wire)[:3])
        shared = self.is_public(wire.path) and not any(wire.header(name) for name in _CREDENTIALS)
        return KeptDocument(body, max_age=CARD_SECONDS, vary=_VARY, shared=shared).answer(wire)

    def extended_answer(self, wire: WireRequest, agent: ListedAgent) -> WireAnswer:
        """The card for who has credentials: its reader shows them each time, and gets it only if it has changed."""
        return KeptDocument(self.body(agent, asked_version(wire)[:3]), max_age=0, vary=_VARY).answer(wire)

    def body(self, agent: ListedAgent, version: str) -> bytes:
        """A version that is not spoken gets the current one: a card is not versioned itself."""
        if version == card_0_3.VERSION:
            return proto_json.to_json(self._former(agent))
        current = self._current(agent)
        return proto_json.to_json(current if version else self._common(agent, current))

    def _common(self, agent: ListedAgent, current: Wire) -> Wire:
        switches = self.config_of(agent.id)
        common: Wire = {}
        if switches.advertise_supervisor:
            facts = card_supervisor.CardFacts(agent=agent, url=f"{self._base(agent)}/v1")
            common |= card_supervisor.agent_card(facts)
        former = self._former(agent) if switches.advertise_0_3 else {}
        schemes: Wire = former.get("securitySchemes", {})
        common |= {**former, **current}
        if schemes:
            # Each version has its own words for the same scheme, and passes over those of the other.
            common["securitySchemes"] = {
                name: {**schemes.get(name, {}), **scheme} for name, scheme in current["securitySchemes"].items()
            }
        return common

    def _current(self, agent: ListedAgent) -> Wire:
        card: Wire = card_1_0.agent_card(card_1_0.CardFacts(**self._about(agent), url=f"{self._base(agent)}/v1"))
        card["supportedInterfaces"] = self._interfaces(agent)
        card["capabilities"] = {**card["capabilities"], "extendedAgentCard": True}
        return {**card, **security_1_0.security_fields(self.methods)}

    def _former(self, agent: ListedAgent) -> Wire:
        card: Wire = card_0_3.agent_card(card_0_3.CardFacts(**self._about(agent), url=self._base(agent)))
        card["supportsAuthenticatedExtendedCard"] = True
        if self.grpc_url and agent.id == self.default_agent and self.config_of(agent.id).advertise_grpc:
            card["additionalInterfaces"].append({"url": self.grpc_url, "transport": "GRPC"})
        return {**card, **security_0_3.security_fields(self.methods)}

    def _interfaces(self, agent: ListedAgent) -> list[Wire]:
        """Where the agent listens, the preferred first; gRPC last, because some clients stumble over it."""
        base, switches = self._base(agent), self.config_of(agent.id)
        versions = [(card_1_0.VERSION, f"{base}/v1")]
        if switches.advertise_0_3:
            versions.append((card_0_3.VERSION, base))
        interfaces = [
            {"url": url, "protocolBinding": binding, "protocolVersion": version}
            for version, url in versions
            for binding in BINDINGS
        ]
        if self.grpc_url and switches.advertise_grpc:
            grpc = {"url": self.grpc_url, "protocolBinding": "GRPC", "protocolVersion": card_1_0.VERSION}
            interfaces.append({**grpc, "tenant": agent.id})
        return interfaces

    def _base(self, agent: ListedAgent) -> str:
        return f"{self.url}/agents/{agent.id}"

    def _about(self, agent: ListedAgent) -> Wire:
        return {
            "name": agent.name,
            "description": agent.description,
            "version": agent.version,
            "input_modes": shown_modes(agent.input_modes),
            "output_modes": agent.output_modes or MODES,
            "extensions": agent.extensions,
        }
