"""The cards of a gateway's agents: for clients of A2A 1.0, of 0.3, of the supervisor contract, or one card for all.

no version          the supervisor's fields, those of 0.3 and those of 1.0, as far as the agent's switches allow
A2A-Version given   the pure card of that version

Finding agents at a gateway: the directory, the cards, and registering agents from elsewhere.
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
from synapse.dialects.a2a_v0_3 import encode as card_0_3
from synapse.dialects.a2a_v0_3 import encode as security_0_3
from synapse.dialects.a2a_v0_3 import routes as errors_0_3
from synapse.dialects.a2a_v1 import encode as card_1_0
from synapse.dialects.a2a_v1 import encode as security_1_0
from synapse.dialects.a2a_v1 import routes as errors_1_0
from synapse.dialects.dialect import (
    AGENT,
    NOT_KEPT,
    CachedDocument,
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    Headers,
    WireAnswer,
    WireRequest,
)
from synapse.dialects.negotiation import A2A_0_3, A2A_1_0, asked_dialect, asked_version
from synapse.dialects.paths import TENANT
from synapse.dialects.supervisor import encode as card_supervisor
from synapse.dialects.supervisor.encode import agent_list
from synapse.dialects.supervisor.routes import encode_error
from synapse.gateway.config import AgentConfig
from synapse.server.middleware import Addresses
from synapse.tasks.admission import MODES, shown_modes

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
        return CachedDocument(body, max_age=CARD_SECONDS, vary=_VARY, shared=shared).answer(wire)

    def extended_answer(self, wire: WireRequest, agent: ListedAgent) -> WireAnswer:
        """The card for who has credentials: its reader shows them each time, and gets it only if it has changed."""
        body = self.body(agent, asked_version(wire)[:3], wire.headers)
        return CachedDocument(body, max_age=0, vary=_VARY).answer(wire)

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
"""Where clients look that know nothing but the gateway's address."""
_SUFFIX: Final = ".json"


def is_discovery(path: str) -> bool:
    """Whether a path only tells who is here, which may be public; the extended cards never are."""
    return path == LIST_PATH or path.startswith("/.well-known/agent-cards/") or path.endswith(ORIGIN_CARD)


def discovery_dialect(cards: GatewayCards) -> Dialect:
    """The paths that are about agents and not about what they do."""

    def card_of(agent: str, wire: WireRequest) -> Call[ListedAgent]:
        answer = partial(cards.answer, wire)
        return Call(GetAgent(agent), partial(cards.body, version=""), _words_for(wire), answer=answer)

    def card(wire: WireRequest) -> Call[ListedAgent]:
        return card_of(wire.params[AGENT].removesuffix(_SUFFIX), wire)

    def origin_card(wire: WireRequest) -> Call[ListedAgent] | WireAnswer:
        if cards.default_agent:
            return card_of(cards.default_agent, wire)
        hint = "`default_agent` of gateway.toml names one; the others have theirs at /agents/NAME" + ORIGIN_CARD
        error = RouteNotFound("this gateway has no default agent, whose card would be here", hint=hint)
        return _refuse(wire, error)._replace(error=error.code)

    def extended_card(wire: WireRequest) -> Call[ListedAgent] | WireAnswer:
        try:
            asked_dialect(wire)
        except SynapseError as error:
            # The public card has no version; reading the extended one is an operation, which has (1.0 §3.6.2).
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


def _words_for(wire: WireRequest) -> Callable[[SynapseError], WireAnswer]:
    """Choose how an error about a card is told: in the version that the request names, else as the supervisor does."""
    try:
        return _WORDS[asked_dialect(wire)]
    except SynapseError:
        return errors_1_0.encode_error


def _refuse(wire: WireRequest, error: SynapseError) -> WireAnswer:
    return _words_for(wire)(error)


_WORDS: Final[Mapping[str, Callable[[SynapseError], WireAnswer]]] = {
    "": encode_error,
    A2A_1_0: errors_1_0.encode_error,
    A2A_0_3: errors_0_3.encode_error,
}


def status_dialect(me: AgentEntry) -> Dialect:
    """What `synapse list` asks a gateway. Who is behind it is not told: some callers may know of some agents only."""

    def status(_wire: WireRequest) -> WireAnswer:
        fields = {"state": READY, "status": "IDLE", "agent_id": me.agent_id, "url": me.endpoint}
        return WireAnswer(200, proto_json.to_json(fields))

    routes = (DocumentRoute(method="GET", path="/status", answer=status),)
    return Dialect(name="gateway_status", routes=routes, encode_error=encode_error)


class _Registration(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    id: str = ""


def _list(_wire: WireRequest) -> Call[tuple[ListedAgent, ...]]:
    return Call(ListAgents(), _encode_list, headers=NOT_KEPT)


def _register(wire: WireRequest) -> Call[ListedAgent]:
    try:
        given = msgspec.json.decode(wire.body, type=_Registration)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error), hint='send {"url": "https://…", "id": "a name, or leave it out"}') from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedJson("the body is not JSON") from error
    return Call(RegisterAgent(url=given.url, agent=given.id), _encode_listed, status=201)


def _remove(wire: WireRequest) -> Call[ExternalAgent]:
    return Call(RemoveAgent(wire.params[AGENT]), _encode_nothing, status=204)


def _encode_list(agents: tuple[ListedAgent, ...]) -> bytes:
    return proto_json.to_json(agent_list(agents))


def _encode_nothing(_removed: object) -> bytes:
    return b""


def _encode_listed(agent: ListedAgent) -> bytes:
    listed: list[dict[str, Any]] = agent_list([agent])["agents"]
    return proto_json.to_json(listed[0])
