"""The agent card of A2A 1.0: what an agent tells strangers about itself, and where it listens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from synapse.core.capability import CAPABILITIES
from synapse.core.extension import Extensions
from synapse.dialects.a2a_v1.projection import Wire

VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the card is made of. `url` is the agent's address; `legacy_versions` are those it speaks besides 1.0."""

    name: str
    description: str
    url: str
    version: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    legacy_versions: tuple[str, ...] = ()
    extensions: Extensions = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    """What it can do beyond answering."""


def agent_card(facts: CardFacts) -> Wire:
    """The card; required fields are there even when they say no."""
    return {
        "name": facts.name,
        "description": facts.description,
        "supportedInterfaces": [
            {"url": facts.url, "protocolBinding": binding, "protocolVersion": version}
            for version in (VERSION, *facts.legacy_versions)
            for binding in ("JSONRPC", "HTTP+JSON")
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
    }


def _capabilities(facts: CardFacts) -> Wire:
    capabilities: Wire = {**{one: one in facts.capabilities for one in CAPABILITIES}, "extendedAgentCard": False}
    if facts.extensions:
        capabilities["extensions"] = [extension.as_dict() for extension in facts.extensions]
    return capabilities
