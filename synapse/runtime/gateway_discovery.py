"""Finding agents at a gateway: the directory, the cards, and registering agents from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from synapse.core.agent import READY, AgentEntry
from synapse.core.errors import InvalidRequest, RouteNotFound, SynapseError
from synapse.core.listed_agent import ListedAgent
from synapse.core.requests import GetAgent, ListAgents, RegisterAgent, RemoveAgent
from synapse.core.wire_errors import MalformedJson
from synapse.dialects import proto_json
from synapse.dialects.a2a_v0_3 import errors as errors_0_3
from synapse.dialects.a2a_v1 import errors as errors_1_0
from synapse.dialects.a2a_v1.paths import TENANT
from synapse.dialects.dialect import NOT_KEPT, Call, CallRoute, Dialect, DocumentRoute, WireAnswer, WireRequest
from synapse.dialects.mounting import AGENT
from synapse.dialects.negotiation import A2A_0_3, A2A_1_0, asked_dialect
from synapse.dialects.supervisor.card import agent_list
from synapse.dialects.supervisor.errors import encode_error
from synapse.runtime.gateway_cards import GatewayCards

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

    def card_of(agent: str, wire: WireRequest) -> Call:
        answer = partial(cards.answer, wire)
        return Call(GetAgent(agent), partial(cards.body, version=""), _words_for(wire), answer=answer)

    def card(wire: WireRequest) -> Call:
        return card_of(wire.params[AGENT].removesuffix(_SUFFIX), wire)

    def origin_card(wire: WireRequest) -> Call | WireAnswer:
        if cards.default_agent:
            return card_of(cards.default_agent, wire)
        hint = "`default_agent` of gateway.toml names one; the others have theirs at /agents/NAME" + ORIGIN_CARD
        error = RouteNotFound("this gateway has no default agent, whose card would be here", hint=hint)
        return _refuse(wire, error)._replace(error=error.code)

    def extended_card(wire: WireRequest) -> Call | WireAnswer:
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


def _list(_wire: WireRequest) -> Call:
    return Call(ListAgents(), _encode_list, headers=NOT_KEPT)


def _register(wire: WireRequest) -> Call:
    try:
        given = msgspec.json.decode(wire.body, type=_Registration)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error), hint='send {"url": "https://…", "id": "a name, or leave it out"}') from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedJson("the body is not JSON") from error
    return Call(RegisterAgent(url=given.url, agent=given.id), _encode_listed, status=201)


def _remove(wire: WireRequest) -> Call:
    return Call(RemoveAgent(wire.params[AGENT]), _encode_nothing, status=204)


def _encode_list(agents: tuple[ListedAgent, ...]) -> bytes:
    return proto_json.to_json(agent_list(agents))


def _encode_nothing(_removed: object) -> bytes:
    return b""


def _encode_listed(agent: ListedAgent) -> bytes:
    listed: list[dict[str, Any]] = agent_list([agent])["agents"]
    return proto_json.to_json(listed[0])
