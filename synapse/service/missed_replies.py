"""What an earlier host waited for: a reply that came meanwhile is taken from the task of the agent that was asked."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from synapse.core.caller import Caller
from synapse.core.clock import Clock
from synapse.core.errors import SynapseError
from synapse.core.events import MetadataChanged
from synapse.core.message import Message, MessageId, Role
from synapse.core.requests import Sender, SendMessage
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import Task, TaskState
from synapse.service import outcomes
from synapse.service.absences import WAITS_FOR_INBOX
from synapse.service.intake import Intake
from synapse.service.journal import Journal
from synapse.service.origin import sender_in
from synapse.service.replies import REPLIED, final_words
from synapse.service.waits import WAITER_LEFT

log = logging.getLogger(__name__)


class MissedReplies:
    """Settles what waited for another agent's reply when an earlier host ended."""

    def __init__(self, journal: Journal, store: TaskStore, intake: Intake, clock: Clock) -> None:
        self._journal = journal
        self._store = store
        self._intake = intake
        self._clock = clock

    async def note_waiters_left(self, waiting: Iterable[Task]) -> None:
        """Who waited is most likely gone with the program. To be called before anybody can come back and follow."""
        for task in waiting:
            left = MetadataChanged(task_id=task.id, at=self._clock.now(), metadata={WAITER_LEFT: True})
            await self._journal.record(left)

    async def take(self, waiting: Iterable[Task]) -> None:
        """Answer those whose answer is there, and end those that the agent that was to be asked does not know of.

        To be called once this host can be found: a reply that comes later is then carried here.
        """
        for task in waiting:
            try:
                await self._settle(task)
            except SynapseError as error:
                # It was answered just now, or its answer stays where it is; the others are taken.
                log.warning("reply_not_taken", extra={"task": task.id, "error": error.code})

    async def _settle(self, waiting: Task) -> None:
        asked = await self._asked(waiting)
        if asked is None:
            note = "the program that waited for it is gone"
            facts = outcomes.ended(waiting, self._clock.now(), TaskState.FAILED, outcomes.AGENT_EXITED, note)
            await self._journal.record(*facts)
        elif asked.state.is_terminal:
            await self._intake.take_missed(_reply(asked, waiting), Caller(agent_id=asked.agent_id))

    async def _asked(self, waiting: Task) -> Task | None:
        """The task that the agent that was asked has of it."""
        inbox = waiting.metadata[WAITS_FOR_INBOX]
        page = await self._store.list(TaskQuery(inbox=inbox, metadata={"sender_task_id": waiting.id}))
        # Everybody can name our task as the one that waits; the sender's inbox is the registry's word.
        return next((task for task in page.tasks if sender_in(task.metadata).inbox == waiting.inbox), None)


def _reply(answered: Task, waiting: Task) -> SendMessage:
    marks = {"failed": answered.state is not TaskState.COMPLETED, "inferred": REPLIED not in answered.metadata}
    return SendMessage(
        message=Message(message_id=MessageId(""), role=Role.AGENT, parts=final_words(answered)),
        dialect=waiting.dialect,
        sender=Sender(sender_id=answered.agent_id),
        in_reply_to=waiting.id,
        metadata={mark: True for mark, holds in marks.items() if holds},
    )
