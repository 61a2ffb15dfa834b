"""Finds a task by the beginning of its id: asks the running hosts, then the store, then the other machines."""

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
    """Returns the task that `prefix` names, and its agent.

    The task of an agent that is not running comes from the store; its entry has no process. So does the task of an
    agent whose host does not answer, but its entry has the process: only that host can change the task. A task on
    another machine, or a message in the outbox, comes from the link, if the machine is in a fleet.

    Raises:
        TaskNotFound: no task matches.
        AmbiguousTask: several tasks match.
    """
    if not prefix or not all(char.isalnum() or char == "-" for char in prefix):
        raise TaskNotFound(prefix)
    replies = ask_all(registry.entries(), "GET", f"/tasks/{prefix}")
    found = [reply for reply in replies if reply.error is None and reply.body.get("id")]
    for reply in replies:
        if reply.error is not None and reply.error.code == AmbiguousTask.code:
            raise reply.error
    if not found:
        from synapse.cli.tasks import find_stored

        try:
            owner, task = find_stored(prefix)
        except TaskNotFound:
            if not is_task_id(prefix):
                raise
            from synapse.client.link import find_remote_task

            return find_remote_task(prefix, registry)
        silent = [reply for reply in replies if isinstance(reply.error, AgentNotResponding)]
        held = [reply for reply in silent if reply.entry.is_agent_of(owner.inbox, owner.agent_id)]
        return (held[0].entry if held else owner), task
    if len(found) > 1:
        raise AmbiguousTask(prefix, [f"{reply.body['id']} ({short_name(reply.entry)})" for reply in found])
    return found[0].entry, found[0].body


def is_task_id(word: str) -> bool:
    """Returns whether the word can only be a task id: at least as long as a short id, and hexadecimal."""
    return len(word) >= SHORT_ID and all(char in "0123456789abcdef-" for char in word)
