"""Decides whether a person or an agent runs this command: some commands are refused to agents.

An agent that controls the process can skip these checks; they stop one that runs the command as it is. Hosts check for
themselves who may decide something.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from synapse.cli.output import print_notice
from synapse.client.hosts import open_registry
from synapse.config.settings import TERMINAL, Settings, account_demands_terminal, load_settings, variables_of_agents
from synapse.core.errors import PersonRequired
from synapse.host.background import LAUNCHED_BY
from synapse.server.lineage import TERMINAL_DEMANDED, own_lineage, standing_of, terminal_doubt


def objection() -> str:
    """Returns why this command is not a person's; empty unless there is evidence of an agent."""
    # What cannot be read is not evidence here: a host asks for more before it accepts a person's decision.
    seen = replace(own_lineage(), doubt="")
    agent_id, doubt = standing_of(seen, open_registry().entries())
    return f"it belongs to the agent {agent_id}" if agent_id else doubt


def require_deciding_person(action: str, *, judges_starter: bool = False) -> None:
    """Raises PersonRequired unless a person runs this command, at a terminal where the settings demand one.

    No setting lets an agent pass, because an agent chooses the files that its command reads. `action` completes "only
    a person may …".
    """
    if why := objection_to_deciding(judges_starter=judges_starter):
        raise PersonRequired(
            f"only a person may {action}, and this command is not a person's: {why}",
            hint="run it in a terminal of your own",
        )


def objection_to_deciding(*, judges_starter: bool = False) -> str:
    """Returns why this command may not decide for a person; empty if it may.

    With `judges_starter` it judges the terminal of the process that started this one, as `synapse start` does.
    """
    if why := objection():
        return why
    # A project must not influence this, and its invalid settings must not prevent a person from revoking it.
    if not (load_settings(folder="/").terminal_decides or account_demands_terminal()):
        return ""
    lineage = own_lineage()
    if judges_starter:
        lineage = replace(lineage, processes=lineage.processes[1:])
    doubt = terminal_doubt(lineage, open_registry().entries())
    return f"{doubt}, and the setting person_proof demands a person's terminal" if doubt else ""


def launch_settings(folder: str | Path | None = None) -> Settings:
    """Returns the settings for a host that this command starts or becomes, in `folder` or the current one.

    A host that an agent starts gets no rights from the agent's files and variables.
    """
    why = objection()
    if not why:
        return load_settings(folder=folder)
    lineage = own_lineage()
    # The host keeps the variable when it restarts itself, and so do all processes that it starts.
    os.environ[LAUNCHED_BY] = lineage.named_agent or "an agent"
    ignored = set(os.environ) - set(variables_of_agents(os.environ))
    variable, demand = TERMINAL_DEMANDED
    if os.environ.get(variable) == demand and lineage.demands_terminal:
        ignored.discard(variable)
    if ignored:
        print_notice(
            f"Ignored {', '.join(sorted(ignored))}: only a person sets that, and this command is not a person's: {why}"
        )
    settings = load_settings(folder=folder, by_agent=True).without_grants()
    # An agent chooses the variables and files that its command reads, but not what its own host demands.
    return replace(settings, person_proof=TERMINAL) if lineage.demands_terminal else settings
