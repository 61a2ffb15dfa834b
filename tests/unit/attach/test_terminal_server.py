"""A host's terminal by offset: nothing is kept for nobody, one keyboard for all viewers, snapshots for those behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

import pytest

from synapse.attach.frames import Exited, Hello, Resize, Role, Size, Take, encode
from synapse.attach.frames import decode_to_viewer as decode_attach
from synapse.attach.output_ring import KEPT_BYTES
from synapse.attach.server import AttachServer
from synapse.attach.terminal_frames import (
    MAX_IN_FLIGHT,
    Close,
    Credit,
    FromViewer,
    Input,
    Kind,
    Open,
    Output,
    Ping,
    Snapshot,
    decode_to_viewer,
    encode_from_viewer,
    split,
)
from synapse.attach.terminal_server import TerminalServer
from synapse.core.caller import Caller
from synapse.core.errors import PersonRequired

PERSON = Caller(via_socket=True)
BOUND = 20
Told = Snapshot | Output | Size | Role | Exited
T = TypeVar("T", bound=Told)


class Shot(NamedTuple):
    offset: int
    columns: int
    rows: int
    data: bytes


class FakeTerminal:
    """A terminal whose program is the test."""

    def __init__(self) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.has_person = False
        self.size = (80, 24)
        self.takes_keys = True
        self.typed: asyncio.Queue[bytes] = asyncio.Queue()
        self.viewers: list[Callable[[bytes], None]] = []
        self.offset = 0
        self.snapshots = 0

    def prints(self, data: bytes) -> None:
        self.offset += len(data)
        for viewer in self.viewers:
            viewer(data)

    def watch(self, viewer: Callable[[bytes], None], begin: Callable[[bytes], None]) -> None:
        begin(b"picture")

    def follow(self, viewer: Callable[[bytes], None], begin: Callable[[int], None]) -> None:
        begin(self.offset)
        self.viewers.append(viewer)

    def unwatch(self, viewer: Callable[[bytes], None]) -> None:
        if viewer in self.viewers:
            self.viewers.remove(viewer)

    def snapshot(self) -> Shot:
        self.snapshots += 1
        return Shot(self.offset, *self.size, b"whole")

    def type_keys(self, data: bytes) -> None:
        self.typed.put_nowait(data)

    def resize(self, columns: int, rows: int) -> None:
        self.size = columns, rows


class FakeChannel:
    """A connection whose other side is the test."""

    def __init__(self) -> None:
        self._to_host: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.sent: asyncio.Queue[bytes | str] = asyncio.Queue()
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def accept(self) -> None:
        """Does nothing: the test knows."""

    async def receive(self) -> bytes | str | None:
        return await self._to_host.get()

    async def send(self, data: bytes | str) -> None:
        await self.may_read.wait()
        self.sent.put_nowait(data)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Does nothing: there is nothing to close."""

    def say(self, said: FromViewer) -> None:
        self._to_host.put_nowait(encode_from_viewer(0, said))

    def say_raw(self, data: bytes | str | None) -> None:
        self._to_host.put_nowait(data)

    async def hears(self, kind: type[T]) -> T:
        async with asyncio.timeout(BOUND):
            while not isinstance(said := decode_to_viewer(split(await self.sent.get())), kind):
                pass
            return said

    async def hears_kind(self, kind: Kind) -> bytes:
        async with asyncio.timeout(BOUND):
            while (frame := split(await self.sent.get())).kind != kind:
                pass
            return frame.payload


class Served:
    """A terminal and its two servers."""

    def __init__(self) -> None:
        self.terminal = FakeTerminal()
        self.attach = AttachServer(self.terminal)
        self.server = TerminalServer(self.attach, self.terminal, "r1")

    @asynccontextmanager
    async def connected(
        self, *, types: bool = False, after: int | None = None, run: str = ""
    ) -> AsyncGenerator[FakeChannel]:
        channel = FakeChannel()
        served = asyncio.ensure_future(self.server(channel, PERSON))
        channel.say(Open(agent="", after=after, run=run, columns=100, rows=30, types=types))
        try:
            yield channel
        finally:
            channel.say_raw(None)
            async with asyncio.timeout(BOUND):
                await served


async def test_a_connection_gets_a_snapshot_then_the_output() -> None:
    here = Served()
    here.terminal.prints(b"before")
    async with here.connected() as channel:
        assert await channel.hears(Size) == Size(80, 24)
        assert await channel.hears(Snapshot) == Snapshot(6, 80, 24, "r1", b"whole")
        here.terminal.prints(b"after")
        while not (output := await channel.hears(Output)).data:
            pass
        assert output == Output(6, b"after")


async def test_nothing_is_kept_while_nobody_is_connected_and_the_pump_pays_for_one() -> None:
    here = Served()
    async with here.connected() as first, here.connected() as second:
        await first.hears(Snapshot)
        await second.hears(Snapshot)
        assert len(here.terminal.viewers) == 1

    assert here.terminal.viewers == []


async def test_a_connection_goes_on_at_an_offset_that_is_kept() -> None:
    here = Served()
    async with here.connected() as keeper:
        await keeper.hears(Snapshot)
        here.terminal.prints(b"0123456789")
        async with here.connected(after=4, run="r1") as back:
            assert await back.hears(Output) == Output(4, b"456789")
        assert here.terminal.snapshots == 1
        async with here.connected(after=4, run="r0") as stranger:
            assert (await stranger.hears(Snapshot)).offset == 10


async def test_without_credit_the_output_stops_and_with_it_a_snapshot_comes() -> None:
    here = Served()
    async with here.connected() as channel:
        await channel.hears(Snapshot)
        received = 0
        while received < MAX_IN_FLIGHT:
            here.terminal.prints(bytes(32768))
            while (output := await channel.hears(Output)).offset + len(output.data) < here.terminal.offset:
                pass
            received = output.offset + len(output.data)
        for _ in range(2 * KEPT_BYTES // 32768):
            here.terminal.prints(bytes(32768))
        channel.say(Ping())
        await channel.hears_kind(Kind.PONG)
        assert channel.sent.empty()

        channel.say(Credit(received))

        assert (await channel.hears(Snapshot)).offset == here.terminal.offset
        assert await channel.hears(Output) == Output(here.terminal.offset, b"")


async def test_the_keyboard_is_shared_with_people_who_are_attached() -> None:
    here = Served()
    person = FakeChannel()
    attached = asyncio.ensure_future(here.attach(person, PERSON))
    person.say_raw(encode(Hello(90, 25)))
    async with asyncio.timeout(BOUND):
        while decode_attach(str(await person.sent.get())) != Role(types=True):
            pass
    async with here.connected(types=True) as channel:
        assert not (await channel.hears(Role)).types
        channel.say(Input(b"ignored"))
        channel.say(Take())
        while not (await channel.hears(Role)).types:
            pass
        channel.say(Input(b"typed"))
        async with asyncio.timeout(BOUND):
            assert await here.terminal.typed.get() == b"typed"
        assert here.terminal.size == (100, 30)
        channel.say(Resize(120, 40))
        while (await channel.hears(Snapshot)).columns != 120:
            pass

        channel.say(Open(agent="", after=0, run="r1", columns=100, rows=30, types=False))

        async with asyncio.timeout(BOUND):
            while decode_attach(str(await person.sent.get())) != Role(types=True):
                pass
        assert here.terminal.size == (90, 25)
    person.say_raw(None)
    await attached


async def test_the_last_output_and_the_status_arrive_however_little_credit_there_is() -> None:
    here = Served()
    async with here.connected() as channel:
        await channel.hears(Snapshot)
        here.terminal.prints(b"goodbye")
        here.terminal.exited.set_result(3)

        while (output := await channel.hears(Output)).data != b"goodbye":
            pass
        assert output.offset == 0
        assert await channel.hears(Exited) == Exited(3)


async def test_nonsense_is_answered_and_a_close_ends_the_connection() -> None:
    here = Served()
    async with here.connected() as channel:
        channel.say_raw("text")
        assert b"invalid_request" in await channel.hears_kind(Kind.ERROR)
        channel.say(Close())

    assert here.terminal.viewers == []


async def test_agents_may_not_connect() -> None:
    here = Served()
    with pytest.raises(PersonRequired):
        await here.server(FakeChannel(), Caller(via_socket=True, agent_id="synapse-claude-8100"))
