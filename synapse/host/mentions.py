"""Sends the `@agent text` lines that a person types at an agent's prompt."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from synapse.client.hosts import is_suspended, post_message
from synapse.client.http import NoAnswer
from synapse.core.address import resolve, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotResponding, SynapseError
from synapse.registry.files import FileRegistry

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
        """Returns the id of the agent that `name` means, or an empty string: then the line goes to the program."""
        try:
            return resolve(
                name, [one for one in self._registry.entries() if one.agent_id != self._me.agent_id]
            ).agent_id
        except (SynapseError, OSError):
            return ""

    def send(self, agent_id: str, text: str) -> None:
        """Sends from any thread, and notifies the person of the result."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin, agent_id, text)

    def _begin(self, agent_id: str, text: str) -> None:
        sending = asyncio.ensure_future(self._send(agent_id, text))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, agent_id: str, text: str) -> None:
        try:
            notice = await asyncio.to_thread(self._deliver, agent_id, text)
        except (SynapseError, OSError) as error:
            notice = f"[→ {agent_id}] not sent: {error}  Your text: {text}"
        except Exception as error:
            # The line is cleared by now: whatever went wrong, the person must not lose the text.
            log.exception("mention_failed", extra={"agent": agent_id})
            notice = f"[→ {agent_id}] not confirmed: {error}; it may have arrived  Your text: {text}"
        self.notify(notice)

    def _deliver(self, agent_id: str, text: str) -> str:
        """Sends the text, and returns the notice for the person. Blocks."""
        entry = resolve(agent_id, self._registry.entries())
        name = short_name(entry)
        try:
            task = post_message(entry, self._body(text), self._registry, warn=log.info)
        except AgentNotResponding as error:
            silence = error.__cause__
            if isinstance(silence, NoAnswer) and silence.sent:
                why = f"not confirmed: {silence}; it may still arrive (synapse queue {name})"
            elif is_suspended(entry):
                why = f"not sent: its process (pid {entry.pid}) is stopped; `kill -CONT {entry.pid}` lets it go on"
            else:
                why = f"not sent: {silence or error}"
            return f"[→ {name}] {why}  Your text: {text}"
        except SynapseError as refusal:
            return f"[→ {name}] not sent: {refusal}  Your text: {text}"
        return f"[→ {name}] sent" + (f"  (task {task['id'][:8]})" if task.get("id") else "")

    def _body(self, text: str) -> dict[str, Any]:
        sender = {
            "sender_id": self._me.agent_id,
            "sender_type": self._me.agent_type,
            "sender_endpoint": self._me.endpoint,
        }
        # Not `new_id`, which belongs to the event loop's thread. The id makes a second try safe.
        message_id = os.urandom(16).hex()
        message = {"role": "user", "parts": [{"type": "text", "text": text}], "message_id": message_id}
        return {"message": message, "metadata": {"sender": sender}}
