"""The hub's card of an agent: what it is called, what it can do, and what a caller must bring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from synapse.core.auth_methods import AuthMethods
from synapse.core.listed_agent import ListedAgent
from synapse.dialects.proto_json import to_json

Wire = dict[str, Any]


def encode_agent(agent: ListedAgent, *, methods: AuthMethods) -> bytes:
    return to_json(agent_card(agent, methods))


def encode_agents(agents: Iterable[ListedAgent], *, methods: AuthMethods) -> bytes:
    return to_json({"agents": [agent_card(agent, methods) for agent in agents]})


def agent_card(agent: ListedAgent, methods: AuthMethods) -> Wire:
    card: Wire = {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "capabilities": list(agent.capabilities),
    }
    if auth := _auth(methods):
        card["auth"] = auth
    card["metadata"] = {"agentType": agent.agent_type, "state": agent.state}
    return card


def _auth(methods: AuthMethods) -> Wire:
    """The document has room for one type; the description names all that will do. Empty when nothing is asked for."""
    ways: list[str] = []
    if methods.api_keys:
        ways.append("an API key of this gateway")
    if methods.jwt_issuer:
        ways.append(f"an OAuth 2.0 access token issued by {methods.jwt_issuer}")
    if ways:
        custom = f"; or: {methods.custom}" if methods.custom else ""
        return {"type": "bearer", "description": f"Authorization: Bearer with {' or '.join(ways)}{custom}"}
    return {"type": "custom", "description": methods.custom} if methods.custom else {}
