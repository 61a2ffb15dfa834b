"""An agent as a gateway shows it to callers: what its entries in lists and its cards are made of."""

from __future__ import annotations

from dataclasses import dataclass

from synapse.core.capability import CAPABILITIES
from synapse.core.extension import Extensions


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent:
    """The answer to GetAgent; ListAgents answers with a tuple of them."""

    id: str
    """Its name at the gateway: the given name, else the agent id."""
    name: str
    """Its name for people, such as `Synapse Claude`."""
    description: str
    version: str
    agent_type: str
    """Its profile, or `a2a` for an agent from elsewhere."""
    state: str
    """One of AGENT_STATES in `core.agent`."""
    capabilities: tuple[str, ...] = CAPABILITIES
    """What it can do beyond answering, in the words of A2A's cards."""
    input_modes: tuple[str, ...] = ()
    """The media types of what it takes; empty takes all."""
    output_modes: tuple[str, ...] = ()
    """The media types of what it gives, if they are known."""
    extensions: Extensions = ()
    """The extensions of A2A that it declares."""
