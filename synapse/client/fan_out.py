"""Asking several hosts the same thing at once, so that one that hangs delays nobody else."""

import threading

from synapse.cli.output import print_notice
from synapse.client.hosts import converse, not_responding, refusal_of
from synapse.client.http import NoAnswer
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotResponding, AmbiguousTask, SynapseError, TaskNotFound
from synapse.core.json_text import object_in
from synapse.registry.files import FileRegistry

# `synapse list` shall be quick, so neither typing nor dataclasses is loaded here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

PATIENCE_SECONDS = 2.0
SHORT_ID = 8


class HostReply:
    """One host and what it answered: a body, or an error. `in_doubt`: it may have read what was asked."""

    __slots__ = ("body", "entry", "error", "in_doubt")

    def __init__(self, entry: AgentEntry, body: "dict[str, Any] | None" = None) -> None:
        self.entry = entry
        self.body: dict[str, Any] = body or {}
        self.error: SynapseError | None = None
        self.in_doubt = False

    def ask(self, method: str, path: str, body: "dict[str, Any] | None", timeout: float) -> None:
        try:
            answer = converse(self.entry, method, path, body, timeout=timeout)
        except NoAnswer as silence:
            self.error = not_responding(self.entry, silence)
            self.in_doubt = silence.sent
            return
        if answer.status >= 400:
            self.error = refusal_of(answer)
        else:
            self.body = answer.body


def ask_all(
    entries: "Sequence[AgentEntry]",
    method: str,
    path: str,
    body: "dict[str, Any] | None" = None,
    *,
    timeout: float = PATIENCE_SECONDS,
) -> "list[HostReply]":
    """Ask every host and return their answers in the order of `entries`."""
    asked = [HostReply(entry) for entry in entries]
    threads = [threading.Thread(target=one.ask, args=(method, path, body, timeout), daemon=True) for one in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return asked


def warn_of_silent(asked: "Sequence[HostReply]") -> None:
    """Say who did not answer: what they know is missing from what is shown."""
    for one in asked:
        if one.error is not None:
            print_notice(f"Warning: {one.error}" + (f"\n{one.error.hint}" if one.error.hint else ""))


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


def current_task(status: "dict[str, Any]") -> "dict[str, Any]":
    """The task that a host's status says it works on, or an empty one."""
    return object_in(status, "current_task")
