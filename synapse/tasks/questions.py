"""Answers the questions that an agent's program asks in the middle of its work, and decides who may answer them.

    asked ─► answered here (one answer at a time) ─► the program goes on
        └──► answered at the terminal first ───────► later answers get QuestionGone

The open question stands in the task; only the turn that is followed writes or removes it there. An answer goes to the
driver, and counts once the program is seen to go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from synapse.core.address import KEY, on_machine
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import AgentFailed, InvalidChoice, NothingAsked, PersonRequired, QuestionGone, StoreFailed
from synapse.core.events import MessageAdded, Update
from synapse.core.message import Message
from synapse.core.question import (
    Choice,
    Question,
    QuestionKind,
    chosen,
    chosen_in_words,
    denial,
    label_of,
)
from synapse.core.requests import AnswerQuestion
from synapse.core.task import Task
from synapse.core.task_metadata import answer_noted, answer_of, who_answered
from synapse.core.types import Clock
from synapse.tasks.journal import Journal
from synapse.tasks.outcomes import PERSON
from synapse.tasks.recovery import ANSWERS, is_in_doubt
from synapse.tasks.rules import may_approve
from synapse.tasks.worker import AgentWorker

log = logging.getLogger(__name__)

FindMessage = Callable[[Message, str, str], Awaitable[Task | None]]
"""Returns the task of this scope that contains the message already, if its content is the same."""
_UNPROVEN: Final = "unverified"
RECORD_SECONDS: Final = 5.0
"""How long the task may take to show a question that the driver has seen."""


class Questions:
    """Answers the questions of one agent."""

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
        """Returns the task in whose turn the agent asks `question`, which its driver saw; the task may not show it yet.

        A question that the task still has, but the driver no longer sees, counts too: its end is being recorded.
        """
        current = self._worker.current
        task = await self._journal.load(current) if current else None
        if task is None or task.state.is_terminal:
            return None
        return task if task.question or question else None

    async def recorded(self, task: Task) -> Task:
        """Returns the task once it shows the question that its driver has seen, which is being recorded."""
        is_asked = task.id == self._worker.current and self._worker.question is not None
        # Before there is proof that the program has the message, questions are not recorded.
        if is_asked and task.question is None and not is_in_doubt(task):
            await self._until(task, lambda asked: asked is not None)
        return await self._journal.load(task.id)

    async def answer(self, request: AnswerQuestion, task: Task | None, caller: Caller) -> Task | None:
        """Answers the open question of `task`, or of the agent outside of a task; returns the task after it.

        Raises:
            NothingAsked: there is no open question.
            PersonRequired: the caller may not answer it.
            InvalidChoice: the question does not offer this answer.
            QuestionGone: it was answered before.
        """
        if task is not None:
            task = await self.recorded(task)
        question = self._question(task)
        require_not_answered(task, request.question_id)
        if question is None:
            raise NothingAsked(f"{_name(task) or self._me.agent_id} has no open question")
        if request.question_id not in ("", question.id):
            raise question_gone(question)
        self._require_right(question, task, caller)
        choice = chosen(question, verdict=request.verdict, option=request.option, text=request.text)
        async with self._answering:
            return await self._give(question, choice, task, caller)

    async def answer_with(self, message: Message, task: Task, caller: Caller, digest: str, find: FindMessage) -> Task:
        """Answers the open question of `task` with a message; the task keeps it, and it is never typed as a prompt.

        A message with a `digest` answers once: `find` returns the task that contains it already.

        Raises what `answer` raises.
        """
        question = self._question(task)
        if question is None:
            raise NothingAsked(f"{_name(task)} has no open question")
        self._require_right(question, task, caller)
        choice = chosen_in_words(question, message.text)
        async with self._answering:
            if digest and (known := await find(message, task.scope, digest)):
                return known
            await self._require_open(question, task)
            # The intent first: an answer that is sent again after a crash must not answer the next question.
            marked = replace(message, metadata={**message.metadata, ANSWERS: question.id})
            added = MessageAdded(task_id=task.id, at=self._clock.now(), message=marked)
            await self._journal.record(added, digest=digest)
            return await self._give(question, choice, task, caller) or task

    async def deny(self) -> bool:
        """Denies the open question, because its task was canceled; returns False when it stays open for a person."""
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

    def _question(self, task: Task | None) -> Question | None:
        live = self._worker.question
        if task is None:
            return live
        asked = task.question
        if asked is None and task.id == self._worker.current and not task.state.is_terminal:
            # It asks before there is proof that it has the message: its dialog may hide the proof.
            return live
        # The driver's version is the program's own text, while it still asks this question.
        return live if asked is not None and live is not None and live.id == asked.id else asked

    def require_person(self, task: Task, caller: Caller) -> None:
        """Raises PersonRequired unless the caller may answer a question that the agent itself asks a person."""
        if self._is_own(caller):
            raise PersonRequired("an agent may not answer its own question", hint=caller.objection)
        if not self.may_decide(caller):
            why = f"{caller.objection}; " if caller.objection else ""
            hint = f'{why}run `synapse answer {task.short_id} "…"` in a shell of your own'
            raise PersonRequired("only a person may answer this", hint=hint)

    def _is_own(self, caller: Caller) -> bool:
        return self._me.agent_id in (caller.agent_id, caller.named_agent)

    def may_decide(self, caller: Caller) -> bool:
        """Decides whether the caller may decide what people decide."""
        return may_approve(caller, agents=self._agents_may_answer, keys=self._keys_may_answer)

    def _require_right(self, question: Question, task: Task | None, caller: Caller) -> None:
        if self.may_decide(caller):
            return
        if question.kind is not QuestionKind.CHOICE or task is None or caller.machine:
            raise PersonRequired("only a person may answer this", hint=self._hint(task, caller))
        # A process that cannot be attributed may be the agent's own.
        if self._is_own(caller) or (caller.via_socket and caller.doubt):
            raise PersonRequired("an agent may not answer its own question", hint=self._hint(task, caller))

    def _hint(self, task: Task | None, caller: Caller) -> str:
        target = task.short_id if task is not None else self._me.agent_id
        why = f"{caller.objection}; " if caller.objection else ""
        return f"{why}run `synapse approve {target}` or `synapse deny {target}` in a shell of your own"

    async def _give(self, question: Question, choice: Choice, task: Task | None, caller: Caller) -> Task | None:
        await self._require_open(question, task)
        # No record precedes these keys, so nothing else would stop a host that was replaced.
        await self._journal.verify_lease()
        how = await self._worker.answer(question.id, choice)
        if task is None:
            return None
        # The task's next state can be awaited only once this question is gone from it.
        await self._until(task, lambda now: now is None or now.id != question.id)
        answered = answer_fields(question, choice, caller, how)
        try:
            await self._journal.record(answer_noted(task, self._clock.now(), answered))
        except StoreFailed as failure:
            # The question is answered nonetheless.
            log.warning("answer_not_noted", extra={"task": task.id, "error": failure.code})
        return await self._journal.load(task.id)

    async def _require_open(self, question: Question, task: Task | None) -> None:
        latest = None if task is None else await self._journal.load(task.id)
        now = self._question(latest)
        if now is None or now.id != question.id:
            require_not_answered(latest, question.id)
            raise question_gone(question)

    async def _until(self, task: Task, holds: Callable[[Question | None], bool]) -> None:
        """Waits until `holds` is true of the task's open question, at most RECORD_SECONDS."""
        reached = asyncio.Event()

        def on_update(update: Update) -> None:
            if holds(update.task.question):
                reached.set()

        stop = self._journal.listen(on_update, task.id.__eq__)
        try:
            if not holds((await self._journal.load(task.id)).question):
                async with asyncio.timeout(RECORD_SECONDS):
                    await reached.wait()
        except TimeoutError:
            log.warning("question_not_recorded", extra={"task": task.id})
        finally:
            stop()


def answer_fields(question: Question, choice: Choice, caller: Caller, how: str) -> dict[str, str]:
    """Returns what is recorded about the answer to a question: what was chosen, by whom, and how it was given."""
    by = caller.agent_id or caller.name or (PERSON if caller.is_person else _UNPROVEN)
    if caller.remote_sender:
        by = on_machine(caller.remote_sender, caller.machine)
    if caller.name in (PERSON, _UNPROVEN):
        by = f"{KEY}{caller.name}"  # an owner may give a key any name, and it must not pass for a person
    return {
        "question": question.title,
        "id": question.id,
        "choice": label_of(question, choice),
        "by": by,
        "how": how,
    }


def require_not_answered(task: Task | None, question_id: str) -> None:
    """Raises QuestionGone, with who answered it, if the task records an answer to this question."""
    if task is None or not question_id or not (by := who_answered(task, question_id)):
        return
    title, _ = answer_of(task)
    gone = QuestionGone(f"'{title}' was answered meanwhile")
    gone.answered_by = by
    raise gone


def question_gone(question: Question) -> QuestionGone:
    """Returns the error for a question that is not asked any more, if nobody knows who answered it."""
    return QuestionGone(f"'{question.title}' was answered meanwhile")


def _name(task: Task | None) -> str:
    return "" if task is None else f"task {task.short_id}"
