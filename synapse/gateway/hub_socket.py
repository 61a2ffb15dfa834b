"""The hub's WebSocket: one connection, any number of tasks, each told in order and exactly once.

    frames in ─► one request after the other ─► a follower for each task ─► a short line of frames ─► out

Nothing grows with a slow reader: the line is short, followers wait for a place in it, and what they miss meanwhile is
in the log, where they read on. A reader that takes nothing at all for a while is asked to come back: it is told the
seq after which it can resume.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any, Final

from synapse.auth.authenticators import TICKET_FIELD
from synapse.core.caller import Caller
from synapse.core.errors import FeedLagged, QueueFull, RateLimited, SynapseError
from synapse.core.events import Update
from synapse.core.requests import ForAgent, Request, SendMessage, SubscribeTask, TaskStream
from synapse.core.service import Handler
from synapse.core.task import Task
from synapse.dialects.hub import stream as words
from synapse.dialects.hub.encode import AgentName
from synapse.server.websocket import WebSocketChannel

WAITING_FRAMES: Final = 16
MOST_TASKS: Final = 1000
"""How many tasks one connection follows at a time."""
SLOW_SECONDS: Final = 10.0
"""So long a reader may take nothing."""
LONGEST_SECONDS: Final = 3600.0
"""So long a connection lasts: whoever only listens is let in again by then, or no more."""
COME_BACK: Final = 1013
"""The code of a close that is nobody's fault and may be tried again: "Try Again Later"."""


def _nothing_to_pay(_caller: Caller) -> None:
    """For those whose frames are not counted."""


TakePlace = Callable[[Caller], AbstractContextManager[object]]
"""Holds a place for a connection, or raises TooManyStreams."""


def _room_for_all(_caller: Caller) -> AbstractContextManager[object]:
    return nullcontext()


class HubSocket:
    """Implements WebSocketHandler. `count` hears of the frames of those who came with a ticket, which is used up.

    It raises RateLimited when there are too many. All others show their credentials with each frame, as it were.
    """

    def __init__(
        self,
        service: Handler,
        agent_name: AgentName,
        *,
        count: Callable[[Caller], None] = _nothing_to_pay,
        take_place: TakePlace = _room_for_all,
        slow_seconds: float = SLOW_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._service = service
        self._agent_name = agent_name
        self._count = count
        self._take_place = take_place
        self._slow_seconds = slow_seconds
        self._longest_seconds = longest_seconds

    async def __call__(self, channel: WebSocketChannel, caller: Caller) -> None:
        """Hold one conversation until the client leaves, is too slow, or has to show its credentials again.

        Raises:
            AccessDenied: its credentials are worth nothing any more.
            TooManyStreams: the caller has too many open; however many tasks it follows, a connection is one.
        """
        with self._take_place(caller):
            await self._hold(channel, caller)

    async def _hold(self, channel: WebSocketChannel, caller: Caller) -> None:
        await channel.accept()
        talk = _Conversation(self._service, self._agent_name, caller)
        works = [asyncio.ensure_future(self._read(channel, talk)), asyncio.ensure_future(self._write(channel, talk))]
        try:
            await asyncio.wait(works, timeout=self._longest_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(*works, *talk.followers)
        for work in works:
            if not work.cancelled():
                work.result()
        await channel.close(COME_BACK, f"show your credentials again; resume after seq {talk.seq}")

    async def _read(self, channel: WebSocketChannel, talk: _Conversation) -> None:
        while (frame := await channel.receive()) is not None:
            try:
                await self._check(channel, talk)
            except RateLimited as error:
                await talk.complain(error)
            else:
                await talk.take(frame)

    async def _check(self, channel: WebSocketChannel, talk: _Conversation) -> None:
        """A key may have been revoked since the handshake, or may do less now."""
        if channel.readmit is None or TICKET_FIELD in channel.query:
            self._count(talk.caller)
        else:
            talk.caller = await channel.readmit()

    async def _write(self, channel: WebSocketChannel, talk: _Conversation) -> None:
        while True:
            seq, frame = await talk.line.get()
            try:
                async with asyncio.timeout(self._slow_seconds):
                    await channel.send(frame)
            except TimeoutError:
                await channel.close(COME_BACK, f"too slow; resume after seq {talk.seq}")
                return
            talk.seq = max(talk.seq, seq)


class _Conversation:
    """What one client wants, and how far each of its tasks was told."""

    def __init__(self, service: Handler, agent_name: AgentName, caller: Caller) -> None:
        self.line: asyncio.Queue[tuple[int, str]] = asyncio.Queue(WAITING_FRAMES)
        """What is to be sent next: the seq that it tells, 0 for none, and the frame."""
        self.seq = 0
        """The last one that was sent."""
        self._service = service
        self._agent_name = agent_name
        self.caller = caller
        self._followers: dict[str, asyncio.Task[None]] = {}

    @property
    def followers(self) -> tuple[asyncio.Task[None], ...]:
        return tuple(self._followers.values())

    async def take(self, frame: bytes | str) -> None:
        """Do what a frame asks; what is wrong with it is told."""
        about: dict[str, str] = {}
        try:
            incoming = words.decode_incoming(frame)
            if incoming.message_id:
                about["messageId"] = incoming.message_id
            await self._do(incoming, about)
        except SynapseError as error:
            await self.complain(error, about)

    async def complain(self, error: SynapseError, about: dict[str, str] | None = None) -> None:
        await self.line.put((0, words.encode_error(error, seq=self.seq, about=about or {})))

    async def _do(self, incoming: words.Incoming, about: dict[str, str]) -> None:
        inner = incoming.request.request if isinstance(incoming.request, ForAgent) else incoming.request
        if incoming.subscribe is not None and isinstance(inner, SubscribeTask):
            about["taskId"] = inner.task_id
            await self._subscribe(incoming.subscribe, inner)
        elif incoming.send is not None and isinstance(inner, SendMessage):
            self._check_room()
            task = await self._service.handle(incoming.send, self.caller)
            about["taskId"] = task.id
            await self._follow_sent(task, is_new=not inner.task_id)
        else:
            await self.line.put((0, words.encode_pong(seq=self.seq)))

    async def _subscribe(self, request: Request[TaskStream], wanted: SubscribeTask) -> None:
        """Follow a task; one that is followed already is from now on followed from the seq that was named."""
        if wanted.task_id not in self._followers:
            self._check_room()
        updates = await self._service.handle(request, self.caller)
        await self._leave(wanted.task_id)
        self._start(wanted.task_id, self._told(wanted.task_id, updates, wanted.after or 0))

    async def _follow_sent(self, task: Task, *, is_new: bool) -> None:
        if task.id in self._followers:
            # It goes on, or was sent before: whoever sent it hears at once that it was taken.
            shown = words.encode_update(Update(self.seq, None, task), self._agent_name)
            await self.line.put((0, shown or ""))
            return
        # From its beginning, so that `task.created` comes first.
        after = 0 if is_new else None
        updates = await self._service.handle(SubscribeTask(task_id=task.id, after=after), self.caller)
        self._start(task.id, self._told(task.id, updates, 0))

    async def _told(self, task_id: str, updates: TaskStream, seq: int) -> None:
        """Tell each update of a task; who was too slow for the feed reads on in the log."""
        name = ""

        def agent_name(task: Task) -> str:
            # Asked once: a task stays with its agent, and finding out costs a look at all agents.
            nonlocal name
            name = name or self._agent_name(task)
            return name

        while True:
            try:
                async with aclosing(updates):
                    async for update in updates:
                        if frame := words.encode_update(update, agent_name):
                            await self.line.put((update.seq, frame))
                        seq = update.seq
                    return
            except FeedLagged:
                updates = await self._service.handle(SubscribeTask(task_id=task_id, after=seq), self.caller)

    def _start(self, task_id: str, telling: Coroutine[Any, Any, None]) -> None:
        follower = asyncio.create_task(self._followed(task_id, telling))
        self._followers[task_id] = follower
        follower.add_done_callback(lambda done: self._forget(task_id, done))

    async def _followed(self, task_id: str, telling: Coroutine[Any, Any, None]) -> None:
        try:
            await telling
        except SynapseError as error:
            await self.complain(error, {"taskId": task_id})

    def _forget(self, task_id: str, follower: asyncio.Task[None]) -> None:
        if self._followers.get(task_id) is follower:
            del self._followers[task_id]

    async def _leave(self, task_id: str) -> None:
        if (follower := self._followers.pop(task_id, None)) is not None:
            await _end(follower)

    def _check_room(self) -> None:
        if len(self._followers) >= MOST_TASKS:
            raise QueueFull(
                f"{MOST_TASKS} tasks are followed on this connection",
                hint="wait until one has ended, or open another connection",
            )


async def _end(*parts: asyncio.Future[None]) -> None:
    """Cancel what still runs and wait for it, so that nothing reads what is being closed."""
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)
