"""Whether a person types this command or an agent does, to whom some things are refused.

Whoever controls a process can make it skip these checks; they hold for an agent that uses our command as it is. Hosts
judge by themselves who may decide something.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from synapse.cli.output import print_notice
from synapse.client.hosts import current_folder, state_folder
from synapse.config.settings import TERMINAL, Settings, account_demands_terminal, load_settings, variables_of_agents
from synapse.core.errors import PersonRequired
from synapse.host.background import LAUNCHED_BY
from synapse.registry.files import FileRegistry
from synapse.server.lineage import TERMINAL_DEMANDED, own_lineage, standing_of, terminal_doubt


def objection() -> str:
    """Why this command is not a person's; empty unless something speaks for an agent."""
    # Whatever cannot be read speaks for nobody here: a host asks for more before it takes a person's decision.
    seen = replace(own_lineage(), doubt="")
    agent_id, doubt = standing_of(seen, _registry().entries())
    return f"it belongs to the agent {agent_id}" if agent_id else doubt


def _registry() -> FileRegistry:
    return FileRegistry(Path(state_folder(os.environ, current_folder()), "registry"))


def require_deciding_person(what: str, *, judges_starter: bool = False) -> None:
    """Raises PersonRequired unless a person types this command, at a terminal where that is demanded.

    No setting lets an agent pass, since an agent chooses the files that its command finds. `what` is the beginning of
    the sentence that says what only a person does.
    """
    if why := objection_to_deciding(judges_starter=judges_starter):
        raise PersonRequired(
            f"{what} by a person, and this command is not a person's: {why}", hint="type it in a terminal of your own"
        )


def objection_to_deciding(*, judges_starter: bool = False) -> str:
    """Why this command may not decide what only people decide; empty for a person, at a terminal where it needs one.

    With `judges_starter` the terminal is that of the process which started this one, as `synapse start` does.
    """
    if why := objection():
        return why
    # A project has no say in this, and settings of its that cannot be used must not keep anybody from revoking it.
    if not (load_settings(folder="/").terminal_decides or account_demands_terminal()):
        return ""
    lineage = own_lineage()
    if judges_starter:
        lineage = replace(lineage, processes=lineage.processes[1:])
    doubt = terminal_doubt(lineage, _registry().entries())
    return f"{doubt}, and the setting person_proof demands a terminal of a person's" if doubt else ""


def launch_settings(folder: str | Path | None = None) -> Settings:
    """The settings for a host that this command starts or becomes, in `folder` or the current one.

    What an agent starts gets no rights from it.
    """
    why = objection()
    if not why:
        return load_settings(folder=folder)
    lineage = own_lineage()
    # The host keeps it, also when it begins again by itself, and so do all whom it starts.
    os.environ[LAUNCHED_BY] = lineage.named_agent or "an agent"
    ignored = set(os.environ) - set(variables_of_agents(os.environ))
    variable, demand = TERMINAL_DEMANDED
    if os.environ.get(variable) == demand and lineage.demands_terminal:
        ignored.discard(variable)
    if ignored:
        print_notice(
            f"ignored: {', '.join(sorted(ignored))}; only a person sets that, and this command is not a person's: {why}"
        )
    settings = load_settings(folder=folder, by_agent=True).without_grants()
    # An agent chooses the variables and files that its command finds, but not what its own host demands.
    return replace(settings, person_proof=TERMINAL) if lineage.demands_terminal else settings
