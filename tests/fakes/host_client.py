"""A HostClient that records replies instead of delivering them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from synapse.core.errors import AgentNotResponding, TaskNotFound
from synapse.core.message import Sender, text_of
from synapse.core.registry import AgentReply


@dataclass(frozen=True, slots=True)
class DeliveredReply:
    to: str
    sender_task_id: str
    text: str
    failed: bool
    inferred: bool


class FakeHostClient:
    def __init__(self) -> None:
        self.delivered: list[DeliveredReply] = []
        self.inboxes: list[str] = []
        """The inboxes of the waiting senders, empty where unknown."""
        self.has_no_waiter = False
        self.is_unreachable = False
        self.called = asyncio.Event()

    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        self.called.set()
        if self.is_unreachable:
            raise AgentNotResponding(to.sender_id, 8100, to.sender_type)
        if self.has_no_waiter:
            raise TaskNotFound(reply.in_reply_to)
        self.inboxes.append(to.inbox)
        text = text_of(reply.parts)
        self.delivered.append(DeliveredReply(to.sender_id, reply.in_reply_to, text, reply.failed, reply.inferred))
