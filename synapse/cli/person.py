"""Whether a person types this command or an agent does, to whom some things are refused."""

from __future__ import annotations

import os

from synapse.cli.hosts import AGENT_VARIABLE, open_registry
from synapse.transports.credentials import agent_of, ancestry, names_an_agent


def objection() -> str:
    """Why this command is not a person's; empty unless something speaks for an agent.

    A process that has lost its ancestry, as by `setsid`, is known by the environment that agents are started with.
    """
    processes = list(ancestry(os.getpid()))
    agent_id = agent_of(processes, open_registry().entries()) or os.environ.get(AGENT_VARIABLE, "")
    if agent_id:
        return f"it belongs to the agent {agent_id}"
    return "it was started by an agent" if any(names_an_agent(pid) for pid, _ in processes) else ""
