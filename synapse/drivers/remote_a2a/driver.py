"""Runs an agent that is elsewhere: a turn sends it a message and tells what its task there brings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from uuid import NAMESPACE_URL, uuid5

from synapse.core.agent import READY, WORKING
from synapse.core.clock import Clock
from synapse.core.driver import AgentView, Asked, Failed, Submitted, Turn, TurnEvent, TurnStarted, Typing
from synapse.core.errors import AgentExited, ExternalAgentFailed
from synapse.core.hold import HoldReason
from synapse.core.message import Message, MessageId
from synapse.core.question import Choice
from synapse.core.question_errors import QuestionGone
from synapse.core.status import ExternalAgent
from synapse.core.task import TaskId
from synapse.drivers.remote_a2a.conversation import Conversation, Patience, RemoteClient
from synapse.drivers.remote_a2a.handover import SOURCE, Handover
from synapse.transports.a2a_client import Unanswered
from synapse.transports.external_report import Report
from synapse.transports.external_words import NEW, Thread

UNCERTAIN: Final = "delivery_uncertain"
INTERRUPTED: Final = "interrupted"
LEFT: Final = "agent_exited"
LEAVE_SECONDS: Final = 2.0


class Threads(Protocol):
    """Remembers which tasks the agent has taken, and what they are over there."""

    def find(self, task_id: TaskId) -> Thread | None: ...

    def keep(self, task_id: TaskId, thread: Thread, message_id: str) -> None: ...

    def forget(self, task_id: TaskId) -> None: ...


@dataclass(slots=True)
class _Running:
    """The turn that runs; when it is `over` before the task is settled, `why` is how it ends.

    Without a `why` it has no end here: the next process follows the task.
    """

    turn: Turn
    conversation: Conversation
    over: asyncio.Event = field(default_factory=asyncio.Event)
    why: tuple[str, str] | None = None

    @property
    def failure(self) -> Failed | None:
        return Failed(*self.why) if self.why else None

    def end(self, reason: str, note: str) -> None:
        self.why = (reason, note)
        self.over.set()


class RemoteDriver:
    """Implements `core.driver.Driver` for an external agent."""

    def __init__(
        self,
        agent: ExternalAgent,
        client: RemoteClient,
        threads: Threads,
        clock: Clock,
        patience: Patience | None = None,
    ) -> None:
        self._agent = agent
        self._client = client
        self._threads = threads
        self._clock = clock
        self._patience = patience or Patience()
        self._running: _Running | None = None
        self._canceling: set[asyncio.Task[None]] = set()
        self._left = False
        self._since = clock.now()

    def view(self) -> AgentView:
        state, why = (WORKING, "it was sent a message") if self._running else (READY, "it can be sent a message")
        is_lost = self._running is not None and self._running.conversation.is_lost
        return AgentView(
            state=state,
            why=why,
            source=SOURCE,
            since=self._since,
            gate=f"{self._agent.alias} does not answer at {self._agent.url}" if is_lost else "",
            gate_reason=HoldReason.UNREACHABLE if is_lost else None,
        )

    async def wait_ready(self) -> None:
        """It is asked when there is something to ask: only then it shows whether it is there."""
        if self._left:
            raise AgentExited(f"{self._agent.alias} is not spoken to any longer")

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        if not turn.resumed:
            # What was sent and not recorded would be sent again after a crash.
            yield Typing()
        thread = NEW if turn.first and not turn.resumed else self._threads.find(turn.task_id)
        if thread is None:
            yield Failed("conversation_lost", f"it is not known any more which task of {self._agent.alias} waits")
            return
        thread = replace(thread, trace=turn.trace)
        conversation = Conversation(self._agent, self._client, _as_ours(turn), thread, self._clock, self._patience)
        self._running = _Running(turn, conversation)
        self._since = self._clock.now()
        try:
            async with aclosing(self._events(self._running)) as events:
                async for event in events:
                    yield event
        finally:
            self._running = None
            self._since = self._clock.now()

    async def interrupt(self) -> bool:
        """Cancel the task over there; the turn ends once that is answered, whatever the answer is."""
        running = self._running
        if running is None or running.over.is_set():
            return False
        canceling = asyncio.create_task(_cancel(running))
        self._canceling.add(canceling)
        canceling.add_done_callback(self._canceling.discard)
        return True

    async def leave(self) -> None:
        """Stop following. A task that the agent has taken goes on there, and the next process follows it."""
        self._left = True
        running = self._running
        if running is None or running.over.is_set():
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await running.conversation.known()
            self._keep(running)
            running.over.set()
        except TimeoutError:
            running.end(LEFT, f"{self._agent.alias} did not say whether it took the message before we stopped")

    async def give_up(self) -> None:
        """Stop for good. Nobody would ever hear of a task that goes on, so it is canceled."""
        self._left = True
        running = self._running
        if running is None or running.over.is_set():
            return
        note = "it may go on there: it did not answer"
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                note = await running.conversation.cancel()
        except TimeoutError:
            pass
        finally:
            running.end(LEFT, f"{self._agent.alias} is not spoken to any longer; {note}")

    def drop(self) -> bool:
        return False

    async def answer(self, question_id: str, choice: Choice) -> str:  # noqa: ARG002 - it has no questions of this kind
        raise QuestionGone

    def confirm(self) -> None:
        """There is never a doubt: a turn whose message may not have been taken has failed."""

    async def _events(self, running: _Running) -> AsyncGenerator[TurnEvent, None]:
        handover, report = Handover(), running.conversation.report
        try:
            async with aclosing(self._news(running, handover)) as news:
                async for event in news:
                    yield event
        except Unanswered as error:
            yield Failed(UNCERTAIN, f"{self._agent.alias} may have taken the message, or not: {error}")
        except ExternalAgentFailed as error:
            yield Failed(error.code, f"{self._agent.alias}: {error}")
            self._threads.forget(running.turn.task_id)
        else:
            outcome = handover.outcome(report) if report.is_settled else running.failure
            if outcome is None:
                return
            yield outcome
            # The worker asks for more once the end is durable; before that, a crash would lose the task over there.
            if not isinstance(outcome, Asked):
                self._threads.forget(running.turn.task_id)

    async def _news(self, running: _Running, handover: Handover) -> AsyncGenerator[TurnEvent, None]:
        """What the agent brings until its task is settled, or the turn is over."""
        conversation, report, taken = running.conversation, running.conversation.report, False
        coming = conversation.heard_again() if running.turn.resumed else conversation.heard()
        async with aclosing(_until(running.over, coming)) as heard:
            async for _ in heard:
                if not taken and (report.task_id or report.is_settled):
                    taken = True
                    for event in self._taken(running):
                        yield event
                for event in handover.news(report):
                    yield event

    def _taken(self, running: _Running) -> tuple[TurnEvent, ...]:
        """The agent has the message: remember its task before anything is recorded of it."""
        self._keep(running)
        report = running.conversation.report
        submitted = Submitted(SOURCE, _receipt(self._agent, report))
        if running.turn.resumed:
            return (submitted,)
        return submitted, TurnStarted(SOURCE, f"it is {report.state} there")

    def _keep(self, running: _Running) -> None:
        """Remember the task over there, so that a restart finds it; an answer without a task needs no memory."""
        thread = running.conversation.thread
        if thread.task_id:
            turn = running.turn
            self._threads.keep(turn.task_id, replace(thread, trace=()), turn.message.message_id)


async def _cancel(running: _Running) -> None:
    note = "it may go on there"
    try:
        note = await running.conversation.cancel()
    finally:
        running.end(INTERRUPTED, note)


async def _until(over: asyncio.Event, heard: AsyncGenerator[None, None]) -> AsyncGenerator[None, None]:
    """The same, until it is over."""
    ending: asyncio.Future[Any] = asyncio.ensure_future(over.wait())
    try:
        async with aclosing(heard) as events:
            while True:
                coming: asyncio.Future[bool] = asyncio.ensure_future(_is_next(events))
                try:
                    await asyncio.wait({coming, ending}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not coming.done():
                        # The generator must have stopped before it can be closed.
                        coming.cancel()
                        await asyncio.wait({coming})
                if coming.cancelled() or not coming.result():
                    return
                yield
    finally:
        ending.cancel()


async def _is_next(events: AsyncGenerator[None, None]) -> bool:
    try:
        await anext(events)
    except StopAsyncIteration:
        return False
    return True


def _as_ours(turn: Turn) -> Message:
    """The message under an id of its own: two callers here may use the same, and over there we are one caller.

    The same message has the same id, so that whoever knows messages by their ids takes it once.
    """
    message_id = uuid5(NAMESPACE_URL, f"{turn.task_id}/{turn.message.message_id}")
    return replace(turn.message, message_id=MessageId(str(message_id)))


def _receipt(agent: ExternalAgent, report: Report) -> str:
    return f"{agent.url} took it as task {report.task_id[:80]}" if report.task_id else f"{agent.url} answered at once"
