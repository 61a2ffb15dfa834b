"""How answers find their way back.

Three ways lead to the sender's waiting task: an explicit reply of the agent (`synapse reply`, through this host), a
reply sent straight to the sender's host (`--reply-to`), and the inferred one: a turn that ended without a reply
answers with its final text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

from synapse.core.agent import AgentEntry
from synapse.core.driver import Answered
from synapse.core.errors import SynapseError, TaskNotFound
from synapse.core.events import MetadataChanged
from synapse.core.message import Part, TextPart
from synapse.core.registry import AgentReply
from synapse.core.requests import Replied, Reply, Sender
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.text import typed_sender
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.admission import awaits_reply, sender_in, sender_task_id
from synapse.tasks.journal import Journal

log = logging.getLogger(__name__)

REPLIED = "replied"
"""The task's metadata key that says how its sender was answered: `explicit` or `inferred`."""


class ReplyDelivery(Protocol):
    """The part of `core.registry.HostClient` that brings replies to the agents that wait for them."""

    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        """Raises TaskNotFound when nobody waits (any more), AgentNotFound or AgentNotResponding when it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class _Owed:
    task: Task
    parts: tuple[Part, ...]
    failed: bool


class Replies:
    """Answers the senders of this agent's requests."""

    def __init__(self, me: AgentEntry, journal: Journal, hosts: ReplyDelivery, clock: Clock) -> None:
        self._me = Sender(sender_id=me.agent_id, sender_type=me.agent_type, sender_endpoint=me.endpoint)
        self._journal = journal
        self._hosts = hosts
        self._clock = clock
        self._owed: asyncio.Queue[_Owed] = asyncio.Queue()
        self._requests: dict[str, Task] = {}

    def expect(self, task: Task) -> None:
        """Remember a request that its sender waits for."""
        if awaits_reply(task):
            self._requests[task.id] = task

    def turn_ended(self, task: Task) -> None:
        """A turn is over: when its sender waits and has no reply yet, it gets the final text."""
        if not task.state.is_terminal:
            return
        known = self._requests.pop(task.id, None)
        if known is not None and sender_task_id(task) and REPLIED not in task.metadata:
            self._owed.put_nowait(_Owed(task, final_words(task), failed=task.state is not TaskState.COMPLETED))

    def leave(self, why: str, resumable: Container[TaskId] = ()) -> None:
        """Tell every waiter that the agent ends, though its message stays queued for the next start.

        The answers of `resumable` tasks arrive with the next start, so nobody is told to stop waiting for them.
        """
        for task in self._requests.values():
            if sender_task_id(task) and task.id not in resumable:
                self._owed.put_nowait(_Owed(task, (TextPart(text=why),), failed=True))
        self._requests.clear()

    def owe(self, finished: Task) -> None:
        """Carry what an earlier host still owed: it ended between the end of the turn and the reply."""
        self.expect(finished)
        self.turn_ended(finished)

    async def run(self) -> None:
        """Carry inferred replies until cancelled; a sender that does not answer delays nobody else's."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._infer(await self._owed.get()))

    async def drain(self, seconds: float) -> None:
        """Wait until the owed replies are carried, but not longer than `seconds`."""
        try:
            await asyncio.wait_for(self._owed.join(), seconds)
        except TimeoutError:
            log.warning("replies_not_carried", extra={"count": self._owed.qsize()})

    async def reply(self, request: Reply, current: str | None) -> Replied:
        """Answer the request that `request` names: by id, else the one of the running turn, else the last one.

        Raises:
            TaskNotFound: no request waits for a reply.
        """
        task = self._find(request.task_id, current)
        try:
            await self._carry(task, request.message.parts, failed=request.failed, inferred=False)
        except SynapseError:
            # Who is not proven may wait nowhere else than at this task, which has the answer in any case.
            if task.metadata.get("sender_verified") is True:
                raise
        finally:
            # A sender that is gone does not make the answer go away.
            await self._settle(task, request)
            self._requests.pop(task.id, None)
        return Replied(task_id=task.id, to=typed_sender(task.metadata))

    def _find(self, wanted: str, current: str | None) -> Task:
        if wanted:
            for task in reversed(self._requests.values()):
                if task.id.startswith(wanted) or sender_task_id(task).startswith(wanted):
                    return task
            raise TaskNotFound(wanted)
        if current in self._requests:
            return self._requests[current]
        if not self._requests:
            raise TaskNotFound("(the last request)")
        return next(reversed(self._requests.values()))

    async def _settle(self, task: Task, request: Reply) -> None:
        """The explicit reply is the task's answer, whatever the screen shows later."""
        now = self._clock.now()
        task = await self._journal.load(task.id)
        if task.state.is_terminal:
            return
        replied = MetadataChanged(task_id=task.id, at=now, metadata={REPLIED: "explicit"})
        if request.failed:
            note = request.message.text or "the agent replied that it failed"
            facts = outcomes.ended(task, now, TaskState.FAILED, "replied_failed", note)
        else:
            answer = Answered(parts=request.message.parts, source=outcomes.EXPLICIT_REPLY)
            facts = outcomes.answered(task, now, answer)
        await self._journal.record(replied, *facts)

    async def _infer(self, owed: _Owed) -> None:
        task = owed.task
        try:
            await self._carry(task, owed.parts, failed=owed.failed, inferred=True)
        except TaskNotFound:
            log.debug("reply_not_needed", extra={"task": task.id})
        except SynapseError as error:
            # The sender is gone; its answer stays readable on our task.
            log.warning("reply_not_carried", extra={"task": task.id, "error": error.code})
        else:
            await self._note_replied(task)
        finally:
            self._owed.task_done()

    async def _note_replied(self, task: Task) -> None:
        noted = MetadataChanged(task_id=task.id, at=self._clock.now(), metadata={REPLIED: "inferred"})
        try:
            await self._journal.record(noted)
        except SynapseError as error:
            # At worst the next host carries it once more, and the sender has no use for it.
            log.warning("reply_not_noted", extra={"task": task.id, "error": error.code})

    async def _carry(self, task: Task, parts: tuple[Part, ...], *, failed: bool, inferred: bool) -> None:
        """Bring the reply to the sender's host; a sender without one follows our own task."""
        waiting = sender_task_id(task)
        if waiting:
            reply = AgentReply(sender=self._me, in_reply_to=waiting, parts=parts, failed=failed, inferred=inferred)
            await self._hosts.deliver_reply(sender_in(task.metadata), reply)


def final_words(task: Task) -> tuple[Part, ...]:
    """What the sender is told: the last artifact, or why there is none."""
    if task.state is TaskState.COMPLETED and task.artifacts:
        return task.artifacts[-1].parts
    return (TextPart(text=task.note or task.reason or "the turn ended without an answer"),)
