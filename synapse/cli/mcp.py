"""`synapse mcp`: serves the tools of Synapse over MCP, and prints the entry that an app needs to start it.

CLIs start it with every agent, so it is as light as `synapse send`; `cli.mcp_config` is loaded only for the entries.
"""

import os
from time import monotonic  # noqa: TID251 - the clock of `config.process` would load asyncio

from synapse import __version__
from synapse.client.hosts import WAIT_VARIABLE, ask, open_registry, own_agent, show_launch
from synapse.core.agent import AgentEntry
from synapse.mcp.local import LocalTools
from synapse.mcp.server import Server, Session
from synapse.mcp.stdio import StdioServer
from synapse.mcp.tools import AGENT_TOOLS, PERSON_TOOLS, agent_instructions, person_instructions
from synapse.registry.files import FileRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from synapse.core.errors import SynapseError
DEFAULT_WAIT = 50.0
"""Seconds. The most impatient client gives a call up after 60."""
MOST_WAIT = 86_400.0


def run_mcp(arguments: "list[str]") -> int:
    """Serves until the client closes a stream, or prints an app's entry; returns the exit code."""
    if arguments:
        from synapse.cli.mcp_config import run_mcp_action

        return run_mcp_action(arguments)
    if os.isatty(0):
        from synapse.cli.output import print_notice

        print_notice("Apps and agents start this and speak MCP with it.  (synapse mcp --help; Ctrl-D ends it)")
    registry = open_registry()
    show_launch(os.path.dirname(registry.folder))
    own = own_agent(registry)
    local = LocalTools(
        registry, monotonic, longest_wait=longest_wait(), find_task=_find_task, cancel_stored=_cancel_stored
    )
    offered = (
        Server(PERSON_TOOLS, person_instructions(), __version__)
        if own is None
        else Server(AGENT_TOOLS, agent_instructions(own.agent_id, own.name, own.role), __version__)
    )
    StdioServer(offered, local.run, ReadyReport(registry), monotonic).serve()
    return 0


def longest_wait() -> float:
    """Returns how many seconds one call may wait: the variable's, or the default if it is no number."""
    try:
        seconds = float(os.environ.get(WAIT_VARIABLE, ""))
    except ValueError:
        return DEFAULT_WAIT
    return seconds if 0 < seconds <= MOST_WAIT else DEFAULT_WAIT


class ReadyReport:
    """Tells the agent's own host, once, that its program knows the tools."""

    def __init__(self, registry: FileRegistry) -> None:
        self._registry = registry
        self._is_told = False

    def __call__(self, session: Session) -> None:
        own = own_agent(self._registry)
        if own is None or self._is_told:
            return
        try:
            ask(own, "POST", "/mcp/ready", {"client": session.client, "protocol": session.protocol})
        except _any_error():
            return  # the host waits for it only for a moment, and an older one not at all
        self._is_told = True


def _find_task(prefix: str, registry: FileRegistry) -> "tuple[AgentEntry, dict[str, Any]]":
    from synapse.cli.task_lookup import find_task

    return find_task(prefix, registry)


def _cancel_stored(task_ids: "list[str]") -> "list[dict[str, Any] | SynapseError]":
    from synapse.cli.tasks import cancel_stored

    return cancel_stored(task_ids)


def _any_error() -> "type[SynapseError]":
    from synapse.core.errors import SynapseError

    return SynapseError
