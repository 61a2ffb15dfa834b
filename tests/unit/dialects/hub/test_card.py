"""The hub's card says what an agent is, and what a caller must bring."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.caller import AuthMethods
from synapse.core.requests import ListedAgent
from synapse.dialects.hub.encode import agent_card
from tests.samples.calls import told
from tests.unit.dialects.hub.samples import ask

AGENT = ListedAgent(
    id="weather-agent", name="Weather", description="Knows", version="1.0.0", agent_type="codex", state="ready"
)


def test_a_card_has_the_fields_of_the_document() -> None:
    assert told(ask("GET", "/agents/{agentId}", agentId=AGENT.id), AGENT) == {
        "id": "weather-agent",
        "name": "Weather",
        "description": "Knows",
        "version": "1.0.0",
        "capabilities": ["streaming", "pushNotifications"],
        "auth": {"type": "bearer", "description": "Authorization: Bearer with an API key of this gateway"},
        "metadata": {"agentType": "codex", "state": "ready"},
    }


def test_agents_are_listed_by_their_cards() -> None:
    assert [card["id"] for card in told(ask("GET", "/agents"), (AGENT, AGENT))["agents"]] == ["weather-agent"] * 2


@pytest.mark.parametrize(
    ("methods", "auth"),
    [
        (AuthMethods(), None),
        (AuthMethods(custom="a badge"), {"type": "custom", "description": "a badge"}),
        (
            AuthMethods(jwt_issuer="https://i.example"),
            {
                "type": "bearer",
                "description": "Authorization: Bearer with an OAuth 2.0 access token issued by https://i.example",
            },
        ),
        (
            AuthMethods(api_keys=True, jwt_issuer="https://i.example", custom="a badge"),
            {
                "type": "bearer",
                "description": "Authorization: Bearer with an API key of this gateway or "
                "an OAuth 2.0 access token issued by https://i.example; or: a badge",
            },
        ),
    ],
)
def test_a_card_names_all_that_a_caller_may_bring(methods: AuthMethods, auth: Any) -> None:
    assert agent_card(AGENT, methods).get("auth") == auth
