"""Serves an agent's terminal to viewers over connections; one of them has the keyboard.

The first viewer that wants to type gets the keyboard; a later one may take it. At an agent that runs in a person's own
terminal that person types until a viewer takes the keyboard; the size is then that terminal's, otherwise the viewer's
who types.

The program's queries reach every terminal that shows it, and each would answer. The agent's own terminal has answered
already, so the answers of viewers' terminals are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from synapse.attach.frames import Exited, Hello, Resize, Role, Size, Take, ToHost, ToViewer, decode_to_host, encode
from synapse.core.caller import Caller
from synapse.core.errors import PersonRequired
from synapse.terminal.keys import Key, KeyKind, KeyParser

# Resets the modes that a picture may set, because a picture assumes a plain terminal. The alternate screen stays: the
# viewer's command has switched to it, so that the shell's screen returns when it leaves.
_PLAIN: Final = (
    b"\x1b[?1;66;9;1000;1002;1003;1004;1005;1006;1015;1016;2004;2031l\x1b[?1007h\x1b[=0;1u\x1b[>4;0m\x1b[?7h\x1b[?25h"
    b"\x1b[r\x1b[0m\x1b[H"
)
_DRAIN_SECONDS: Final = 0.05
"""How often to check whether the program has read its input."""
_DRAIN_LIMIT_SECONDS: Final = 2.0
_ESCAPE_SECONDS: Final = 0.05
"""The rest of a split sequence arrives within this time; otherwise it was the Escape key."""
MAX_BUFFERED_BYTES: Final = 256 * 1024
"""A viewer that is further behind gets a fresh picture instead of the output that it missed."""


class WatchedTerminal(Protocol):
    """The agent's terminal, as AttachServer uses it."""

    @property
    def exited(self) -> asyncio.Future[int]: ...

    @property
    def has_person(self) -> bool:
        """Whether a person's own terminal shows it, and sets its size."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        ...

    def watch(self, viewer: Callable[[bytes], None], begin: Callable[[bytes], None]) -> None: ...

    def unwatch(self, viewer: Callable[[bytes], None]) -> None: ...

    def type_keys(self, data: bytes) -> None: ...

    @property
    def takes_keys(self) -> bool:
        """False while the program's input is so full that more keys would be dropped."""
        ...

    def resize(self, columns: int, rows: int) -> None: ...


class ViewerChannel(Protocol):
    """A viewer's connection. After it is closed, `receive` returns None and `send` raises ConnectionError."""

    async def accept(self) -> None: ...

    async def receive(self) -> bytes | str | None: ...

    async def send(self, data: bytes | str) -> None: ...

    async def close(self, code: int = 1000, reason: str = "") -> None: ...


class _Frames:
    """The frames to send to one viewer, the last one of each kind: a newer size or role replaces the one before it.

    So they do not grow for a viewer that reads nothing while it, or another one, sends frame after frame.
    """

    def __init__(self) -> None:
        self._latest: dict[type[ToViewer], ToViewer] = {}
        self._available = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._latest

    def put(self, frame: ToViewer) -> None:
        self._latest.pop(type(frame), None)
        self._latest[type(frame)] = frame
        self._available.set()

    async def take(self) -> ToViewer:
        """Waits for a frame, and returns the one that has waited longest."""
        await self._available.wait()
        frame = self._latest.pop(next(iter(self._latest)))
        if not self._latest:
            self._available.clear()
        return frame


class ViewerConnection(Protocol):
    """A viewer, as AttachServer decides who of them types; compared by identity."""

    wants_to_type: bool
    size: tuple[int, int] | None

    def tell(self, frame: Role | Size) -> None:
        """Sends the viewer its role, or the size of the program's terminal."""
        ...

    def repaint(self) -> None:
        """Shows the viewer the whole screen again."""
        ...


@dataclass(eq=False)
class _Connection:
    """One viewer of `/attach`, what it wants, and the frames to send it."""

    viewer: Viewer
    terminal: WatchedTerminal
    wants_to_type: bool = False
    size: tuple[int, int] | None = None
    frames: _Frames = field(default_factory=_Frames)

    def tell(self, frame: Role | Size) -> None:
        self.frames.put(frame)

    def repaint(self) -> None:
        """Starts the viewer with a picture of the present screen."""
        self.terminal.watch(self.viewer.receive, lambda picture: self.viewer.begin(_PLAIN + picture))


class AttachServer:
    """Serves all viewers of one agent, and decides who of them types, also of those that `TerminalServer` serves."""

    def __init__(self, terminal: WatchedTerminal, *, agents_may_attach: bool = False) -> None:
        self._terminal = terminal
        self._agents_may_attach = agents_may_attach
        self._connections: list[ViewerConnection] = []
        self._keyboard_owner: ViewerConnection | None = None

    async def __call__(self, channel: ViewerChannel, caller: Caller) -> None:
        """Serves one viewer until it leaves or the program ends.

        Raises:
            PersonRequired: the caller is not a person.
        """
        self.check_person(caller)
        await channel.accept()
        connection = _Connection(Viewer(), self._terminal)
        connection.repaint()
        try:
            with self.joined(connection):
                await self._serve(channel, connection)
        finally:
            self._terminal.unwatch(connection.viewer.receive)

    def check_person(self, caller: Caller) -> None:
        """Raises PersonRequired unless the caller may attach."""
        if not (caller.may_decide or self._agents_may_attach):
            raise PersonRequired("only a person may attach to an agent's terminal", hint=caller.objection)

    @contextlib.contextmanager
    def joined(self, connection: ViewerConnection) -> Generator[None, None, None]:
        """Counts the viewer among those of the terminal; the keyboard of one that leaves goes to the next."""
        self._connections.append(connection)
        connection.tell(Size(*self._terminal.size))
        try:
            yield
        finally:
            self._connections.remove(connection)
            self._release_keyboard(connection)

    def types(self, connection: ViewerConnection) -> bool:
        """Returns whether the viewer's keys reach the program."""
        return self._keyboard_owner is connection

    async def wait_until_drained(self) -> None:
        """Waits a while if the program does not read its keys; after that they are lost, as on any terminal."""
        end = asyncio.get_running_loop().time() + _DRAIN_LIMIT_SECONDS
        while not self._terminal.takes_keys and asyncio.get_running_loop().time() < end:
            await asyncio.wait((self._terminal.exited,), timeout=_DRAIN_SECONDS)

    def handle(self, frame: ToHost, connection: ViewerConnection) -> None:
        """Does what the viewer asks."""
        match frame:
            case Hello():
                self._greet(frame, connection)
            case Resize(columns, rows):
                connection.size = columns, rows
                if self.types(connection):
                    self._fit(connection)
            case Take():
                if connection.wants_to_type:
                    self._give_keyboard(connection)
            case _:
                assert_never(frame)

    def _greet(self, hello: Hello, connection: ViewerConnection) -> None:
        known, told = (connection.size, connection.wants_to_type), ((hello.columns, hello.rows), hello.types)
        connection.size, connection.wants_to_type = told
        if known == told:
            # It has shown something of its own, and wants the program's screen again.
            connection.repaint()
        if hello.types and (hello.take or (self._keyboard_owner is None and self._may_type(connection))):
            self._give_keyboard(connection)
            return
        if not hello.types:
            self._release_keyboard(connection)
        elif self.types(connection):
            self._fit(connection)
        connection.tell(Role(types=self.types(connection)))

    async def _serve(self, channel: ViewerChannel, connection: _Connection) -> None:
        jobs = [
            asyncio.ensure_future(job)
            for job in (
                self._show(channel, connection),
                self._send_frames(channel, connection),
                self._receive(channel, connection),
            )
        ]
        self._terminal.exited.add_done_callback(connection.viewer.end)
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._terminal.exited.remove_done_callback(connection.viewer.end)
            for job in jobs:
                job.cancel()
            outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        if self._terminal.exited.done():
            with contextlib.suppress(ConnectionError):
                await channel.send(encode(Exited(self._terminal.exited.result())))
        await channel.close(1000, "")
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
                raise outcome

    async def _show(self, channel: ViewerChannel, connection: _Connection) -> None:
        """Sends the program's output; returns after the last of it."""
        while (data := await connection.viewer.take()) is not None:
            if connection.viewer.is_behind:
                connection.repaint()
            elif data:
                await channel.send(data)

    async def _send_frames(self, channel: ViewerChannel, connection: _Connection) -> None:
        while True:
            await channel.send(encode(await connection.frames.take()))

    async def _receive(self, channel: ViewerChannel, connection: _Connection) -> None:
        keyboard = Keyboard(self._terminal.type_keys)
        try:
            while (received := await channel.receive()) is not None:
                if isinstance(received, str):
                    frame = decode_to_host(received)
                    if frame is not None:
                        self.handle(frame, connection)
                elif self.types(connection):
                    await self.wait_until_drained()
                    keyboard.receive(received)
                elif connection.frames.is_empty:
                    connection.frames.put(Role(types=False))
        finally:
            keyboard.close()

    def _may_type(self, connection: ViewerConnection) -> bool:
        """Returns whether the viewer may have the keyboard without taking it."""
        return connection.wants_to_type and not self._terminal.has_person

    def _release_keyboard(self, connection: ViewerConnection) -> None:
        """Gives the keyboard to the next viewer who wants to type, if this one has it."""
        if self._keyboard_owner is connection:
            self._give_keyboard(next((other for other in self._connections if self._may_type(other)), None))

    def _give_keyboard(self, connection: ViewerConnection | None) -> None:
        before, self._keyboard_owner = self._keyboard_owner, connection
        if before is not None and before is not connection:
            before.tell(Role(types=False))
        if connection is not None:
            # The size first, so that the viewer knows whether the picture fits.
            self._fit(connection)
            connection.tell(Role(types=True))

    def _fit(self, connection: ViewerConnection) -> None:
        """Resizes the terminal to the size of the viewer who types."""
        if connection.size is None or self._terminal.has_person or connection.size == self._terminal.size:
            return
        self._terminal.resize(*connection.size)
        for other in self._connections:
            other.tell(Size(*connection.size))
            # Only full-screen programs repaint for another size, and the previous picture may not have fitted.
            other.repaint()


class Keyboard:
    """Forwards a viewer's keys without the answers of their terminal."""

    def __init__(self, forward: Callable[[bytes], None]) -> None:
        self._forward = forward
        self._parser = KeyParser()
        self._timer: asyncio.TimerHandle | None = None

    def receive(self, data: bytes) -> None:
        self.close()
        self._pass(self._parser.feed(data))
        if self._parser.pending:
            self._timer = asyncio.get_running_loop().call_later(
                _ESCAPE_SECONDS, lambda: self._pass(self._parser.flush())
            )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pass(self, keys: list[Key]) -> None:
        data = b"".join(key.raw for key in keys if key.kind is not KeyKind.REPORT)
        if data:
            self._forward(data)


class Viewer:
    """A bounded buffer that carries output from the pump's thread to the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._is_behind = False
        self._available = asyncio.Event()
        self._is_signalled = False
        self._is_over = False

    @property
    def is_behind(self) -> bool:
        """True if output was dropped: the viewer needs a fresh picture."""
        return self._is_behind

    def receive(self, data: bytes) -> None:
        """Adds output of the program; never blocks. Called in the pump's thread."""
        with self._lock:
            if len(self._buffer) + len(data) > MAX_BUFFERED_BYTES:
                self._buffer.clear()
                self._is_behind = True
            elif not self._is_behind:
                self._buffer += data
            if self._is_signalled:
                return
            self._is_signalled = True
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._available.set)

    def begin(self, picture: bytes) -> None:
        """Replaces the buffer with a picture, which is newer. Called in the loop's thread."""
        with self._lock:
            self._buffer[:] = picture
            self._is_behind = False
        self._available.set()

    def end(self, _reason: object = None) -> None:
        """Marks the end of the output. Called in the loop's thread."""
        self._is_over = True
        self._available.set()

    async def take(self) -> bytes | None:
        """Waits for bytes and returns all of them: empty if the viewer is behind, None after the last."""
        while True:
            with self._lock:
                data = bytes(self._buffer)
                self._buffer.clear()
                if data or self._is_behind:
                    return data
                if self._is_over:
                    return None
                self._available.clear()
                self._is_signalled = False
            await self._available.wait()
