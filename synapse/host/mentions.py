"""Sends the `@agent text` lines that a person types at an agent's prompt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from synapse.client.http import HostAddress, NoAnswer, request
from synapse.core.address import resolve, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.registry.files import FileRegistry, is_stopped

log = logging.getLogger(__name__)


class MentionSender:
    """Sends `@agent text` lines that a person types at this agent's prompt, from this agent to the other.

    The pump's thread calls it. Sending runs in the loop's thread pool, so that neither the pump nor the loop waits.
    """

    def __init__(self, me: AgentEntry, registry: FileRegistry) -> None:
        self._me = me
        self._registry = registry
        self.notify: Callable[[str], None] = log.info
        """Shows the person whether a line was sent; set once there is a terminal to show it on."""
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()

    def resolve(self, name: str) -> str:
        """Return the id of the agent that `name` means, or an empty string: then the line goes to the program."""
        try:
            return resolve(
                name, [entry for entry in self._registry.entries() if entry.agent_id != self._me.agent_id]
            ).agent_id
        except SynapseError:
            return ""

    def send(self, agent_id: str, text: str) -> None:
        """Send from any thread, and notify the person of the result."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin, agent_id, text)

    def _begin(self, agent_id: str, text: str) -> None:
        sending = asyncio.ensure_future(self._send(agent_id, text))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, agent_id: str, text: str) -> None:
        try:
            notice = await asyncio.to_thread(self._deliver, agent_id, text)
        except SynapseError as error:
            notice = f"[→ {agent_id}] not sent: {error}  Your text: {text}"
        self.notify(notice)

    def _deliver(self, agent_id: str, text: str) -> str:
        entry = resolve(agent_id, self._registry.entries())
        sender = {
            "sender_id": self._me.agent_id,
            "sender_type": self._me.agent_type,
            "sender_endpoint": self._me.endpoint,
        }
        body = {
            "message": {"role": "user", "parts": [{"type": "text", "text": text}]},
            "metadata": {"sender": sender},
        }
        name = short_name(entry)

        def is_host_stopped() -> bool:
            return is_stopped(entry.pid, entry.pid_started)

        if is_host_stopped():
            why = f"its process (pid {entry.pid}) is stopped; `kill -CONT {entry.pid}` lets it go on"
            return f"[→ {name}] not sent: {why}  Your text: {text}"
        address = HostAddress(entry.socket, port=entry.port)
        try:
            answer = request(address, "POST", "/tasks/send", body, is_stopped=is_host_stopped)
        except NoAnswer as error:
            if not error.sent:
                return f"[→ {name}] not sent: {error}  Your text: {text}"
            return f"[→ {name}] not confirmed: {error}; it may still arrive (synapse queue {name})  Your text: {text}"
        if answer.status >= 400:
            why = answer.body.get("error", {}).get("message", answer.status)
            return f"[→ {name}] not sent: {why}  Your text: {text}"
        return f"[→ {name}] sent  (task {answer.body['task']['id'][:8]})"
