"""Sends one request to several hosts at once, so that one that hangs does not delay the others.

`synapse list` must stay quick, so this module loads neither typing nor dataclasses.
"""

import threading

from synapse.client.hosts import exchange, not_responding, refusal_of
from synapse.client.http import NoAnswer
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

ANSWER_SECONDS = 2.0


class HostReply:
    """The answer of one host: a body or an error. `in_doubt`: it may have read the request despite the error."""

    __slots__ = ("body", "entry", "error", "in_doubt")

    def __init__(self, entry: AgentEntry, body: "dict[str, Any] | None" = None) -> None:
        self.entry = entry
        self.body: dict[str, Any] = body or {}
        self.error: SynapseError | None = None
        self.in_doubt = False

    def ask(self, method: str, path: str, body: "dict[str, Any] | None", timeout: float) -> None:
        """Sends the request and sets `body` or `error`."""
        try:
            answer = exchange(self.entry, method, path, body, timeout=timeout)
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
    timeout: float = ANSWER_SECONDS,
) -> "list[HostReply]":
    """Asks every host and returns their answers in the order of `entries`."""
    replies = [HostReply(entry) for entry in entries]
    threads = [threading.Thread(target=reply.ask, args=(method, path, body, timeout), daemon=True) for reply in replies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies
