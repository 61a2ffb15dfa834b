"""What a person types as `@agent text` at their agent's prompt goes from that agent to the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from synapse.core.address import resolve, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.registries.files import FileRegistry
from synapse.registries.processes import is_stopped
from synapse.transports.client import HostAddress, NoAnswer, request

log = logging.getLogger(__name__)


class PersonLines:
    """Resolves and sends. The pump's thread asks; the sending is done by the loop's threads, so nobody waits."""

    def __init__(self, me: AgentEntry, registry: FileRegistry) -> None:
        self._me = me
        self._registry = registry
        self.say: Callable[[str], None] = log.info
        """Tells the person what came of it; set once there is a terminal to say it on."""
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()

    def resolve(self, name: str) -> str:
        """The id of the agent that `name` means, or an empty string: then the line is the program's."""
        try:
            return resolve(
                name, [entry for entry in self._registry.entries() if entry.agent_id != self._me.agent_id]
            ).agent_id
        except SynapseError:
            return ""

    def send(self, agent_id: str, text: str) -> None:
        """Send from any thread; the person is told what came of it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin, agent_id, text)

    def _begin(self, agent_id: str, text: str) -> None:
        sending = asyncio.ensure_future(self._send(agent_id, text))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, agent_id: str, text: str) -> None:
        try:
            told = await asyncio.to_thread(self._deliver, agent_id, text)
        except SynapseError as error:
            told = f"[→ {agent_id}] not sent: {error}  Your text: {text}"
        self.say(told)

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

        def stands_still() -> bool:
            return is_stopped(entry.pid, entry.pid_started)

        if stands_still():
            why = f"its process (pid {entry.pid}) is stopped; `kill -CONT {entry.pid}` lets it go on"
            return f"[→ {name}] not sent: {why}  Your text: {text}"
        address = HostAddress(entry.socket, port=entry.port)
        try:
            answer = request(address, "POST", "/tasks/send", body, is_stopped=stands_still)
        except NoAnswer as silence:
            if not silence.sent:
                return f"[→ {name}] not sent: {silence}  Your text: {text}"
            return f"[→ {name}] not confirmed: {silence}; it may still arrive (synapse queue {name})  Your text: {text}"
        if answer.status >= 400:
            why = answer.body.get("error", {}).get("message", answer.status)
            return f"[→ {name}] not sent: {why}  Your text: {text}"
        return f"[→ {name}] sent  (task {answer.body['task']['id'][:8]})"
