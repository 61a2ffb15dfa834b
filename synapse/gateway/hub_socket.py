"""The hub's WebSocket: one connection follows any number of tasks, and sends each update once and in order.

    frames in ─► one request after another ─► one follower per task ─► bounded queue of frames ─► frames out

A slow reader costs no memory: the queue is bounded, followers wait until it has room, and then read on in the log. A
reader that accepts nothing for SLOW_SECONDS is disconnected, and resumes each task after its last seq. The seqs of a
task are those of its machine, so a session has none of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Final

from synapse.auth.authenticators import TICKET_FIELD
from synapse.core.caller import Caller
from synapse.core.errors import FeedLagged, QueueFull, RateLimited, SynapseError
from synapse.core.events import Update
from synapse.core.requests import ForAgent, Request, SendMessage, SubscribeTask, TaskStream
from synapse.core.service import Handler
from synapse.core.task import Task
from synapse.dialects.hub import stream as hub
from synapse.dialects.hub.encode import AgentName
from synapse.server.websocket import WebSocketChannel

QUEUED_FRAMES: Final = 16
MAX_TASKS: Final = 1000
"""How many tasks one connection may follow at a time."""
SLOW_SECONDS: Final = 10.0
"""How long a reader may accept nothing."""
LONGEST_SECONDS: Final = 3600.0
"""How long a connection lasts, so that a client that only listens has to authenticate again."""
TRY_AGAIN_LATER: Final = 1013
"""The WebSocket close code "Try Again Later"."""

_RESUME: Final = "resume each task after its last seq"

AcquireSlot = Callable[[Caller], AbstractContextManager[object]]
"""Holds a stream slot for a connection, or raises TooManyStreams."""


class HubSocket:
    """Implements WebSocketHandler.

    `count` is called for each frame of a client that came with a ticket, and raises RateLimited when there are too
    many: its ticket is used up. All other clients are authenticated again for each frame, which counts it.
    """

    def __init__(
        self,
        service: Handler,
        agent_name: AgentName,
        *,
        count: Callable[[Caller], None] = lambda _caller: None,
        acquire_slot: AcquireSlot = lambda _caller: nullcontext(),
        slow_seconds: float = SLOW_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._service = service
        self._agent_name = agent_name
        self._count = count
        self._acquire_slot = acquire_slot
        self._slow_seconds = slow_seconds
        self._longest_seconds = longest_seconds

    async def __call__(self, channel: WebSocketChannel, caller: Caller) -> None:
        """Serves one connection until the client leaves, is too slow, or has to authenticate again.

        Raises:
            AccessDenied: its credentials are no longer valid.
            TooManyStreams: the caller has too many open streams; a connection counts as one, whatever it follows.
        """
        with self._acquire_slot(caller):
            await channel.accept()
            session = _Session(self._service, self._agent_name, caller)
            jobs = [
                asyncio.ensure_future(self._read(channel, session)),
                asyncio.ensure_future(self._write(channel, session)),
            ]
            try:
                await asyncio.wait(jobs, timeout=self._longest_seconds, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancel(*jobs, *session.followers)
            for job in jobs:
                if not job.cancelled():
                    job.result()
            await channel.close(TRY_AGAIN_LATER, f"show your credentials again; {_RESUME}")

    async def _read(self, channel: WebSocketChannel, session: _Session) -> None:
        while (frame := await channel.receive()) is not None:
            try:
                # A key may have been revoked since the handshake, or have fewer rights now.
                if channel.readmit is None or TICKET_FIELD in channel.query:
                    self._count(session.caller)
                else:
                    session.caller = await channel.readmit()
            except RateLimited as error:
                await session.send_error(error)
            else:
                await session.receive(frame)

    async def _write(self, channel: WebSocketChannel, session: _Session) -> None:
        while True:
            frame = await session.outgoing.get()
            try:
                async with asyncio.timeout(self._slow_seconds):
                    await channel.send(frame)
            except TimeoutError:
                await channel.close(TRY_AGAIN_LATER, f"too slow; {_RESUME}")
                return


class _Session:
    """The tasks that one client follows, and the frames that wait to be sent to it."""

    def __init__(self, service: Handler, agent_name: AgentName, caller: Caller) -> None:
        self.outgoing: asyncio.Queue[str] = asyncio.Queue(QUEUED_FRAMES)
        """Frames to send."""
        self._seqs: dict[str, int] = {}
        """The last seq of each task that is followed, among the frames to send and those that were sent."""
        self._service = service
        self._agent_name = agent_name
        self.caller = caller
        self._followers: dict[str, asyncio.Task[None]] = {}

    @property
    def followers(self) -> tuple[asyncio.Task[None], ...]:
        return tuple(self._followers.values())

    async def receive(self, frame: bytes | str) -> None:
        """Runs the request in a frame; answers with an error frame when it fails."""
        about: dict[str, str] = {}
        try:
            incoming = hub.decode_incoming(frame)
            if incoming.message_id:
                about["messageId"] = incoming.message_id
            inner = incoming.request.request if isinstance(incoming.request, ForAgent) else incoming.request
            if incoming.subscribe is not None and isinstance(inner, SubscribeTask):
                about["taskId"] = inner.task_id
                await self._subscribe(incoming.subscribe, inner)
            elif incoming.send is not None and isinstance(inner, SendMessage):
                self._check_task_limit()
                task = await self._service.handle(incoming.send, self.caller)
                about["taskId"] = task.id
                await self._follow_sent(task, is_new=not inner.task_id)
            else:
                await self.outgoing.put(hub.encode_pong(seq=0))
        except SynapseError as error:
            await self.send_error(error, about)

    async def send_error(self, error: SynapseError, about: dict[str, str] | None = None) -> None:
        about = about or {}
        seq = self._seqs.get(about.get("taskId", ""), 0)
        await self.outgoing.put(hub.encode_error(error, seq=seq, about=about))

    async def _subscribe(self, request: Request[TaskStream], wanted: SubscribeTask) -> None:
        """Follows a task from the seq that the client names, also when the session follows it already."""
        if wanted.task_id not in self._followers:
            self._check_task_limit()
        updates = await self._service.handle(request, self.caller)
        if (follower := self._followers.pop(wanted.task_id, None)) is not None:
            await _cancel(follower)
        self._start(wanted.task_id, updates, wanted.after or 0)

    async def _follow_sent(self, task: Task, *, is_new: bool) -> None:
        if task.id in self._followers:
            # A follow-up, or a repeated message: its sender learns at once that it was accepted.
            shown = hub.encode_update(Update(self._seqs.get(task.id, 0), None, task), self._agent_name)
            await self.outgoing.put(shown or "")
            return
        # From its beginning, so that `task.created` comes first.
        after = 0 if is_new else None
        updates = await self._service.handle(SubscribeTask(task_id=task.id, after=after), self.caller)
        self._start(task.id, updates, 0)

    def _start(self, task_id: str, updates: TaskStream, seq: int) -> None:
        follower = asyncio.create_task(self._follow(task_id, updates, seq))
        self._followers[task_id] = follower
        self._seqs[task_id] = seq

        def forget(done: asyncio.Task[None]) -> None:
            if self._followers.get(task_id) is done:
                del self._followers[task_id]
                self._seqs.pop(task_id, None)

        follower.add_done_callback(forget)

    async def _follow(self, task_id: str, updates: TaskStream, seq: int) -> None:
        try:
            await self._send_updates(task_id, updates, seq)
        except SynapseError as error:
            await self.send_error(error, {"taskId": task_id})

    async def _send_updates(self, task_id: str, updates: TaskStream, seq: int) -> None:
        """Sends each update of a task; after falling behind the feed, reads on in the log."""
        name = ""

        def agent_name(task: Task) -> str:
            # Looked up once: a task stays with its agent, and the lookup goes through all agents.
            nonlocal name
            name = name or self._agent_name(task)
            return name

        while True:
            try:
                async with aclosing(updates):
                    async for update in updates:
                        if frame := hub.encode_update(update, agent_name):
                            await self.outgoing.put(frame)
                            self._seqs[task_id] = update.seq
                        seq = update.seq
                    return
            except FeedLagged:
                updates = await self._service.handle(SubscribeTask(task_id=task_id, after=seq), self.caller)

    def _check_task_limit(self) -> None:
        if len(self._followers) >= MAX_TASKS:
            raise QueueFull(
                f"this connection follows {MAX_TASKS} tasks already",
                hint="wait until one has ended, or open another connection",
            )


async def _cancel(*jobs: asyncio.Future[None]) -> None:
    """Cancels the jobs and waits until they have ended, so that none reads from a closed channel."""
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
