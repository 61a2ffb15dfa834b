"""Runs an agent that is elsewhere: a turn sends it a message and tells what its task there brings.

Which task over there a task here belongs to, as one private file.

A question may be answered, and a task that is still worked on is followed again, after this process was restarted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast
from uuid import NAMESPACE_URL, uuid5

from synapse.config.private_files import make_private
from synapse.core.agent import READY, WORKING
from synapse.core.driver import (
    AgentView,
    Failed,
    HoldReason,
    InputRequested,
    StatusListener,
    StatusListeners,
    Submitted,
    Turn,
    TurnEvent,
    TurnStarted,
    Typing,
)
from synapse.core.errors import AgentExited, ExternalAgentFailed, QuestionGone
from synapse.core.message import Message, MessageId
from synapse.core.question import Choice
from synapse.core.requests import ExternalAgent
from synapse.core.task import TaskId
from synapse.core.types import Clock
from synapse.external.client import Unanswered
from synapse.external.conversation import SOURCE, Conversation, Patience, RemoteClient, ReportTranslator
from synapse.external.decode import RemoteTaskState
from synapse.external.encode import NEW, RemoteTaskRef

UNCERTAIN: Final = "delivery_uncertain"
INTERRUPTED: Final = "interrupted"
LEFT: Final = "agent_exited"
LEAVE_SECONDS: Final = 2.0


class RemoteTaskRefs(Protocol):
    """Remembers which tasks the agent has taken, and what they are over there."""

    def find(self, task_id: TaskId) -> RemoteTaskRef | None: ...

    def keep(self, task_id: TaskId, thread: RemoteTaskRef, message_id: str) -> None: ...

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
        threads: RemoteTaskRefs,
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
        self._listeners = StatusListeners()

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

    def watch(self, listener: StatusListener) -> Callable[[], None]:
        return self._listeners.add(listener)

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
        running = _Running(turn, conversation)
        self._run(running)
        try:
            async with aclosing(self._events(running)) as events:
                async for event in events:
                    yield event
        finally:
            self._run(None)

    def _run(self, running: _Running | None) -> None:
        self._running = running
        self._since = self._clock.now()
        self._listeners.tell(lambda: self.view().status)

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
        handover, report = ReportTranslator(), running.conversation.report
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
            if not isinstance(outcome, InputRequested):
                self._threads.forget(running.turn.task_id)

    async def _news(self, running: _Running, handover: ReportTranslator) -> AsyncGenerator[TurnEvent, None]:
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


def _receipt(agent: ExternalAgent, report: RemoteTaskState) -> str:
    return f"{agent.url} took it as task {report.task_id[:80]}" if report.task_id else f"{agent.url} answered at once"


log = logging.getLogger(__name__)

MOST_THREADS: Final = 1000
"""Questions that nobody answers are forgotten, the oldest first."""


class _Kept(NamedTuple):
    thread: RemoteTaskRef
    message_id: str
    """The last message that the agent is known to have taken."""


class FileThreads:
    """The open tasks of one agent that it has taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = _read(path)

    def find(self, task_id: TaskId) -> RemoteTaskRef | None:
        """Returns the task over there."""
        kept = self._kept.get(task_id)
        return kept.thread if kept else None

    def has(self, task_id: TaskId, message_id: str) -> bool:
        """Tells whether the agent is known to have taken this message of the task."""
        kept = self._kept.get(task_id)
        return kept is not None and bool(message_id) and kept.message_id == message_id

    def keep(self, task_id: TaskId, thread: RemoteTaskRef, message_id: str) -> None:
        """Remembers that the agent took the message as part of its task `thread`."""
        if self.has(task_id, message_id) and self.find(task_id) == thread:
            return
        self._kept.pop(task_id, None)
        self._kept[task_id] = _Kept(thread, message_id)
        while len(self._kept) > MOST_THREADS:
            del self._kept[next(iter(self._kept))]
        self._write()

    def forget(self, task_id: TaskId) -> None:
        """Forgets a task that has ended."""
        if self._kept.pop(task_id, None) is not None:
            self._write()

    def _write(self) -> None:
        rows = {task: [*_ids(kept.thread), kept.message_id] for task, kept in self._kept.items()}
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            make_private(self._path.parent)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(json.dumps(rows))
            draft.replace(self._path)
        except OSError as error:
            # As long as this process lives, it is known all the same.
            log.warning("threads_not_kept", extra={"path": str(self._path), "error": error.strerror})


def _ids(thread: RemoteTaskRef) -> tuple[str, str]:
    return thread.task_id, thread.context_id


def _read(path: Path) -> dict[str, _Kept]:
    try:
        fields: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        log.warning("threads_not_read", extra={"path": str(path)})
        return {}
    rows = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    return {task: _kept(row) for task, row in rows.items() if len(row) in (2, 3)}


def _kept(row: list[Any]) -> _Kept:
    """Reads a row; those of earlier versions name no message."""
    thread = RemoteTaskRef(task_id=str(row[0]), context_id=str(row[1]))
    return _Kept(thread, str(row[2]) if len(row) == 3 else "")
