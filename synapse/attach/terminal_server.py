"""Serves an agent's terminal by offset at its host, for gateways that show it in browsers.

    pump's thread ─► OutputRing ─► one sender for each connection ─► output, or a snapshot for one that is behind

The thread pays for one viewer, however many connect, and nothing is kept while nobody is connected. A connection gets
at most MAX_IN_FLIGHT beyond its last credit. One whose next byte is no longer kept gets a snapshot and goes on
from there. Who types and whose size counts is decided by the AttachServer, which knows all viewers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import Final, Protocol, assert_never

from synapse.attach.frames import Exited, Hello, Resize, Role, Size, Take
from synapse.attach.output_ring import OutputRing
from synapse.attach.server import AttachServer, Keyboard, ViewerChannel, WatchedTerminal
from synapse.attach.terminal_frames import (
    HOST_TERMINAL,
    MAX_IN_FLIGHT,
    MAX_OUTPUT,
    Close,
    Credit,
    Failed,
    FromViewer,
    Input,
    Open,
    Output,
    Ping,
    Pong,
    Snapshot,
    ToTerminalViewer,
    decode_from_viewer,
    encode_to_viewer,
    split,
)
from synapse.core.caller import Caller
from synapse.core.errors import InvalidRequest
from synapse.core.waiting import pause

_SNAPSHOT_SHARE: Final = 16
"""Snapshots take about one part in so many of the time: the pump waits while one is made."""
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_FLOOD_BYTES: Final = 16 * 1024
"""So much at once is no echo of a key."""
_FLOOD_PAUSE: Final = 0.004
"""How long a flood is left to gather: each time that the pump wakes this loop, the two compete for the interpreter."""


class TerminalSnapshot(Protocol):
    """A whole terminal at one moment: `data` rebuilds it, and its output goes on at `offset`."""

    @property
    def offset(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def data(self) -> bytes: ...


class FollowedTerminal(WatchedTerminal, Protocol):
    """The agent's terminal, as TerminalServer uses it."""

    def follow(self, viewer: Callable[[bytes], None], begin: Callable[[int], None]) -> None: ...

    def snapshot(self) -> TerminalSnapshot: ...


class TerminalServer:
    """Serves the connections of one agent's `/terminal`. `run` names this start of the agent."""

    def __init__(self, attach: AttachServer, terminal: FollowedTerminal, run: str) -> None:
        self._attach = attach
        self._terminal = terminal
        self._run = run
        self._ring: OutputRing | None = None
        self._connections = 0

    async def __call__(self, channel: ViewerChannel, caller: Caller) -> None:
        """Serves one connection until the other side leaves or the program ends.

        Raises:
            PersonRequired: the caller is not a person.
        """
        self._attach.check_person(caller)
        await channel.accept()
        with self._followed() as ring:
            connection = _Connection(channel, self._attach, self._terminal, ring, self._run)
            with self._attach.joined(connection):
                await connection.serve()

    @contextlib.contextmanager
    def _followed(self) -> Generator[OutputRing, None, None]:
        """Gives the ring of all connections, which is filled as long as there is one."""
        if self._ring is None:
            self._ring = OutputRing(0)
            self._terminal.follow(self._ring.append, self._ring.restart)
        ring = self._ring
        self._connections += 1
        try:
            yield ring
        finally:
            self._connections -= 1
            if not self._connections:
                self._ring = None
                self._terminal.unwatch(ring.append)


class _Connection:
    """One connection. Implements ViewerConnection."""

    def __init__(
        self, channel: ViewerChannel, attach: AttachServer, terminal: FollowedTerminal, ring: OutputRing, run: str
    ) -> None:
        self.wants_to_type = False
        self.size: tuple[int, int] | None = None
        self._channel = channel
        self._attach = attach
        self._terminal = terminal
        self._ring = ring
        self._run = run
        self._keyboard = Keyboard(terminal.type_keys)
        self._latest: dict[type[Role | Size], Role | Size] = {}
        self._changed = asyncio.Event()
        self._position: int | None = None
        """The offset of the next byte to send; None before the connection has opened the terminal."""
        self._credited = 0
        self._is_open = False
        self._needs_snapshot = False
        self._next_snapshot = 0.0

    def tell(self, frame: Role | Size) -> None:
        # A newer role or size replaces an older one, so that they do not grow.
        self._latest.pop(type(frame), None)
        self._latest[type(frame)] = frame
        self._changed.set()

    def repaint(self) -> None:
        if self._is_open:
            self._needs_snapshot = True
            self._changed.set()

    async def serve(self) -> None:
        """Sends and receives until the other side has left, or has everything that an ended program has shown."""

        def ended(_status: asyncio.Future[int]) -> None:
            self._changed.set()

        jobs = [asyncio.ensure_future(self._send()), asyncio.ensure_future(self._receive())]
        self._ring.notify(self._changed.set)
        self._terminal.exited.add_done_callback(ended)
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._terminal.exited.remove_done_callback(ended)
            self._ring.forget(self._changed.set)
            self._keyboard.close()
            for job in jobs:
                job.cancel()
            outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        await self._channel.close(1000, "")
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
                raise outcome

    async def _receive(self) -> None:
        while (data := await self._channel.receive()) is not None:
            try:
                said = decode_from_viewer(split(data))
            except InvalidRequest as error:
                await self._say(Failed(error))
                continue
            if isinstance(said, Close):
                return
            await self._handle(said)

    async def _handle(self, said: FromViewer) -> None:
        match said:
            case Open():
                self._open(said)
            case Input(data) if self._attach.types(self):
                await self._attach.wait_until_drained()
                self._keyboard.receive(data)
            case Input():
                self.tell(Role(types=False))
            case Credit(offset):
                self._credited = max(self._credited, min(offset, self._ring.end))
                self._changed.set()
            case Resize() | Take():
                self._attach.handle(said, self)
            case Ping():
                await self._say(Pong())
            case Close():
                return
            case _:
                assert_never(said)

    def _open(self, said: Open) -> None:
        self._attach.handle(Hello(said.columns, said.rows, said.types), self)
        if not self._is_open:
            self._is_open = True
            if said.after is not None and said.run == self._run and self._ring.holds(said.after):
                self._position = self._credited = said.after
            else:
                self._needs_snapshot = True
        elif said.after is None:
            self._needs_snapshot = True
        self._changed.set()

    async def _send(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            # Before the output is read: what the program has shown until its end must still be sent.
            is_last = self._terminal.exited.done()
            while self._latest:
                await self._say(self._latest.pop(next(iter(self._latest))))
            if self._needs_snapshot:
                await self._send_snapshot()
            await self._send_output(ignore_credit=is_last)
            if is_last:
                await self._say(Exited(self._terminal.exited.result()))
                return

    async def _send_output(self, *, ignore_credit: bool) -> None:
        """Sends the output that there is, as far as the credit goes."""
        sent = 0
        while self._position is not None:
            room = MAX_OUTPUT if ignore_credit else self._credited + MAX_IN_FLIGHT - self._position
            if room <= 0:
                return
            data = self._ring.read(self._position, min(room, MAX_OUTPUT))
            if data is None:
                await self._send_snapshot()
            elif data:
                await self._say(Output(self._position, data))
                self._position += len(data)
                sent += len(data)
            elif sent >= _FLOOD_BYTES and not ignore_credit:
                sent = 0
                await pause(_FLOOD_PAUSE)
            else:
                return
            if self._latest or self._needs_snapshot:
                self._changed.set()
                return

    async def _send_snapshot(self) -> None:
        """Sends a snapshot; the output goes on where it was, or at the snapshot if the bytes between are gone."""
        loop = asyncio.get_running_loop()
        await pause(max(self._next_snapshot - loop.time(), 0.0))
        self._needs_snapshot = False
        begun = loop.time()
        made = await asyncio.to_thread(self._terminal.snapshot)
        rest = min(max((loop.time() - begun) * _SNAPSHOT_SHARE, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        self._next_snapshot = loop.time() + rest
        await self._say(Snapshot(made.offset, made.columns, made.rows, self._run, made.data))
        if self._position is None or self._position < self._ring.start:
            self._position = made.offset
            self._credited = max(self._credited, made.offset)
            # There may be no further output for a long time, and the other side has to know that some is missing.
            await self._say(Output(made.offset, b""))

    async def _say(self, said: ToTerminalViewer) -> None:
        await self._channel.send(encode_to_viewer(HOST_TERMINAL, said))
