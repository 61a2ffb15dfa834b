"""The agent card of A2A 0.3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from synapse.core.capability import CAPABILITIES
from synapse.core.extension import Extensions

Wire = dict[str, Any]

VERSION: Final = "0.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the card is made of. `url` is the agent's address: JSON-RPC there, REST below its `/v1`."""

    name: str
    description: str
    url: str
    version: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    extensions: Extensions = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    """What it can do beyond answering."""


def agent_card(facts: CardFacts) -> Wire:
    return {
        "protocolVersion": "0.3.0",
        "name": facts.name,
        "description": facts.description,
        "url": facts.url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": facts.url, "transport": "JSONRPC"},
            {"url": facts.url, "transport": "HTTP+JSON"},
        ],
        "version": facts.version,
        "capabilities": _capabilities(facts),
        "defaultInputModes": list(facts.input_modes),
        "defaultOutputModes": list(facts.output_modes),
        "skills": [
            {
                "id": "chat",
                "name": "Chat",
                "description": "Takes a message, works on it, and answers",
                "tags": ["chat"],
            }
        ],
        "supportsAuthenticatedExtendedCard": False,
    }


def _capabilities(facts: CardFacts) -> Wire:
    capabilities: Wire = {**{one: one in facts.capabilities for one in CAPABILITIES}, "stateTransitionHistory": False}
    if facts.extensions:
        capabilities["extensions"] = [extension.as_dict() for extension in facts.extensions]
    return capabilities
