"""The card of A2A 1.0."""

from __future__ import annotations

from typing import Any

from synapse.dialects.a2a_v1.encode import CardFacts, agent_card

FACTS: dict[str, Any] = {
    "name": "Synapse Codex",
    "description": "A CLI",
    "url": "http://localhost:8120",
    "version": "1.2.3",
    "input_modes": ("text/plain",),
    "output_modes": ("text/plain", "application/json"),
}


def test_the_card_has_every_required_field() -> None:
    card = agent_card(CardFacts(**FACTS))

    required = {"name", "description", "supportedInterfaces", "version", "capabilities", "skills"}
    assert card.keys() >= required | {"defaultInputModes", "defaultOutputModes"}
    assert all(card[field] for field in required)
    assert card["skills"][0].keys() >= {"id", "name", "description", "tags"}


def test_the_card_says_what_is_true() -> None:
    card = agent_card(CardFacts(**FACTS))

    assert card["capabilities"] == {"streaming": True, "pushNotifications": True, "extendedAgentCard": False}


def test_json_rpc_is_preferred_and_older_versions_come_last() -> None:
    interfaces = agent_card(CardFacts(**FACTS, legacy_versions=("0.3",)))["supportedInterfaces"]

    assert [(one["protocolBinding"], one["protocolVersion"]) for one in interfaces] == [
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "0.3"),
    ]
    assert {one["url"] for one in interfaces} == {"http://localhost:8120"}
