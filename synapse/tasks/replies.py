"""Replies to the senders that wait for an answer of this agent.

A sender's waiting task is answered in one of three ways: by an explicit reply of the agent (`synapse reply`, through
this host), by a reply sent straight to the sender's host (`--reply-to`), or by an inferred reply: a turn that ended
without a reply answers with its final text.

A sender on another machine is answered by the link, which reads the end of the task from the store. Here its reply is
only recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError, TaskNotFound
from synapse.core.message import Part, Sender, TextPart
from synapse.core.registry import AgentReply
from synapse.core.requests import Replied, Reply
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.task_metadata import reply_noted
from synapse.core.types import Clock
from synapse.tasks import outcomes
from synapse.tasks.journal import Journal
from synapse.tasks.recovery import is_waiting_in_queue

log = logging.getLogger(__name__)


class ReplyDelivery(Protocol):
    """The part of `core.registry.HostClient` that delivers replies to the agents that wait for them."""

    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        """Raises TaskNotFound when no task waits for it, AgentNotFound or AgentNotResponding when the agent is gone."""
        ...


@dataclass(frozen=True, slots=True)
class _OwedReply:
    task: Task
    parts: tuple[Part, ...]
    failed: bool


class Replies:
    """Replies to the senders of this agent's requests."""

    def __init__(self, me: AgentEntry, journal: Journal, hosts: ReplyDelivery, clock: Clock) -> None:
        self._me = Sender(sender_id=me.agent_id, sender_type=me.agent_type, sender_endpoint=me.endpoint)
        self._journal = journal
        self._hosts = hosts
        self._clock = clock
        # Without a limit: at most one reply for each accepted request. `run` takes each at once, and gives up a sender
        # that does not respond after a few seconds.
        self._owed: asyncio.Queue[_OwedReply] = asyncio.Queue()
        self._requests: dict[str, Task] = {}

    def expect(self, task: Task) -> None:
        """Remembers a request whose sender waits for a reply."""
        if task.reply_to is not None:
            self._requests[task.id] = task

    def turn_ended(self, task: Task) -> None:
        """Replies with the final text of an ended task, if its sender waits and has no reply yet."""
        if not task.state.is_terminal:
            return
        known = self._requests.pop(task.id, None)
        if known is not None and _waiting_task(task) and not task.replied:
            self._owed.put_nowait(_OwedReply(task, reply_parts(task), failed=task.state is not TaskState.COMPLETED))

    def agent_exits(self, why: str, resumable: Container[TaskId] = ()) -> None:
        """Replies to every waiting sender that the agent exits, though its message stays queued for the next start.

        The answers of `resumable` tasks arrive after the next start, so their senders keep waiting.
        """
        for task in self._requests.values():
            # A sender on another machine goes on waiting for the message, which stays in the queue.
            if _waiting_task(task) and not task.sender.machine and task.id not in resumable:
                self._owed.put_nowait(_OwedReply(task, (TextPart(text=why),), failed=True))
        self._requests.clear()

    def resume(self, finished: Task) -> None:
        """Sends the reply that an earlier host still owed: it stopped between the end of the turn and the reply."""
        self.expect(finished)
        self.turn_ended(finished)

    async def run(self) -> None:
        """Delivers owed replies until cancelled; a sender that does not respond delays no other reply."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._deliver_inferred(await self._owed.get()))

    async def drain(self, seconds: float) -> None:
        """Waits until the owed replies are delivered, at most for `seconds`."""
        try:
            await asyncio.wait_for(self._owed.join(), seconds)
        except TimeoutError:
            log.warning("replies_not_delivered", extra={"count": self._owed.qsize()})

    async def reply(self, request: Reply, current: str | None) -> Replied:
        """Replies to the request that `request` names by id, else to that of the running turn, else to the last one.

        A request that is still queued comes last: the agent has not seen it.

        Raises:
            TaskNotFound: no request waits for a reply.
        """
        task = self._find(request.task_id, current)
        try:
            await self._deliver(task, request.message.parts, failed=request.failed, inferred=False)
        except SynapseError:
            # An unproven sender may wait only at this task, which gets the answer in any case.
            if task.sender_verified:
                raise
        finally:
            # The answer is recorded even when the sender is gone.
            await self._settle(task, request)
            self._requests.pop(task.id, None)
        return Replied(task_id=task.id, to=task.sender_name)

    def _find(self, wanted: str, current: str | None) -> Task:
        if wanted:
            for task in reversed(self._requests.values()):
                if task.id.startswith(wanted) or _waiting_task(task).startswith(wanted):
                    return task
            raise TaskNotFound(wanted)
        if current in self._requests:
            return self._requests[current]
        if not self._requests:
            raise TaskNotFound("(the last request)")
        latest_first = list(reversed(self._requests.values()))
        return next((task for task in latest_first if self._was_taken(task)), latest_first[0])

    def _was_taken(self, task: Task) -> bool:
        return not is_waiting_in_queue(self._journal.known(task.id) or task)

    async def _settle(self, task: Task, request: Reply) -> None:
        """Records the explicit reply as the task's answer, whatever the screen shows later."""
        now = self._clock.now()
        task = await self._journal.load(task.id)
        if task.state.is_terminal:
            return
        await self._journal.record(
            reply_noted(task, now, "explicit"), *outcomes.replied(task, now, request.message, failed=request.failed)
        )

    async def _deliver_inferred(self, owed: _OwedReply) -> None:
        task = owed.task
        try:
            await self._deliver(task, owed.parts, failed=owed.failed, inferred=True)
        except TaskNotFound:
            log.debug("reply_not_needed", extra={"task": task.id})
        except SynapseError as error:
            # The sender is gone; the answer can still be read from our task.
            log.warning("reply_not_delivered", extra={"task": task.id, "error": error.code})
        except Exception as defect:
            # It would end the host, and the agent's program with it.
            log.exception("reply_not_delivered", extra={"task": task.id, "error": type(defect).__name__})
        else:
            await self._note_replied(task)
        finally:
            self._owed.task_done()

    async def _note_replied(self, task: Task) -> None:
        try:
            await self._journal.record(reply_noted(task, self._clock.now(), "inferred"))
        except SynapseError as error:
            # At worst the next host delivers it once more, and the sender refuses it.
            log.warning("reply_not_noted", extra={"task": task.id, "error": error.code})

    async def _deliver(self, task: Task, parts: tuple[Part, ...], *, failed: bool, inferred: bool) -> None:
        """Delivers the reply to the sender's host; a sender without a waiting task follows ours."""
        waiting = _waiting_task(task)
        if waiting and not task.sender.machine:
            reply = AgentReply(sender=self._me, in_reply_to=waiting, parts=parts, failed=failed, inferred=inferred)
            await self._hosts.deliver_reply(task.sender, reply)


def _waiting_task(task: Task) -> str:
    """Returns the id of the task on the sender's own host that a reply completes, or an empty string."""
    return task.reply_to.task_id if task.reply_to else ""


def reply_parts(task: Task) -> tuple[Part, ...]:
    """Returns the text of an inferred reply: the last artifact, or why there is none."""
    if task.state is TaskState.COMPLETED and task.artifacts:
        return task.artifacts[-1].parts
    return (TextPart(text=task.note or task.reason or "the turn ended without an answer"),)
