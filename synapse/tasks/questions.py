"""What an agent's program asks in the middle of its work, and who may answer it.

    asked ─► answered here (one answer at a time) ─► the program goes on
        └──► answered at the terminal first ───────► whoever comes later is told

What is asked stands in the task, and only the turn that is followed writes or removes it there. An answer is handed to
the driver, and it counts once the program is seen to go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from synapse.core.agent import AgentEntry
from synapse.core.caller import APPROVE, Caller
from synapse.core.errors import AgentFailed, InvalidChoice, NothingAsked, PersonRequired, QuestionGone, StoreFailed
from synapse.core.events import MessageAdded, MetadataChanged, Update
from synapse.core.message import Message
from synapse.core.question import (
    ANSWERED,
    Choice,
    Question,
    QuestionKind,
    chosen,
    chosen_in_words,
    denial,
    label_of,
    open_question,
)
from synapse.core.requests import AnswerQuestion
from synapse.core.task import Task
from synapse.core.types import Clock
from synapse.tasks.journal import Journal
from synapse.tasks.recovery import ANSWERS, is_in_doubt
from synapse.tasks.worker import AgentWorker

log = logging.getLogger(__name__)

FindMessage = Callable[[Message, str, str], Awaitable[Task | None]]
"""Returns the task of this scope that has the message already, if its content is the same."""
RECORD_SECONDS: Final = 5.0
"""How long the record may take to say what the driver has seen."""


class Questions:
    """Answers what one agent asks."""

    def __init__(
        self,
        me: AgentEntry,
        journal: Journal,
        worker: AgentWorker,
        clock: Clock,
        *,
        agents_may_answer: bool,
        keys_may_answer: bool = True,
    ) -> None:
        self._me = me
        self._journal = journal
        self._worker = worker
        self._clock = clock
        self._agents_may_answer = agents_may_answer
        self._keys_may_answer = keys_may_answer
        self._answering = asyncio.Lock()

    async def asking(self, question: Question | None) -> Task | None:
        """The task in whose turn the agent asks `question`, which its driver saw; the task may say so a moment later.

        A question that the task still has, and the driver saw no more, counts too: its end is just being recorded.
        """
        current = self._worker.current
        task = await self._journal.load(current) if current else None
        if task is None or task.state.is_terminal:
            return None
        return task if open_question(task) or question else None

    async def answer(self, request: AnswerQuestion, task: Task | None, caller: Caller) -> Task | None:
        """Answer what is asked in `task`, or without one by the agent itself; return the task as it goes on.

        Raises:
            NothingAsked: nobody is asked anything there.
            PersonRequired: the caller may not answer that.
            InvalidChoice: no such answer is offered.
            QuestionGone: somebody answered first.
        """
        if task is not None:
            task = await self._recorded(task)
        question = self._question(task)
        if question is None:
            raise NothingAsked(f"{_name(task) or self._me.agent_id} asks nothing now")
        if request.question_id not in ("", question.id):
            raise _gone(question)
        self._require_right(question, task, caller)
        choice = chosen(question, verdict=request.verdict, option=request.option, text=request.text)
        async with self._answering:
            return await self._give(question, choice, task, caller)

    async def answer_with(self, message: Message, task: Task, caller: Caller, digest: str, find: FindMessage) -> Task:
        """Answer what is asked in `task` with a message; the task keeps it, and it is never typed as a prompt.

        A message with a `digest` answers once: `find` finds the task that has it already.

        Raises as `answer` does.
        """
        question = self._question(task)
        if question is None:
            raise NothingAsked(f"{_name(task)} asks nothing now")
        self._require_right(question, task, caller)
        choice = chosen_in_words(question, message.text)
        async with self._answering:
            if digest and (known := await find(message, task.scope, digest)):
                return known
            await self._require_open(question, task)
            # The intent first: an answer that is sent again after a crash must not answer the next question.
            said = replace(message, metadata={**message.metadata, ANSWERS: question.id})
            added = MessageAdded(task_id=task.id, at=self._clock.now(), message=said)
            await self._journal.record(added, digest=digest)
            return await self._give(question, choice, task, caller) or task

    async def turn_down(self) -> bool:
        """Say no to what is asked now, because its task was canceled; False when it stays open for a person."""
        question = self._worker.question
        if question is None:
            return True
        choice = denial(question)
        if choice is None:
            return False
        try:
            await self._worker.answer(question.id, choice)
        except QuestionGone:
            return True
        except (AgentFailed, InvalidChoice) as failure:
            log.warning("question_not_denied", extra={"error": failure.code})
            return False
        return True

    async def _recorded(self, task: Task) -> Task:
        """The task once it says itself what its program is seen to ask: that is just being recorded."""
        is_asked = task.id == self._worker.current and self._worker.question is not None
        # Before there is proof that the program has the message, nothing is recorded but that.
        if is_asked and open_question(task) is None and not is_in_doubt(task):
            await self._until(task, lambda asked: asked is not None)
        return await self._journal.load(task.id)

    def _question(self, task: Task | None) -> Question | None:
        live = self._worker.question
        if task is None:
            return live
        asked = open_question(task)
        if asked is None and task.id == self._worker.current and not task.state.is_terminal:
            # It asks before there is proof that it has the message: its dialog may hide that.
            return live
        # The program's own words, where it still asks the same.
        return live if asked is not None and live is not None and live.id == asked.id else asked

    def _require_right(self, question: Question, task: Task | None, caller: Caller) -> None:
        if caller.may_decide or self._agents_may_answer:
            return
        if self._keys_may_answer and caller.actions is not None and APPROVE in caller.actions:
            return
        if question.kind is not QuestionKind.CHOICE or task is None:
            raise PersonRequired("only a person answers that", hint=self._hint(task, caller))
        # A process of which nobody can tell whose it is may be the agent's own.
        if self._me.agent_id in (caller.agent_id, caller.named_agent) or (caller.via_socket and caller.doubt):
            raise PersonRequired("an agent does not answer its own question", hint=self._hint(task, caller))

    def _hint(self, task: Task | None, caller: Caller) -> str:
        target = task.short_id if task is not None else self._me.agent_id
        why = f"{caller.objection}; " if caller.objection else ""
        return f"{why}a person types `synapse approve {target}` or `synapse deny {target}` in a shell of their own"

    async def _give(self, question: Question, choice: Choice, task: Task | None, caller: Caller) -> Task | None:
        await self._require_open(question, task)
        # No record precedes the keys, so nothing else would stop a host that another one has replaced.
        await self._journal.verify_lease()
        if task is None:
            await self._worker.answer(question.id, choice)
            return None
        how = await self._worker.answer(question.id, choice)
        # Only when the task says no more that this is asked, its next state can be waited for.
        await self._until(task, lambda now: now is None or now.id != question.id)
        answered = {"question": question.title, "choice": label_of(question, choice), "by": _who(caller), "how": how}
        await self._note(task, answered)
        return await self._journal.load(task.id)

    async def _require_open(self, question: Question, task: Task | None) -> None:
        now = self._question(None if task is None else await self._journal.load(task.id))
        if now is None or now.id != question.id:
            raise _gone(question)

    async def _until(self, task: Task, holds: Callable[[Question | None], bool]) -> None:
        """Wait until that holds for what the task asks, but not for ever."""
        reached = asyncio.Event()

        def hear(update: Update) -> None:
            if holds(open_question(update.task)):
                reached.set()

        stop = self._journal.listen(hear, task.id.__eq__)
        try:
            if not holds(open_question(await self._journal.load(task.id))):
                async with asyncio.timeout(RECORD_SECONDS):
                    await reached.wait()
        except TimeoutError:
            log.warning("question_not_recorded", extra={"task": task.id})
        finally:
            stop()

    async def _note(self, task: Task, answered: dict[str, Any]) -> None:
        try:
            noted = MetadataChanged(task_id=task.id, at=self._clock.now(), metadata={ANSWERED: answered})
            await self._journal.record(noted)
        except StoreFailed as failure:
            # It is answered all the same.
            log.warning("answer_not_noted", extra={"task": task.id, "error": failure.code})


def _gone(question: Question) -> QuestionGone:
    return QuestionGone(f"'{question.title}' was answered meanwhile")


def _name(task: Task | None) -> str:
    return "" if task is None else f"task {task.short_id}"


def _who(caller: Caller) -> str:
    return caller.agent_id or caller.name or ("person" if caller.is_person else "unverified")
