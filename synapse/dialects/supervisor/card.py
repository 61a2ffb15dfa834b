"""The supervisor's card of an agent, and its list of agents. Standard clients ignore these fields of a common card."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from synapse.core.agent import EXITED
from synapse.core.listed_agent import ListedAgent

Wire = dict[str, Any]

OUTPUT_MODES: Final = ("text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the card is made of. `url` is the agent's address at the gateway, up to and with `/v1`."""

    agent: ListedAgent
    url: str
    extended: bool = True
    """There is a card with more in it for callers who are known."""


def agent_card(facts: CardFacts) -> Wire:
    agent = facts.agent
    return {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "protocols": {"a2a": {"supported": True, "version": "1.0"}},
        "capabilities": {
            "pushNotifications": "pushNotifications" in agent.capabilities,
            "streaming": "streaming" in agent.capabilities,
        },
        "endpoints": {"a2a": facts.url},
        "supportedOutputModes": list(OUTPUT_MODES),
        "supportsAuthenticatedExtendedCard": facts.extended,
        "metadata": {"agentType": agent.agent_type, "wrappedAgents": [agent.agent_type]},
    }


def agent_list(agents: Iterable[ListedAgent]) -> Wire:
    """The directory, `/agents/list.json`."""
    return {
        "agents": [
            {
                "id": agent.id,
                "name": agent.name,
                "description": agent.description,
                "cardUrl": f"/agents/{agent.id}/v1/card",
                "endpoint": f"/agents/{agent.id}/v1",
                "status": "inactive" if agent.state == EXITED else "active",
            }
            for agent in agents
        ]
    }
