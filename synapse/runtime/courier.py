"""Carries a reply to the host of the agent that waits for it, in the synapse dialect."""

from __future__ import annotations

import asyncio
from typing import Any

from synapse.core.address import resolve
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentFailed, AgentNotFound, AgentNotResponding, TaskNotFound
from synapse.core.message import Message, MessageId, Part, Role
from synapse.core.registry import Registry
from synapse.core.requests import Sender
from synapse.dialects.synapse.projection import message_object
from synapse.transports.client import HostAddress, NoAnswer, request


class HostCourier:
    """Finds the waiting agent in the registry and asks its host, in a thread: the client knows no event loop."""

    def __init__(self, me: AgentEntry, registry: Registry) -> None:
        self._me = me
        self._registry = registry

    async def carry(
        self, to: Sender, sender_task_id: str, parts: tuple[Part, ...], *, failed: bool, inferred: bool
    ) -> None:
        """Raises TaskNotFound when nobody waits, AgentNotFound or AgentNotResponding when the agent is gone."""
        entry = self._asker(to)
        body = self._body(sender_task_id, parts, {"failed": failed, "inferred": inferred})
        address = HostAddress(entry.socket, port=entry.port)
        try:
            answer = await asyncio.to_thread(request, address, "POST", "/tasks/send", body)
        except NoAnswer as silence:
            raise AgentNotResponding(entry.agent_id, entry.port, entry.agent_type) from silence
        if answer.status == 404:
            raise TaskNotFound(sender_task_id)
        if answer.status >= 400:
            raise AgentFailed(f"{entry.agent_id} refused the reply: {answer.body.get('error')}")

    def _asker(self, to: Sender) -> AgentEntry:
        """The agent that asked, also at another port; its own may be another agent's by now."""
        here = list(self._registry.entries())
        if not to.inbox:
            return resolve(to.sender_id, here)
        for entry in here:
            if entry.inbox == to.inbox:
                return entry
        raise AgentNotFound(to.sender_id)

    def _body(self, sender_task_id: str, parts: tuple[Part, ...], marks: dict[str, bool]) -> dict[str, Any]:
        sender = {
            "sender_id": self._me.agent_id,
            "sender_type": self._me.agent_type,
            "sender_endpoint": self._me.endpoint,
        }
        metadata = {"sender": sender, "in_reply_to": sender_task_id, **{key: True for key in marks if marks[key]}}
        message = Message(message_id=MessageId(""), role=Role.AGENT, parts=parts)
        return {"message": message_object(message), "metadata": metadata}
