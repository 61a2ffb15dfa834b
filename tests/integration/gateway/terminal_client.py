"""A page's WebSocket to the terminals of a gateway, with an emulator for each terminal as a browser has one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from synapse.attach.frames import Resize, Take
from synapse.attach.terminal_frames import (
    Close,
    Credit,
    Frame,
    FromViewer,
    Input,
    Kind,
    Open,
    Ping,
    encode_from_viewer,
    split,
)
from synapse.terminal.screen import Screen


@dataclass
class ShownTerminal:
    """What one terminal was told, and the emulator that shows it."""

    number: int
    page: TerminalPage
    run: str = ""
    offset: int = 0
    output: bytearray = field(default_factory=bytearray)
    """All output since it was opened."""
    snapshots: int = 0
    size: tuple[int, int] = (0, 0)
    types: bool | None = None
    exited: int | None = None
    lost: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    screen: Screen = field(default_factory=lambda: Screen(80, 24))
    gives_credit: bool = True

    @property
    def text(self) -> str:
        return "\n".join(self.screen.picture().lines)

    async def say(self, said: FromViewer) -> None:
        await self.page.socket.send(encode_from_viewer(self.number, said))

    async def open(self, agent: str, *, after: int | None = None, run: str = "", types: bool = True) -> None:
        await self.say(Open(agent=agent, after=after, run=run, columns=100, rows=30, types=types))

    async def type(self, text: str) -> None:
        await self.say(Input(text.encode()))

    async def credit(self) -> None:
        await self.say(Credit(self.offset))

    async def take(self) -> None:
        await self.say(Take())

    async def resize(self, columns: int, rows: int) -> None:
        await self.say(Resize(columns, rows))

    async def close(self) -> None:
        await self.say(Close())

    async def ping(self) -> None:
        await self.say(Ping())

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in self.text, f"{text!r} to be shown")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(30):
                while True:
                    changed = self.page.changed
                    if condition():
                        return
                    await changed.wait()
        except TimeoutError:
            raise AssertionError(f"waited for {what}; it shows {self.text}, was told {self.errors}") from None

    async def take_frame(self, frame: Frame) -> None:  # noqa: C901 - one case for each kind
        match frame.kind:
            case Kind.SNAPSHOT:
                head, _, data = frame.payload.partition(b"\n")
                fields = json.loads(head)
                self.run, self.offset, self.size = fields["run"], frame.offset, (fields["columns"], fields["rows"])
                self.snapshots += 1
                self.screen = Screen(*self.size)
                self.screen.feed(data)
            case Kind.OUTPUT:
                assert frame.offset == self.offset, "output is missing, or came twice"
                self.offset += len(frame.payload)
                self.output += frame.payload
                self.screen.feed(frame.payload)
                if self.gives_credit:
                    await self.credit()
            case Kind.SIZE:
                fields = json.loads(frame.payload)
                self.size = fields["columns"], fields["rows"]
            case Kind.ROLE:
                self.types = json.loads(frame.payload)["types"]
            case Kind.EXITED:
                self.exited = json.loads(frame.payload)["status"]
            case Kind.LOST:
                self.lost += 1
            case Kind.ERROR:
                self.errors.append(json.loads(frame.payload))
            case _:
                assert frame.kind == Kind.PONG


class TerminalPage:
    """One WebSocket with any number of terminals."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._terminals: dict[int, ShownTerminal] = {}
        self.changed = asyncio.Event()
        """Set with the next frame, and replaced by another."""
        self.pongs = 0

    def terminal(self, number: int) -> ShownTerminal:
        return self._terminals.setdefault(number, ShownTerminal(number, self))

    async def read(self) -> None:
        async for data in self.socket:
            frame = split(data)
            self.pongs += frame.kind == Kind.PONG
            await self.terminal(frame.terminal).take_frame(frame)
            self.changed.set()
            self.changed = asyncio.Event()


@asynccontextmanager
async def terminal_page(port: int, key: str) -> AsyncGenerator[TerminalPage, None]:
    """Opens a page with the credentials `key`, and reads all that it is told."""
    url = f"ws://localhost:{port}/dashboard/terminals"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with connect(url, additional_headers=headers, max_size=None, compression=None) as socket:
        page = TerminalPage(socket)
        reader = asyncio.ensure_future(page.read())
        try:
            yield page
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
