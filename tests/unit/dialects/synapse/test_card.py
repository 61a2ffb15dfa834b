"""The card is the contract's, with true values."""

from __future__ import annotations

from synapse.dialects.synapse.routes import CardFacts, agent_card

CLAUDE = CardFacts(agent_id="synapse-claude-8100", agent_type="claude", title="Claude", url="http://localhost:8100")


def test_the_card_is_the_one_of_the_readme_except_that_it_streams() -> None:
    assert agent_card(CLAUDE) == {
        "name": "Synapse Claude",
        "description": "PTY-wrapped claude CLI agent with A2A communication",
        "url": "http://localhost:8100",
        "capabilities": {"streaming": True, "pushNotifications": False, "multiTurn": True},
        "skills": [
            {"id": "chat", "name": "Chat", "description": "Send messages to the CLI agent"},
            {"id": "interrupt", "name": "Interrupt", "description": "Interrupt current processing"},
        ],
        "extensions": {
            "synapse": {
                "agent_id": "synapse-claude-8100",
                "pty_wrapped": True,
                "priority_interrupt": True,
                "at_agent_syntax": True,
            }
        },
    }


def test_a_scripted_agent_does_not_claim_a_terminal() -> None:
    facts = CardFacts(
        agent_id="synapse-tester-8200",
        agent_type="tester",
        title="Tester",
        url="http://localhost:8200",
        name="reviewer",
        pty_wrapped=False,
    )

    card = agent_card(facts)

    assert card["description"] == "Scripted agent with A2A communication"
    assert card["extensions"]["synapse"] == {
        "agent_id": "synapse-tester-8200",
        "pty_wrapped": False,
        "priority_interrupt": True,
        "at_agent_syntax": False,
        "name": "reviewer",
    }
