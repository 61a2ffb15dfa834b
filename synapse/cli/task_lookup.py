"""Finds the task that a person names by the beginning of its id: running hosts are asked, then the store."""

from synapse.client.fan_out import ask_all
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotResponding, AmbiguousTask, TaskNotFound
from synapse.registry.files import FileRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORT_ID = 8


def find_task(prefix: str, registry: FileRegistry) -> "tuple[AgentEntry, dict[str, Any]]":
    """Return the task that `prefix` names, and the agent whose host has it.

    The task of an agent that does not run is read from the store; then the entry has no process. So is that of an
    agent whose host does not answer, but its entry has one: who wants to change the task must ask there.

    Raises:
        TaskNotFound: nobody knows it.
        AmbiguousTask: it fits more than one.
    """
    if not prefix or not all(char.isalnum() or char == "-" for char in prefix):
        raise TaskNotFound(prefix)
    asked = ask_all(registry.entries(), "GET", f"/tasks/{prefix}")
    found = [one for one in asked if one.error is None and one.body.get("id")]
    for one in asked:
        if one.error is not None and one.error.code == AmbiguousTask.code:
            raise one.error
    if not found:
        from synapse.cli.tasks import find_stored

        owner, task = find_stored(prefix)
        silent = [one for one in asked if isinstance(one.error, AgentNotResponding)]
        held = [one for one in silent if one.entry.is_agent_of(owner.inbox, owner.agent_id)]
        return (held[0].entry if held else owner), task
    if len(found) > 1:
        raise AmbiguousTask(prefix, [f"{one.body['id']} ({short_name(one.entry)})" for one in found])
    return found[0].entry, found[0].body


def is_task_id(word: str) -> bool:
    """Whether it can only be meant as a task's id: as long as the short ones at least, and of their characters."""
    return len(word) >= SHORT_ID and all(char in "0123456789abcdef-" for char in word)
