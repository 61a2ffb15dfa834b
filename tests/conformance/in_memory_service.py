"""A service that keeps its tasks in a dictionary: it applies the rules of the core, and no agent runs behind it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from synapse.core.agent import READY, AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentView, Observation
from synapse.core.errors import (
    AmbiguousTask,
    ExternalAgentNotFound,
    InvalidRequest,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from synapse.core.events import ArtifactAdded, ReceiptChanged, StateChanged, TaskEvent, TaskOpened, Update
from synapse.core.lifecycle import apply, opened
from synapse.core.message import Artifact
from synapse.core.requests import (
    AddExternal,
    CancelTask,
    CreateTask,
    ExternalAgent,
    ExternalAnswer,
    GetStatus,
    GetTask,
    HostStatus,
    ListExternals,
    ListTasks,
    RemoveExternal,
    Replied,
    Reply,
    Request,
    ResolveTask,
    SendExternal,
    SendMessage,
    SubscribeTask,
)
from synapse.core.store import TaskPage
from synapse.core.task import ReceiptStep, Task, TaskId, TaskState

NOW: Final = datetime(2026, 1, 31, 10, 30, tzinfo=UTC)


class InMemoryService:
    """Implements `handle` for one agent. With `answers` it answers each message at once with its own text."""

    def __init__(self, entry: AgentEntry, *, answers: bool = False) -> None:
        self.entry = entry
        self._answers = answers
        self.callers: list[Caller] = []
        self.followers = 0
        self._tasks: dict[str, Task] = {}
        self._log: list[Update] = []
        self._grown = asyncio.Condition()
        self._ids = itertools.count(1)
        self._externals: dict[str, ExternalAgent] = {}

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        self.callers.append(caller)
        match request:
            case SendMessage() | CreateTask():
                return await self._take(request)
            case CancelTask(task_id):
                return await self._cancel(task_id)
            case AddExternal() | ListExternals() | RemoveExternal() | SendExternal():
                return self._external(request)
            case GetTask() | ResolveTask() | ListTasks() | SubscribeTask() | Reply() | GetStatus():
                return self._read(request)
            case _:
                raise UnsupportedOperation

    def _read(self, request: GetTask | ResolveTask | ListTasks | SubscribeTask | Reply | GetStatus) -> Any:
        match request:
            case GetTask(task_id) | ResolveTask(task_id=task_id):
                return self._find(task_id)
            case ListTasks():
                return self._page(request)
            case SubscribeTask():
                return self._follow(self._find(request.task_id).id, request.after)
            case Reply():
                return Replied(task_id=self._find(request.task_id).id, to="user")
            case GetStatus():
                return self._status()

    async def answer(self, task_id: str, message: SendMessage) -> Task:
        """Completes a task with the parts of `message`."""
        artifact = Artifact(artifact_id="answer", parts=message.message.parts, metadata={"source": "reply"})
        task = self._find(task_id)
        await self._record(ArtifactAdded(task_id=task.id, at=NOW, artifact=artifact))
        return await self._record(StateChanged(task_id=task.id, at=NOW, state=TaskState.COMPLETED))

    async def _take(self, request: SendMessage | CreateTask) -> Task:
        if isinstance(request, SendMessage) and request.in_reply_to:
            return await self.answer(request.in_reply_to, request)
        number = next(self._ids)
        event = TaskOpened(
            task_id=TaskId(f"{number:08d}-0000-4000-8000-000000000000"),
            at=NOW,
            agent_id=self.entry.agent_id,
            inbox=self.entry.inbox,
            context_id=request.context_id or f"context-{number}",
            scope="local",
            dialect=request.dialect,
            message=request.message,
            priority=request.priority if isinstance(request, SendMessage) else 3,
            queued=isinstance(request, SendMessage),
            metadata=request.metadata,
        )
        await self._record(event)
        if isinstance(request, CreateTask):
            return self._tasks[event.task_id]
        queued = ReceiptChanged(task_id=event.task_id, at=NOW, step=ReceiptStep.QUEUED, source="journal")
        task = await self._record(queued)
        return await self.answer(task.id, request) if self._answers else task

    async def _cancel(self, task_id: str) -> Task:
        task = self._find(task_id)
        if task.state.is_terminal:
            raise TaskNotCancelable
        return await self._record(StateChanged(task_id=task.id, at=NOW, state=TaskState.CANCELED))

    def _page(self, request: ListTasks) -> TaskPage:
        fitting = [
            task
            for task in reversed(self._tasks.values())
            if (not request.states or task.state in request.states) and request.context_id in ("", task.context_id)
        ]
        if request.cursor and not (request.cursor.isascii() and request.cursor.isdigit()):
            raise InvalidRequest("the cursor is not one of ours", hint="begin again without a cursor")
        start = int(request.cursor or 0)
        end = start + request.limit
        return TaskPage(tuple(fitting[start:end]), str(end) if end < len(fitting) else "", len(fitting))

    async def _follow(self, task_id: str, after: int | None) -> AsyncIterator[Update]:
        self.followers += 1
        try:
            if after is None:
                after = len(self._log)
                yield Update(after, None, self._tasks[task_id])
            while True:
                for update in self._log[after:]:
                    after = update.seq
                    if update.task.id == task_id:
                        yield update
                        if update.task.state.is_terminal:
                            return
                if self._tasks[task_id].state.is_terminal:
                    return
                async with self._grown:
                    await self._grown.wait()
        finally:
            self.followers -= 1

    async def _record(self, event: TaskEvent) -> Task:
        known = None if isinstance(event, TaskOpened) else self._tasks[event.task_id]
        task = opened(event) if isinstance(event, TaskOpened) else apply(_present(known), event)
        self._tasks[task.id] = task
        self._log.append(Update(len(self._log) + 1, event, task))
        async with self._grown:
            self._grown.notify_all()
        return task

    def _find(self, wanted: str) -> Task:
        found = [task for task in self._tasks.values() if task.id.startswith(wanted)]
        if not found:
            raise TaskNotFound(wanted)
        if len(found) > 1:
            raise AmbiguousTask(wanted, [task.id for task in found])
        return found[0]

    def _status(self) -> HostStatus:
        observation = Observation(source="screen", state=READY, detail="prompt", at=NOW)
        view = AgentView(
            state=READY, why="its prompt is empty", source="screen", since=NOW, observations=(observation,)
        )
        queue = tuple(task for task in self._tasks.values() if task.queued and not task.state.is_terminal)
        return HostStatus(entry=self.entry, view=view, current=None, queue=queue, attention=())

    def _external(self, request: AddExternal | ListExternals | RemoveExternal | SendExternal) -> Any:
        match request:
            case AddExternal():
                alias = request.alias or "other"
                self._externals[alias] = ExternalAgent(alias=alias, url=request.url, name="Other")
                return self._externals[alias]
            case ListExternals():
                return tuple(self._externals.values())
            case RemoveExternal(alias) | SendExternal(alias=alias) if alias not in self._externals:
                raise ExternalAgentNotFound(alias)
            case RemoveExternal(alias):
                return self._externals.pop(alias)
            case SendExternal(alias=alias):
                return ExternalAnswer(alias=alias, task_id="t-1", state="working", text="")


def _present(task: Task | None) -> Task:
    assert task is not None
    return replace(task)
