"""The supervisor's card and directory say what is true of an agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synapse.core.agent import AGENT_STATES
from synapse.core.requests import ListedAgent
from synapse.dialects.supervisor.encode import CardFacts, agent_card, agent_list

AGENT = ListedAgent(
    id="claude", name="Synapse Claude", description="d", version="0.1.0", agent_type="claude", state="ready"
)


def test_a_card_claims_only_what_the_agent_can() -> None:
    able = agent_card(CardFacts(agent=AGENT, url="https://x/agents/claude/v1"))
    plain = agent_card(CardFacts(agent=replace(AGENT, capabilities=()), url="u", extended=False))

    assert able["capabilities"] == {"pushNotifications": True, "streaming": True}
    assert plain["capabilities"] == {"pushNotifications": False, "streaming": False}
    assert (able["supportsAuthenticatedExtendedCard"], plain["supportsAuthenticatedExtendedCard"]) == (True, False)


@pytest.mark.parametrize("state", AGENT_STATES)
def test_an_agent_is_active_until_it_has_exited(state: str) -> None:
    status = agent_list([replace(AGENT, state=state)])["agents"][0]["status"]

    assert status == ("inactive" if state == "exited" else "active")
