"""Accepts messages for one agent: checks a message, makes it durable, then queues it and answers the caller.

Messages beyond a rate limit between two agents are held, so that a pair cannot thank each other for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from synapse.core.address import PERSON, SYSTEM, split_machine
from synapse.core.agent import AgentEntry
from synapse.core.caller import LOCAL_SCOPE, Caller
from synapse.core.driver import Answered, QuestionRaised
from synapse.core.errors import (
    AccessDenied,
    Conflict,
    IllegalTransition,
    InvalidField,
    InvalidRequest,
    NothingAsked,
    PriorityOutOfRange,
    PushNotSupported,
    QueueFull,
    SenderMismatch,
    TaskFinished,
    TaskNotFound,
    VersionConflict,
)
from synapse.core.events import AttentionChanged, MessageAdded, ReceiptChanged, StateChanged, TaskEvent, TaskOpened
from synapse.core.message import Json, Message, MessageId, Role, Sender, TextPart
from synapse.core.push import PushConfig, PushService
from synapse.core.question import Choice, Question, chosen, chosen_in_words, label_of
from synapse.core.registry import Registry
from synapse.core.requests import AnswerQuestion, AskPerson, CreateTask, SendMessage, VoidMessage
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import (
    DEFAULT_PRIORITY,
    INTERRUPT_PRIORITY,
    ReceiptStep,
    ReplyTo,
    Task,
    TaskId,
    TaskState,
)
from synapse.core.task_metadata import (
    answer_noted,
    asking,
    asking_person,
    claimed_waiting_task,
    delivering,
    opening_metadata,
)
from synapse.core.types import Clock, Deadline
from synapse.tasks import outcomes
from synapse.tasks.admission import (
    ANYTHING,
    Acceptance,
    check_id,
    marked_with_sender,
    message_digest,
    sender_of,
)
from synapse.tasks.deferral import DeferredReplies
from synapse.tasks.feed import Feed
from synapse.tasks.journal import Journal, rebuild
from synapse.tasks.late_answers import LateAnswers
from synapse.tasks.pair_limit import PairRateLimit
from synapse.tasks.person_questions import MOST_OPEN_QUESTIONS, is_open_question, new_question
from synapse.tasks.questions import Questions, answer_fields, question_gone, require_not_answered
from synapse.tasks.quota import Quota, size_of
from synapse.tasks.recovery import ANSWERS, RecoveryPlan, as_prompt, last_prompt
from synapse.tasks.relayed import (
    check_new_task_id,
    end_of_wait,
    find_relayed,
    is_taken_reply,
    reply_marks,
    require_awaited,
    withdrawal,
    withdrawn_send,
)
from synapse.tasks.replies import Replies
from synapse.tasks.rules import VOID, Limits, deadline_of, find_repeated, require_room_in_queue
from synapse.tasks.senders import SenderRule
from synapse.tasks.waits import WaitCycles, was_asked
from synapse.tasks.worker import AgentWorker

log = logging.getLogger(__name__)

_LATELY_FINISHED: Final = 50
"""How many finished tasks are searched for replies that an earlier host still owed."""


class Intake:
    """Accepts messages for one agent."""

    def __init__(  # noqa: PLR0913 - every part that takes part in accepting a message
        self,
        me: AgentEntry,
        *,
        journal: Journal,
        store: TaskStore,
        feed: Feed,
        worker: AgentWorker,
        replies: Replies,
        deferred: DeferredReplies,
        questions: Questions,
        registry: Registry,
        clock: Clock,
        new_id: Callable[[], str],
        new_task_id: Callable[[], str],
        new_context_id: Callable[[], str],
        limits: Limits,
        push_configs: PushService | None = None,
        acceptance: Acceptance = ANYTHING,
        quota: Quota | None = None,
    ) -> None:
        self._me = me
        self._journal = journal
        self._store = store
        self._worker = worker
        self._replies = replies
        self._deferred = deferred
        self._questions = questions
        self._registry = registry
        self._clock = clock
        self._new_id = new_id
        self._new_task_id = new_task_id
        self._new_context_id = new_context_id
        self._limits = limits
        self._push_configs = push_configs
        self._acceptance = acceptance
        self._quota = quota
        self._pair_limit = PairRateLimit(limits.pair_per_minute)
        self._senders = SenderRule.of(me)
        self._held: list[tuple[TaskId, str]] = []
        self._opening_questions = 0
        self._cycles = WaitCycles(journal, registry, store, clock)
        self.late_answers = LateAnswers(
            self, journal=journal, feed=feed, deferred=deferred, clock=clock, new_task_id=new_task_id
        )

    def send(self, request: SendMessage, caller: Caller, *, waits_for_end: bool = False) -> Awaitable[Task]:
        """Queues a message; a reply to a waiting task completes that task instead.

        With `waits_for_end`, an agent that can answer at once does so, and message and answer are recorded together.

        Raises:
            TaskNotFound: `in_reply_to` or `task_id` names no task that waits.
            MessageIdReused: the message id was used before with other content.
            PushNotSupported, InvalidField: its webhook cannot be used, or it may not choose the task's id.
            UnsupportedMediaType: the agent does not accept such parts.
            InvalidField: an id in its metadata is not a valid id.
            PersonRequired, InvalidChoice, QuestionGone: it answers a question.
            SenderNotAccepted: the agent does not accept messages of this sender.
            QueueFull, QuotaExceeded, PriorityOutOfRange, SenderMismatch, TaskFinished.
        """
        if not 1 <= request.priority <= 5:
            raise PriorityOutOfRange(request.priority)
        check_id("metadata.in_reply_to", request.in_reply_to)
        if not request.in_reply_to:
            self._acceptance.check(request.message)
        if request.opens:
            check_new_task_id(request.opens, caller)
        if request.push is not None:
            return self._send_with_push(request, request.push, caller)
        if request.in_reply_to:
            return self._take_reply(request, caller)
        if request.task_id:
            return self._follow_up(request, caller)
        return self._open(request, caller, waits_for_end=waits_for_end)

    async def require_may_answer(self, caller: Caller, claimed: Sender | None = None) -> None:
        """Raises SenderNotAccepted unless the caller may answer questions: a person's decision, or a message."""
        if not self._questions.may_decide(caller):
            await self._require_accepted(claimed, caller)

    async def _require_accepted(self, claimed: Sender | None, caller: Caller) -> None:
        """Raises SenderNotAccepted unless the agent accepts messages of this sender."""
        if not self._senders.is_open:
            self._senders.check(claimed, caller, await self._registry.agents() if caller.is_agent else ())

    async def create(self, request: CreateTask, caller: Caller) -> Task:
        """Opens a task that only waits for a reply. Raises QuotaExceeded."""
        await self._take_quota(request)
        _, metadata = await self._origin(request, caller)
        task = await self._journal.record(self._open_event(request, caller, {**metadata, **self._asked_in(caller)}))
        self._deferred.wait_opened(task)
        return task

    async def withdraw(self, request: VoidMessage, caller: Caller) -> Task:
        """Returns the task that the message opened; if it has not arrived, records a task that claims its id.

        Raises InvalidField: the caller may not choose the id of a task.
        """
        check_new_task_id(request.opens, caller)
        if known := await self._find_claimed(request.message_id, caller):
            return known
        send = withdrawn_send(request)
        _, metadata = await self._origin(send, caller)
        opened = self._open_event(send, caller, metadata)
        ended = withdrawal(rebuild(None, (opened,)), request, opened.at)
        try:
            return await self._journal.record(opened, *ended, digest=VOID)
        except (VersionConflict, IllegalTransition):
            # The message, or another copy of this request, has just been recorded.
            if known := await self._find_claimed(request.message_id, caller):
                return known
            raise

    async def _find_claimed(self, message_id: str, caller: Caller) -> Task | None:
        known = await find_relayed(message_id, caller, self._me.inbox, self._store)
        return None if known is None else await self._journal.load_latest(known)

    def _asked_in(self, caller: Caller) -> Json:
        """Returns the metadata that names the request in whose turn the agent itself asks; empty without one."""
        if self._me.agent_id not in (caller.agent_id, caller.named_agent):
            return {}
        current = self._deferred.request_of(self._worker.working_on)
        task = self._journal.known(current) if current else None
        return {} if task is None or task.state.is_terminal else asking(task.id)

    async def ask_person(self, request: AskPerson, caller: Caller) -> Task:
        """Opens a task that asks a person.

        Raises:
            AccessDenied: the caller is not this agent.
            InvalidField: a text is empty or too long.
            QueueFull: as many questions of the agent wait for a person as may.
            QuotaExceeded.
        """
        if self._me.agent_id not in (caller.agent_id, caller.named_agent):
            raise AccessDenied(f"only {self._me.agent_id} itself may ask in its name", hint=caller.objection)
        question = new_question(request.message.text, request.options, self._new_id())
        asked = CreateTask(message=request.message, dialect=request.dialect)
        await self._take_quota(asked)
        _, metadata = await self._origin(asked, caller)
        self._require_few_questions()
        opened = self._open_event(asked, caller, {**metadata, **asking_person(), **self._asked_in(caller)})
        # A task as after its first event: the others are recorded with it.
        task = rebuild(None, (opened,))
        events = outcomes.events_for(task, QuestionRaised(question), opened.at)
        self._opening_questions += 1
        try:
            task = await self._journal.record(opened, *events)
        finally:
            self._opening_questions -= 1
        self._deferred.wait_opened(task)
        return task

    async def answer_person(self, request: AnswerQuestion, task: Task, caller: Caller) -> Task:
        """Completes a question of the agent's own with the answer of a person.

        Raises PersonRequired, NothingAsked, QuestionGone or InvalidChoice.
        """
        require_not_answered(task, request.question_id)
        question = self._open_question(task)
        if request.question_id not in ("", question.id):
            raise question_gone(question)
        self._questions.require_person(task, caller)
        choice = chosen(question, verdict=request.verdict, option=request.option, text=request.text)
        return await self._complete_question(task, question, choice, caller)

    async def _answer_person_with(self, message: Message, task: Task, caller: Caller, digest: str) -> Task:
        question = self._open_question(task)
        self._questions.require_person(task, caller)
        choice = chosen_in_words(question, message.text)
        marked = replace(message, metadata={**message.metadata, ANSWERS: question.id})
        added = MessageAdded(task_id=task.id, at=self._clock.now(), message=marked)
        return await self._complete_question(task, question, choice, caller, added, digest=digest)

    async def _complete_question(
        self, task: Task, question: Question, choice: Choice, caller: Caller, *before: TaskEvent, digest: str = ""
    ) -> Task:
        now, label = self._clock.now(), label_of(question, choice)
        noted = answer_noted(task, now, answer_fields(question, choice, caller, "message"))
        answer = Answered(parts=(TextPart(text=label),), source=outcomes.PERSON)
        events = (*before, noted, *outcomes.answered(task, now, answer, "a person answered"))
        try:
            return await self.late_answers.record_persons_answer(events, caller, digest=digest)
        except (IllegalTransition, TaskFinished) as lost:
            require_not_answered(await self._journal.load(task.id), question.id)
            raise question_gone(question) from lost

    def _open_question(self, task: Task) -> Question:
        if task.question is None:
            raise NothingAsked(f"task {task.short_id} is {task.state.value} and has no open question")
        return task.question

    def _require_few_questions(self) -> None:
        waiting = sum(is_open_question(task) for task in self._journal.open_tasks()) + self._opening_questions
        if waiting >= MOST_OPEN_QUESTIONS:
            raise QueueFull(
                f"{waiting} questions of {self._me.agent_id} wait for a person already",
                hint="wait for their answers, or cancel one; `synapse approvals` lists them",
            )

    async def take_missed_reply(self, request: SendMessage, author: Caller) -> Task:
        """Accepts a reply that an agent left in the store; `author` is that agent, proven by the inbox that has it.

        Raises TaskNotFound.
        """
        return await self._take_reply(request, Caller(), author)

    async def instruct(self, text: str, message_id: MessageId) -> Task:
        """Queues the initial instructions, sent by Synapse itself."""
        return await self._queue_from_system(self._opened_by_system(text, message_id))

    async def _queue_from_system(self, opened: TaskOpened) -> Task:
        task = await self._journal.record(opened)
        await self._worker.enqueue(task, opened.message)
        return task

    def _opened_by_system(self, text: str, message_id: MessageId) -> TaskOpened:
        message = Message(message_id=message_id, role=Role.USER, parts=(TextPart(text=text),))
        system = Sender(sender_id=SYSTEM, sender_type="system", sender_endpoint=self._me.endpoint)
        request = SendMessage(message=message, dialect="synapse")
        return self._open_event(request, Caller(), opening_metadata({}, system, verified=True))

    async def resume(self, left: RecoveryPlan) -> None:
        """Carries out the plan for the tasks of an earlier host: records, notifies the senders that wait, queues."""
        finished = frozenset(state for state in TaskState if state.is_terminal)
        page = await self._store.list(TaskQuery(inbox=self._me.inbox, states=finished, limit=_LATELY_FINISHED))
        for task in page.tasks:
            self._replies.resume(task)
            await self.late_answers.resume(task)
        # Includes tasks in doubt or with an open question, for which the plan may have no events.
        for task in self._journal.open_tasks():
            self._replies.expect(task)
        for events in left.events:
            with suppress(Conflict):  # it may have been canceled since
                self._replies.turn_ended(await self._journal.record(*events))
        for task in left.resumed:
            message = last_prompt(task)
            self._worker.resume(task, message, first=message is task.message)
        for task in left.queue:
            await self._enqueue(task)

    async def release_held(self) -> None:
        """Queues the held messages whose pair is below its rate limit again."""
        for held in tuple(self._held):
            task_id, sender = held
            task = await self._journal.load(task_id)
            if task.state.is_terminal:
                self._held.remove(held)
            elif self._pair_limit.admit(sender, self._me.agent_id, self._clock.monotonic()):
                task = await self._journal.record(AttentionChanged(task_id=task.id, at=self._clock.now(), attention=""))
                # Before it is queued, so that a later failure does not queue it twice.
                self._held.remove(held)
                await self._enqueue(task)

    async def _send_with_push(self, request: SendMessage, config: PushConfig, caller: Caller) -> Task:
        if self._push_configs is None:
            raise PushNotSupported
        # Its position in the log is before the message, so the webhook misses no event of the task.
        position = await self._push_configs.expect(config, request.task_id)
        task = await self.send(replace(request, push=None), caller)
        await self._push_configs.keep(task, config, position)
        # The current state; an open task is in memory, so a caller that follows it joins at once.
        return await self._journal.load(task.id)

    async def _enqueue(self, task: Task) -> None:
        message = last_prompt(task)
        await self._worker.enqueue(task, message, first=message is task.message)

    async def _open(
        self,
        request: SendMessage,
        caller: Caller,
        *,
        waits_for_end: bool = False,
        is_limited: bool = True,
        delivers: Task | None = None,
    ) -> Task:
        """Opens a task, or returns the one that an earlier copy of the message opened.

        `is_limited` applies the quota and the limit of the queue. `delivers` is the ended task whose answer the message
        is.

        Messages rarely come twice, so copies are looked up only when this one is refused: the store refuses a message
        id that it has. A relayed message is sent again until its receipt arrives, and no limit may refuse its copy.
        """
        if caller.machine and (known := await self._find_relayed(request.message, caller)):
            return known
        if delivers is None:
            await self._require_accepted(request.sender, caller)
        # An id that we generate is claimed too, so that a caller who was told it finds the task by it.
        if not request.message.message_id:
            request = replace(request, message=self._with_id(request.message))
        digest = message_digest(request.message) if caller.machine else self._acceptance.digest(request.message)
        try:
            if is_limited:
                await self._take_quota(request)
                waiting = self._worker.queue_length + len(self._held)
                require_room_in_queue(waiting, self._limits.queue, self._me.agent_id)
            return await self._open_new(request, caller, digest, waits_for_end=waits_for_end, delivers=delivers)
        except (VersionConflict, IllegalTransition, QueueFull):
            known = await self._find_repeated(request.message, caller.scope, digest)
            if known is None:
                raise
            return known

    async def _open_new(
        self, request: SendMessage, caller: Caller, digest: str, *, waits_for_end: bool, delivers: Task | None
    ) -> Task:
        if request.parent_id:
            await self._check_parent(request.parent_id, caller)
        deadline = deadline_of(request, self._limits.ttl_seconds, self._clock)
        sender, metadata = await self._origin(request, caller)
        opened = self._open_event(request, caller, metadata, deadline)
        if delivers is not None:
            opened = _delivering(delivers, opened)
        is_persons = split_machine(sender)[0] == PERSON
        is_admitted = is_persons or self._pair_limit.admit(sender, self._me.agent_id, self._clock.monotonic())
        is_plain = is_admitted and not request.response_expected and request.priority != INTERRUPT_PRIORITY
        answer = self._worker.events_at_once if is_plain and waits_for_end else None
        events = (opened,) if is_admitted else (opened, self._hold(opened, sender))
        task = await self._journal.record_nowait(*events, digest=digest, then=answer)
        if task.version > len(events):
            return task  # answered at once
        if request.response_expected:
            # Once it is durable: of two requests that close a cycle at the same time, the later one sees the other.
            await self._cycles.refuse(task)
        self._replies.expect(task)
        if is_admitted:
            await self._worker.enqueue(task, opened.message)
        else:
            self._held.append((task.id, sender))
        return task

    async def _follow_up(self, request: SendMessage, caller: Caller) -> Task:
        """Continues a task: the message answers its open question, or is added to it and queued like any other."""
        task = await self._find_continued(request, caller)
        if task.question:
            await self.require_may_answer(caller, request.sender)
        else:
            await self._require_accepted(request.sender, caller)
        digest = self._acceptance.digest(request.message) if request.message.message_id else ""
        if digest and (known := await self._find_repeated(request.message, task.scope, digest)):
            return known
        if task.state.is_terminal:
            raise TaskFinished(f"task {task.short_id} is {task.state.value} and accepts no more messages")
        if not task.state.is_interrupted:
            # Its end would swallow a second message, and recovery would find only the last one.
            raise Conflict(
                f"task {task.short_id} is {task.state.value}; it accepts a message only when it asks for input",
                hint="send a new message without a task id; it is queued",
            )
        message = self._with_id(request.message)
        if task.asks_person:
            return await self._answer_person_with(message, task, caller, digest)
        if task.question:
            return await self._questions.answer_with(message, task, caller, digest, self._find_repeated)
        await self._take_quota(request)
        sender, verified = sender_of(request.sender, caller, ())
        message = marked_with_sender(as_prompt(message), sender, caller, task, verified=verified)
        return await self._add_prompt(message, task, digest)

    async def _find_continued(self, request: SendMessage, caller: Caller) -> Task:
        """Returns the task that a message continues, with the question that the caller may have been shown."""
        task = await self._journal.find(request.task_id, self._me.inbox, exact=request.exact)
        if not task.state.is_interrupted:
            # A caller of a gateway may have read the question in the store before this process learns it is durable.
            task = await self._journal.load_latest(task.id)
        if not caller.sees(task.scope):
            raise TaskNotFound(request.task_id)
        if request.context_id not in ("", task.context_id):
            raise InvalidRequest(
                f"task {task.short_id} belongs to another context than '{request.context_id}'",
                hint="leave out the context: the task has one",
            )
        if not task.state.is_interrupted:
            # The status shows a question as soon as the driver sees it, and callers answer what they were shown.
            task = await self._questions.recorded(task)
        return task

    async def _add_prompt(self, message: Message, task: Task, digest: str) -> Task:
        now = self._clock.now()
        try:
            task = await self._journal.record(
                MessageAdded(task_id=task.id, at=now, message=message),
                ReceiptChanged(task_id=task.id, at=now, step=ReceiptStep.QUEUED, source="journal"),
                StateChanged(task_id=task.id, at=now, state=TaskState.SUBMITTED),
                digest=digest,
            )
        except Conflict:
            # The second of two copies that were sent at the same time.
            if digest and (known := await self._find_repeated(message, task.scope, digest)):
                return known
            raise
        await self._worker.enqueue(task, message, first=False)
        return task

    async def _take_reply(self, request: SendMessage, caller: Caller, author: Caller | None = None) -> Task:
        """Completes the task that waits for this reply."""
        task = await self._journal.load(await self._journal.resolve_id(request.in_reply_to, self._me.inbox))
        if caller.machine:
            return await self._take_relayed_reply(request, task, caller)
        # A question to a person is answered as questions are, by a person.
        if task.queued or task.asks_person or task.state.is_terminal:
            raise TaskNotFound(request.in_reply_to)
        sender, _ = sender_of(request.sender, caller, ())
        asked = task.waits_for
        if asked and caller.is_agent:
            agents = await self._registry.agents()
            if not any(was_asked(asked, one) for one in agents if one.agent_id == caller.agent_id):
                raise SenderMismatch(
                    f"{asked.agent_id} was asked, so {sender.sender_id} cannot answer", hint="send a new message"
                )
        if author is None and self._is_own(task) and not (caller.is_person or (asked and caller.is_agent)):
            # Only a claim says that it comes from the agent that was asked.
            await self._require_accepted(request.sender, caller)
        await self._check_as_message(request, caller)
        events = outcomes.replied(task, self._clock.now(), request.message, **reply_marks(request))
        return await self.late_answers.record_reply(events, request, author or caller)

    async def _take_relayed_reply(self, request: SendMessage, task: Task, caller: Caller) -> Task:
        """Completes a task that waits for an agent of the caller's machine; see `SendMessage.in_reply_to`."""
        if is_taken_reply(task, request, caller):
            return task
        if known := await self._find_relayed(request.message, caller):
            return known  # it was taken back
        require_awaited(task, request, caller)
        sender_of(request.sender, caller, ())
        await self._check_as_message(request, caller)
        try:
            return await self.late_answers.record_reply(end_of_wait(task, request, self._clock.now()), request, caller)
        except (IllegalTransition, TaskFinished) as lost:
            task = await self._journal.load(task.id)
            if is_taken_reply(task, request, caller):
                return task
            raise TaskNotFound(request.in_reply_to) from lost

    async def _check_as_message(self, request: SendMessage, caller: Caller) -> None:
        """Raises what a message is refused for, before the reply is recorded: it may have to be queued as one."""
        check_id("metadata.sender_task_id", claimed_waiting_task(request.metadata))
        deadline_of(request, self._limits.ttl_seconds, self._clock)
        if request.parent_id:
            await self._check_parent(request.parent_id, caller)

    def accepts(self, message: Message) -> bool:
        """Decides whether the message can be typed; see `LateMessages`."""
        return self._acceptance.takes(message)

    def expects(self, waiting: Task) -> bool:
        """Decides whether the agent may have asked for the answer of `waiting`; see `LateMessages`."""
        return self._senders.is_open or self._is_own(waiting)

    def _is_own(self, waiting: Task) -> bool:
        """Decides whether the agent itself, proven, opened the task that waits. Its id may have changed since."""
        return waiting.sender_verified and waiting.sender.sender_id == waiting.agent_id

    async def open_late_answer(self, reply: SendMessage, author: Caller, waiting: Task) -> None:
        """Queues the reply to `waiting` as a message; see `LateMessages`."""
        # A reply is never refused by a limit: it is recorded by now. There is at most one for each task that waits.
        # It is this machine's own message, so no other machine may read or cancel it.
        author = replace(author, scope=LOCAL_SCOPE) if author.machine else author
        await self._open(reply, author, is_limited=False, delivers=waiting)

    async def open_notice(self, text: str, waiting: Task) -> None:
        """Queues a message of Synapse's about `waiting`; see `LateMessages`."""
        await self._queue_from_system(_delivering(waiting, self._opened_by_system(text, MessageId(self._new_id()))))

    async def _find_relayed(self, message: Message, caller: Caller) -> Task | None:
        if not message.message_id:
            return None
        return await self._find_repeated(message, caller.scope, message_digest(message))

    async def _find_repeated(self, message: Message, scope: str, digest: str) -> Task | None:
        known = await find_repeated(message, digest, scope, self._me.inbox, self._store)
        # The message may be durable before this process learns it, while the task in memory is still without it.
        return None if known is None else await self._journal.load_latest(known)

    async def _take_quota(self, request: SendMessage | CreateTask) -> None:
        if self._quota is not None:
            await self._quota.take(size_of(request.message, request.metadata))

    async def _check_parent(self, parent_id: str, caller: Caller) -> None:
        """Raises InvalidField for a parent that the caller does not see; it may be another agent's task."""
        with suppress(TaskNotFound):
            parent = await self._store.load(TaskId(parent_id))
            if caller.sees(parent.scope) and not parent.hidden:
                return
        raise InvalidField("parentId", f"there is no task '{parent_id}'")

    def _hold(self, opened: TaskOpened, sender: str) -> AttentionChanged:
        why = (
            f"held: more than {self._pair_limit.limit} messages within a minute between {sender} and "
            f"{self._me.agent_id}; it is queued when their rate drops; `synapse cancel` cancels it"
        )
        return AttentionChanged(task_id=opened.task_id, at=opened.at, attention=why)

    def _open_event(
        self,
        request: SendMessage | CreateTask,
        caller: Caller,
        metadata: dict[str, Any],
        deadline: Deadline | None = None,
    ) -> TaskOpened:
        opens = request.opens if isinstance(request, SendMessage) else ""
        return TaskOpened(
            task_id=TaskId(opens or self._new_task_id()),
            at=self._clock.now(),
            agent_id=self._me.agent_id,
            inbox=self._me.inbox,
            context_id=request.context_id or self._new_context_id(),
            scope=caller.scope,
            dialect=request.dialect,
            message=self._with_id(request.message),
            priority=request.priority if isinstance(request, SendMessage) else DEFAULT_PRIORITY,
            queued=isinstance(request, SendMessage),
            deadline=deadline,
            metadata=metadata,
            parent_id=request.parent_id if isinstance(request, SendMessage) else "",
        )

    def _with_id(self, message: Message) -> Message:
        if message.message_id:
            return message
        return replace(message, message_id=MessageId(self._new_id()))

    async def _origin(self, request: SendMessage | CreateTask, caller: Caller) -> tuple[str, dict[str, Any]]:
        """Returns the sender's id and the task's metadata."""
        # The registry may have to be read from disk, so it is asked only for a sender that is an agent.
        claimed = request.sender.sender_id if request.sender else ""
        is_agent = caller.is_agent or claimed not in ("", PERSON)
        sender, verified = sender_of(request.sender, caller, await self._registry.agents() if is_agent else ())
        check_id("metadata.sender_task_id", claimed_waiting_task(request.metadata))
        reply_to = None
        if isinstance(request, SendMessage) and request.response_expected:
            check_id("metadata.sender_task_id", request.sender_task_id)
            reply_to = ReplyTo(task_id=request.sender_task_id)
        waiting = request.waiting if isinstance(request, SendMessage) and caller.machine else ()
        metadata = opening_metadata(
            request.metadata, sender, verified=verified, user=caller.name, reply_to=reply_to, waiting=waiting
        )
        return sender.sender_id, metadata


def _delivering(waiting: Task, opened: TaskOpened) -> TaskOpened:
    """Returns the event that opens the task which delivers the answer of the task `waiting`."""
    metadata = {**opened.metadata, **delivering(waiting)}
    return replace(opened, task_id=TaskId(waiting.delivered_as), metadata=metadata)
