"""Drives an external agent: a turn sends it a message and yields what its remote task brings.

A private file remembers which remote task belongs to which task. So a question can be answered, and a running task can
be followed again, after this process was restarted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast
from uuid import NAMESPACE_URL, uuid5

from synapse.config.private_files import make_private, write_private
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
from synapse.core.waiting import CutOff, read_until
from synapse.external.client import Unanswered
from synapse.external.conversation import SOURCE, Conversation, RemoteClient, ReportTranslator, Timeouts
from synapse.external.encode import NEW, RemoteTaskRef

UNCERTAIN: Final = "delivery_uncertain"
INTERRUPTED: Final = "interrupted"
LEFT: Final = "agent_exited"
LEAVE_SECONDS: Final = 2.0
MOST_REFS: Final = 1000
"""More are forgotten, the oldest first: questions that were never answered."""

log = logging.getLogger(__name__)


class RemoteTaskRefs(Protocol):
    """Remembers the remote task of each task that the agent has taken."""

    def find(self, task_id: TaskId) -> RemoteTaskRef | None: ...

    async def keep(self, task_id: TaskId, ref: RemoteTaskRef, message_id: str) -> None:
        """Returns when the remote task is stored."""
        ...

    async def forget(self, task_id: TaskId) -> None: ...


@dataclass(slots=True)
class _Running:
    """The current turn. If it is `over` before the remote task is settled, it fails with `why`.

    Without a `why` it does not end in this process: the next one follows the task.
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
        refs: RemoteTaskRefs,
        clock: Clock,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._agent = agent
        self._client = client
        self._refs = refs
        self._clock = clock
        self._timeouts = timeouts or Timeouts()
        self._running: _Running | None = None
        self._canceling: set[asyncio.Task[None]] = set()
        self._left = False
        self._since = clock.now()
        self._listeners = StatusListeners()

    def view(self) -> AgentView:
        state, why = (WORKING, "it has a message") if self._running else (READY, "it can take a message")
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
        """Returns at once: whether the agent answers shows only when a message is sent."""
        if self._left:
            raise AgentExited(f"{self._agent.alias} is no longer served here")

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        if not turn.resumed:
            # Recorded before it is sent: otherwise it would be sent again after a crash.
            yield Typing()
        ref = NEW if turn.first and not turn.resumed else self._refs.find(turn.task_id)
        if ref is None:
            yield Failed("conversation_lost", f"the task of {self._agent.alias} that waits for this is not known")
            return
        ref = replace(ref, trace=turn.trace)
        message = _with_own_id(turn)
        conversation = Conversation(self._agent, self._client, message, ref, self._clock, self._timeouts)
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
        """Cancels the remote task; the turn ends when the agent has answered, whatever it answers."""
        running = self._running
        if running is None or running.over.is_set():
            return False
        canceling = asyncio.create_task(_cancel(running))
        self._canceling.add(canceling)
        canceling.add_done_callback(self._canceling.discard)
        return True

    async def leave(self) -> None:
        """Stops following. A task that the agent has taken goes on, and the next process follows it."""
        self._left = True
        running = self._running
        if running is None or running.over.is_set():
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await running.conversation.known()
            await self._keep(running)
            running.over.set()
        except TimeoutError:
            running.end(LEFT, f"the host stopped before {self._agent.alias} confirmed the message")

    async def give_up(self) -> None:
        """Stops for good, and cancels the running task: no later process would follow it."""
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
            running.end(LEFT, f"{self._agent.alias} was removed; {note}")

    def drop(self) -> bool:
        return False

    async def answer(self, question_id: str, choice: Choice) -> str:  # noqa: ARG002 - it has no questions of this kind
        raise QuestionGone

    def confirm(self) -> None:
        """Does nothing: a message is never in doubt here, because an uncertain delivery fails the turn."""

    async def _events(self, running: _Running) -> AsyncGenerator[TurnEvent, None]:
        translator, report = ReportTranslator(), running.conversation.report
        try:
            async with aclosing(self._progress(running, translator)) as news:
                async for event in news:
                    yield event
        except Unanswered as error:
            yield Failed(UNCERTAIN, f"{self._agent.alias} may have taken the message, or not: {error}")
        except ExternalAgentFailed as error:
            yield Failed(error.code, f"{self._agent.alias}: {error}")
            await self._refs.forget(running.turn.task_id)
        else:
            outcome = translator.outcome(report) if report.is_settled else running.failure
            if outcome is None:
                return
            yield outcome
            # The worker asks for the next event once this one is durable. Earlier, a crash would lose the remote task.
            if not isinstance(outcome, InputRequested):
                await self._refs.forget(running.turn.task_id)

    async def _progress(self, running: _Running, translator: ReportTranslator) -> AsyncGenerator[TurnEvent, None]:
        """Yields the events of the turn until the remote task is settled, or the turn is over."""
        conversation, report, taken = running.conversation, running.conversation.report, False
        changes = conversation.resume() if running.turn.resumed else conversation.run()
        async with aclosing(read_until(running.over, changes)) as coming:
            with suppress(CutOff):
                async for _ in coming:
                    if not taken and (report.task_id or report.is_settled):
                        taken = True
                        # Stored before the message counts as taken.
                        await self._keep(running)
                        for event in self._taken(running):
                            yield event
                    for event in translator.news(report):
                        yield event

    def _taken(self, running: _Running) -> tuple[TurnEvent, ...]:
        """Returns the events of a message that the agent has taken."""
        report = running.conversation.report
        url, task_id = self._agent.url, report.task_id[:80]
        submitted = Submitted(SOURCE, f"{url} took it as task {task_id}" if task_id else f"{url} answered at once")
        if running.turn.resumed:
            return (submitted,)
        return submitted, TurnStarted(SOURCE, f"its remote task is {report.state}")

    async def _keep(self, running: _Running) -> None:
        """Remembers the remote task for the time after a restart; an answer without a task needs no memory."""
        ref = running.conversation.ref
        if ref.task_id:
            turn = running.turn
            await self._refs.keep(turn.task_id, replace(ref, trace=()), turn.message.message_id)


async def _cancel(running: _Running) -> None:
    note = "it may go on there"
    try:
        note = await running.conversation.cancel()
    finally:
        running.end(INTERRUPTED, note)


def _with_own_id(turn: Turn) -> Message:
    """Returns the message with another id: two callers here may use one id, and for the agent we are one caller.

    The id depends on nothing but the message and its task, so an agent that checks ids takes a message once.
    """
    message_id = uuid5(NAMESPACE_URL, f"{turn.task_id}/{turn.message.message_id}")
    return replace(turn.message, message_id=MessageId(str(message_id)))


class _Kept(NamedTuple):
    ref: RemoteTaskRef
    message_id: str
    """The last message that the agent is known to have taken."""


class FileTaskRefs:
    """Implements RemoteTaskRefs for one agent, in one private file, which a thread writes.

    Creating it reads the file, so do that in a thread, too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = _read(path)
        self._version = self._written = 0
        """Of the rows in memory, and of those in the file."""
        self._writing = threading.Lock()

    def find(self, task_id: TaskId) -> RemoteTaskRef | None:
        """Returns the remote task."""
        kept = self._kept.get(task_id)
        return kept.ref if kept else None

    def has(self, task_id: TaskId, message_id: str) -> bool:
        """Tells whether the agent is known to have taken this message of the task."""
        kept = self._kept.get(task_id)
        return kept is not None and bool(message_id) and kept.message_id == message_id

    async def keep(self, task_id: TaskId, ref: RemoteTaskRef, message_id: str) -> None:
        """Remembers that the agent took the message as part of its task `ref`. Logs a file that cannot be written."""
        if not self.has(task_id, message_id) or self.find(task_id) != ref:
            self._kept.pop(task_id, None)
            self._kept[task_id] = _Kept(ref, message_id)
            while len(self._kept) > MOST_REFS:
                del self._kept[next(iter(self._kept))]
            self._version += 1
        # Also if it was kept before: the thread that writes it may not be done.
        await self._store()

    async def forget(self, task_id: TaskId) -> None:
        """Forgets a task that has ended."""
        if self._kept.pop(task_id, None) is not None:
            self._version += 1
            await self._store()

    async def _store(self) -> None:
        if self._written < self._version:
            await asyncio.to_thread(self._write_newest)

    def _write_newest(self) -> None:
        """Runs in a thread. Threads write one after the other, and each writes the newest rows."""
        with self._writing:
            version = self._version
            if self._written < version:
                self._write(self._kept.copy())
                self._written = version

    def _write(self, kept_by_task: Mapping[str, _Kept]) -> None:
        rows = {task: [kept.ref.task_id, kept.ref.context_id, kept.message_id] for task, kept in kept_by_task.items()}
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            make_private(self._path.parent)
            write_private(draft, json.dumps(rows))
            draft.replace(self._path)
        except OSError as error:
            # This process still knows it; only a restart would lose it.
            log.warning("task_refs_not_kept", extra={"path": str(self._path), "error": error.strerror})


def _read(path: Path) -> dict[str, _Kept]:
    try:
        fields: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        log.warning("task_refs_not_read", extra={"path": str(path)})
        return {}
    rows = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    return {task: _kept(row) for task, row in rows.items() if len(row) in (2, 3)}


def _kept(row: list[Any]) -> _Kept:
    """Reads a row; those of earlier versions name no message."""
    ref = RemoteTaskRef(task_id=str(row[0]), context_id=str(row[1]))
    return _Kept(ref, str(row[2]) if len(row) == 3 else "")
