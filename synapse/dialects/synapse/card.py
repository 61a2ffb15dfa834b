"""The agent card: what an agent tells strangers about itself."""

from __future__ import annotations

from dataclasses import dataclass

from synapse.dialects.synapse.projection import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the card is made of. `title` is the agent's proper name ("Claude"), `name` the one a person gave it."""

    agent_id: str
    agent_type: str
    title: str
    url: str
    name: str = ""
    pty_wrapped: bool = True


def agent_card(facts: CardFacts) -> Wire:
    """The card of an agent host; it says what is true of ours, so it streams."""
    kind = f"PTY-wrapped {facts.agent_type} CLI" if facts.pty_wrapped else "Scripted"
    extension: Wire = {
        "agent_id": facts.agent_id,
        "pty_wrapped": facts.pty_wrapped,
        "priority_interrupt": True,
        "at_agent_syntax": facts.pty_wrapped,
    }
    if facts.name:
        extension["name"] = facts.name
    return {
        "name": f"Synapse {facts.title}",
        "description": f"{kind} agent with A2A communication",
        "url": facts.url,
        "capabilities": {"streaming": True, "pushNotifications": False, "multiTurn": True},
        "skills": [
            {"id": "chat", "name": "Chat", "description": "Send messages to the CLI agent"},
            {"id": "interrupt", "name": "Interrupt", "description": "Interrupt current processing"},
        ],
        "extensions": {"synapse": extension},
    }
