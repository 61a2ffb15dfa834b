"""Asking several hosts the same thing at once, so that one that hangs delays nobody else."""

import threading

from synapse.client.hosts import converse, not_responding, refusal_of
from synapse.client.http import NoAnswer
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.core.json_text import object_in

# `synapse list` shall be quick, so neither typing nor dataclasses is loaded here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

PATIENCE_SECONDS = 2.0


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


def current_task(status: "dict[str, Any]") -> "dict[str, Any]":
    """The task that a host's status says it works on, or an empty one."""
    return object_in(status, "current_task")
