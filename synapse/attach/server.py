"""Lets people look at an agent's terminal over a connection, and one of them type.

The first who wishes to type does; a later one may take that over. At an agent that has a person's terminal of its own
that person types, until somebody takes it over; the size is that terminal's then, otherwise the typist's.

The keys of somebody who looks on: what their terminal answers by itself is not among them.

The program's queries reach every terminal that shows it, and each would answer. One answer is right, and the agent's
own terminal has given it already.

One who looks at an agent's terminal: a bounded buffer between the pump and a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from synapse.attach.frames import Exited, Hello, Resize, Role, Size, Take, ToHost, ToViewer, decode_to_host, encode
from synapse.core.caller import Caller
from synapse.core.errors import PersonRequired
from synapse.terminal.keys import Key, KeyParser, Kind

# Undoes the modes that a picture may set; a picture is painted onto a plain terminal. The alternate screen stays: the
# viewer's own command has switched to it, so that the shell's screen comes back when it leaves.
_PLAIN: Final = (
    b"\x1b[?1;66;9;1000;1002;1003;1004;1005;1006;1015;1016;2004;2031l\x1b[?1007h\x1b[=0;1u\x1b[>4;0m\x1b[?7h\x1b[?25h"
    b"\x1b[r\x1b[0m\x1b[H"
)
_DRAIN_SECONDS: Final = 0.05
"""How often to look whether a program has read what was written."""
_ROOM_SECONDS: Final = 2.0
_ESCAPE_SECONDS: Final = 0.05
"""A sequence that is cut comes whole within this time, or it was the Escape key."""
MOST_WAITING: Final = 256 * 1024
"""A viewer that is further behind than this gets a fresh picture instead of what it has missed."""


class WatchedTerminal(Protocol):
    """An agent's terminal, as those who look need it."""

    @property
    def exited(self) -> asyncio.Future[int]: ...

    @property
    def has_person(self) -> bool:
        """A person's own terminal shows it, and gives it its size."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        ...

    def watch(self, watcher: Callable[[bytes], None], begin: Callable[[bytes], None]) -> None: ...

    def unwatch(self, watcher: Callable[[bytes], None]) -> None: ...

    def type_keys(self, data: bytes) -> None: ...

    @property
    def takes_keys(self) -> bool:
        """False while the program has so much to read that further keys would be dropped."""
        ...

    def resize(self, columns: int, rows: int) -> None: ...


class Channel(Protocol):
    """A connection. `receive` returns None when it is closed; `send` raises ConnectionError then."""

    async def accept(self) -> None: ...

    async def receive(self) -> bytes | str | None: ...

    async def send(self, data: bytes | str) -> None: ...

    async def close(self, code: int = 1000, reason: str = "") -> None: ...


@dataclass(eq=False)
class _Seat:
    """One viewer and what it wishes."""

    viewer: Viewer
    wishes_to_type: bool = False
    size: tuple[int, int] | None = None
    told: asyncio.Queue[ToViewer] = field(default_factory=asyncio.Queue[ToViewer])


class AttachServer:
    """Serves all viewers of one agent."""

    def __init__(self, terminal: WatchedTerminal, *, agents_may_attach: bool = False) -> None:
        self._terminal = terminal
        self._agents_may_attach = agents_may_attach
        self._seats: list[_Seat] = []
        self._typist: _Seat | None = None

    async def __call__(self, channel: Channel, caller: Caller) -> None:
        """Hold one conversation until the viewer leaves or the program ends.

        Raises:
            PersonRequired: the caller is no person.
        """
        if not (caller.may_decide or self._agents_may_attach):
            raise PersonRequired("only a person may attach to an agent's terminal", hint=caller.objection)
        await channel.accept()
        seat = _Seat(Viewer())
        self._seats.append(seat)
        self._watch(seat)
        seat.told.put_nowait(Size(*self._terminal.size))
        try:
            await self._serve(channel, seat)
        finally:
            self._terminal.unwatch(seat.viewer.receive)
            self._seats.remove(seat)
            if self._typist is seat:
                self._give_role(next((other for other in self._seats if self._may_type(other)), None))

    def _watch(self, seat: _Seat) -> None:
        """Begin anew with a picture of what is there now."""
        self._terminal.watch(seat.viewer.receive, lambda picture: seat.viewer.begin(_PLAIN + picture))

    async def _serve(self, channel: Channel, seat: _Seat) -> None:
        works = [
            asyncio.ensure_future(work)
            for work in (self._show(channel, seat), self._tell(channel, seat), self._hear(channel, seat))
        ]
        self._terminal.exited.add_done_callback(seat.viewer.end)
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._terminal.exited.remove_done_callback(seat.viewer.end)
            for work in works:
                work.cancel()
            outcomes = await asyncio.gather(*works, return_exceptions=True)
        if self._terminal.exited.done():
            with contextlib.suppress(ConnectionError):
                await channel.send(encode(Exited(self._terminal.exited.result())))
        await channel.close(1000, "")
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
                raise outcome

    async def _show(self, channel: Channel, seat: _Seat) -> None:
        """Pass the program's output on; returns after the last of it."""
        while (data := await seat.viewer.take()) is not None:
            if seat.viewer.is_behind:
                self._watch(seat)
            elif data:
                await channel.send(data)

    async def _tell(self, channel: Channel, seat: _Seat) -> None:
        while True:
            await channel.send(encode(await seat.told.get()))

    async def _hear(self, channel: Channel, seat: _Seat) -> None:
        keyboard = Keyboard(self._terminal.type_keys)
        try:
            await self._listen(channel, seat, keyboard)
        finally:
            keyboard.close()

    async def _listen(self, channel: Channel, seat: _Seat, keyboard: Keyboard) -> None:
        while (said := await channel.receive()) is not None:
            if isinstance(said, str):
                frame = decode_to_host(said)
                if frame is not None:
                    self._obey(frame, seat)
            elif self._typist is seat:
                await self._wait_for_room()
                keyboard.receive(said)
            elif seat.told.empty():
                seat.told.put_nowait(Role(types=False))

    async def _wait_for_room(self) -> None:
        """Read no further keys for a while if the program does not; after that they are lost, as on any terminal."""
        end = asyncio.get_running_loop().time() + _ROOM_SECONDS
        while not self._terminal.takes_keys and asyncio.get_running_loop().time() < end:
            await asyncio.wait((self._terminal.exited,), timeout=_DRAIN_SECONDS)

    def _obey(self, frame: ToHost, seat: _Seat) -> None:
        match frame:
            case Hello(columns, rows, types, take):
                seat.size, seat.wishes_to_type = (columns, rows), types
                if types and (take or (self._typist is None and self._may_type(seat))):
                    self._give_role(seat)
                else:
                    seat.told.put_nowait(Role(types=self._typist is seat))
            case Resize(columns, rows):
                seat.size = columns, rows
                if self._typist is seat:
                    self._fit(seat)
            case Take():
                if seat.wishes_to_type:
                    self._give_role(seat)
            case _:
                assert_never(frame)

    def _may_type(self, seat: _Seat) -> bool:
        """True if it gets the keyboard without taking it."""
        return seat.wishes_to_type and not self._terminal.has_person

    def _give_role(self, seat: _Seat | None) -> None:
        before, self._typist = self._typist, seat
        if before is not None and before is not seat:
            before.told.put_nowait(Role(types=False))
        if seat is not None:
            # The size first: by then the viewer knows whether there is room for the picture.
            self._fit(seat)
            seat.told.put_nowait(Role(types=True))

    def _fit(self, seat: _Seat) -> None:
        """Give the terminal the typist's size."""
        if seat.size is None or self._terminal.has_person or seat.size == self._terminal.size:
            return
        self._terminal.resize(*seat.size)
        for other in self._seats:
            other.told.put_nowait(Size(*seat.size))
            # Only full-screen programs paint anew for another size; the picture of before may not have fitted.
            self._watch(other)


class Keyboard:
    """Passes a viewer's keys on, without the answers of their terminal."""

    def __init__(self, pass_on: Callable[[bytes], None]) -> None:
        self._pass_on = pass_on
        self._parser = KeyParser()
        self._timer: asyncio.TimerHandle | None = None

    def receive(self, data: bytes) -> None:
        self.close()
        self._pass(self._parser.feed(data))
        if self._parser.pending:
            self._timer = asyncio.get_running_loop().call_later(_ESCAPE_SECONDS, self._flush)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        self._pass(self._parser.flush())

    def _pass(self, keys: list[Key]) -> None:
        data = b"".join(key.raw for key in keys if key.kind is not Kind.REPORT)
        if data:
            self._pass_on(data)


class Viewer:
    """Takes bytes from the pump's thread and hands them to the loop's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting = bytearray()
        self._is_behind = False
        self._there = asyncio.Event()
        self._is_told = False
        self._is_over = False

    @property
    def is_behind(self) -> bool:
        """True if it has missed something: then only a fresh picture helps."""
        return self._is_behind

    def receive(self, data: bytes) -> None:
        """Take what the program printed; never waits. The pump's thread."""
        with self._lock:
            if len(self._waiting) + len(data) > MOST_WAITING:
                self._waiting.clear()
                self._is_behind = True
            elif not self._is_behind:
                self._waiting += data
            if self._is_told:
                return
            self._is_told = True
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._there.set)

    def begin(self, picture: bytes) -> None:
        """Start anew with a picture; what was waiting is older than it. The loop's thread."""
        with self._lock:
            self._waiting[:] = picture
            self._is_behind = False
        self._there.set()

    def end(self, _reason: object = None) -> None:
        """Nothing more will come. The loop's thread."""
        self._is_over = True
        self._there.set()

    async def take(self) -> bytes | None:
        """Wait for bytes and return all that are there: none when the viewer is behind, None after the last."""
        while True:
            with self._lock:
                data = bytes(self._waiting)
                self._waiting.clear()
                if data or self._is_behind:
                    return data
                if self._is_over:
                    return None
                self._there.clear()
                self._is_told = False
            await self._there.wait()
