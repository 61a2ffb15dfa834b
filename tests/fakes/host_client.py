"""The delivery of replies, without hosts: it remembers what it was given."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from synapse.core.errors import AgentNotResponding, TaskNotFound
from synapse.core.message import text_of
from synapse.core.registry import AgentReply
from synapse.core.requests import Sender


@dataclass(frozen=True, slots=True)
class Carried:
    to: str
    sender_task_id: str
    text: str
    failed: bool
    inferred: bool


class FakeHostClient:
    def __init__(self) -> None:
        self.carried: list[Carried] = []
        self.inboxes: list[str] = []
        """Those of the askers, as far as they are known."""
        self.nobody_waits = False
        self.nobody_answers = False
        self.something = asyncio.Event()

    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        self.something.set()
        if self.nobody_answers:
            raise AgentNotResponding(to.sender_id, 8100, to.sender_type)
        if self.nobody_waits:
            raise TaskNotFound(reply.in_reply_to)
        self.inboxes.append(to.inbox)
        text = text_of(reply.parts)
        self.carried.append(Carried(to.sender_id, reply.in_reply_to, text, reply.failed, reply.inferred))
