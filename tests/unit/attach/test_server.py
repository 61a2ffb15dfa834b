"""The viewers of an agent: which of them types, and what happens when the program does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from synapse.attach.frames import Hello, Resize, Role, Size, Take, ToViewer, decode_to_viewer, encode
from synapse.attach.server import AttachServer
from synapse.core.caller import Caller
from synapse.core.errors import PersonRequired
from synapse.core.override import override


class FakeTerminal:
    """A terminal without a program; `takes_keys` is up to the test."""

    def __init__(self, *, has_person: bool = False) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.has_person = has_person
        self.size = (80, 24)
        self.takes_keys = True
        self.typed: asyncio.Queue[bytes] = asyncio.Queue()

    def watch(self, viewer: Callable[[bytes], None], begin: Callable[[bytes], None]) -> None:
        begin(b"picture of %d columns" % self.size[0])

    def unwatch(self, viewer: Callable[[bytes], None]) -> None:
        """Does nothing: no viewer was kept."""

    def type_keys(self, data: bytes) -> None:
        self.typed.put_nowait(data)

    def resize(self, columns: int, rows: int) -> None:
        self.size = columns, rows


class FakeChannel:
    """A connection whose viewer is the test."""

    def __init__(self) -> None:
        self.to_host: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.received: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.roles: asyncio.Queue[bool] = asyncio.Queue()
        self.shown = b""
        self.was_shown = asyncio.Event()

    async def accept(self) -> None:
        """Does nothing: the test knows."""

    async def receive(self) -> bytes | str | None:
        said = await self.to_host.get()
        self.received.put_nowait(said)
        return said

    async def send(self, data: bytes | str) -> None:
        if isinstance(data, str) and isinstance(frame := decode_to_viewer(data), Role):
            self.roles.put_nowait(frame.types)
        if isinstance(data, bytes):
            self.shown += data
            self.was_shown.set()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Does nothing: there is nothing to close."""


async def test_keys_wait_in_the_connection_while_the_program_has_too_much_to_read() -> None:
    async with asyncio.timeout(20):
        terminal, channel = FakeTerminal(), FakeChannel()
        served = asyncio.ensure_future(AttachServer(terminal)(channel, Caller(via_socket=True)))
        for said in (encode(Hello(80, 24)), b"a", b"b"):
            channel.to_host.put_nowait(said)
        assert await terminal.typed.get() == b"a"
        assert await terminal.typed.get() == b"b"

        terminal.takes_keys = False
        for said in (b"c", b"d"):
            channel.to_host.put_nowait(said)
        while await channel.received.get() != b"c":
            pass
        assert terminal.typed.empty()
        assert channel.to_host.qsize() == 1

        terminal.takes_keys = True
        assert await terminal.typed.get() == b"c"
        assert await terminal.typed.get() == b"d"
        channel.to_host.put_nowait(None)
        await served


async def test_a_viewer_of_another_size_gets_a_picture_that_fits() -> None:
    async with asyncio.timeout(20):
        terminal, channel = FakeTerminal(), FakeChannel()
        served = asyncio.ensure_future(AttachServer(terminal)(channel, Caller(via_socket=True)))
        await channel.was_shown.wait()
        channel.was_shown.clear()
        channel.to_host.put_nowait(encode(Hello(60, 20)))
        await channel.was_shown.wait()

        assert channel.shown.endswith(b"picture of 60 columns")
        channel.to_host.put_nowait(None)
        await served


class DeafChannel(FakeChannel):
    """A connection whose viewer reads nothing before the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read = asyncio.Event()
        self.frames: asyncio.Queue[ToViewer | None] = asyncio.Queue()

    @override
    async def send(self, data: bytes | str) -> None:
        await self.may_read.wait()
        if isinstance(data, str):
            self.frames.put_nowait(decode_to_viewer(data))
        await super().send(data)


async def test_a_viewer_that_reads_nothing_gets_only_the_last_size_and_role() -> None:
    async with asyncio.timeout(20):
        deaf, other = DeafChannel(), FakeChannel()
        server = AttachServer(FakeTerminal())
        visits = [asyncio.ensure_future(server(channel, Caller(via_socket=True))) for channel in (deaf, other)]
        await say(deaf, Hello(80, 24), *[Take()] * 300)
        await say(other, Hello(80, 24, take=True), *(Resize(columns, 24) for columns in range(100, 400)))

        deaf.may_read.set()
        got = {await deaf.frames.get() for _ in range(3)}
        assert got == {Size(80, 24), Size(399, 24), Role(types=False)}
        assert deaf.frames.empty()
        for channel in (deaf, other):
            channel.to_host.put_nowait(None)
        await asyncio.gather(*visits)


async def say(channel: FakeChannel, *frames: Hello | Resize | Take) -> None:
    """Send frames to the host, and wait until it has taken them."""
    for frame in frames:
        channel.to_host.put_nowait(encode(frame))
    for _ in frames:
        await channel.received.get()


async def test_a_viewer_who_only_looks_never_gets_the_keyboard() -> None:
    async with asyncio.timeout(20):
        terminal, channel = FakeTerminal(), FakeChannel()
        served = asyncio.ensure_future(AttachServer(terminal)(channel, Caller(via_socket=True)))
        for said in (encode(Hello(80, 24, types=False, take=True)), encode(Take()), b"x", None):
            channel.to_host.put_nowait(said)
        await served

        assert terminal.typed.empty()


async def test_the_person_of_a_foreground_agent_keeps_the_keyboard_until_a_viewer_takes_it() -> None:
    async with asyncio.timeout(20):
        channel = FakeChannel()
        server = AttachServer(FakeTerminal(has_person=True))
        served = asyncio.ensure_future(server(channel, Caller(via_socket=True)))

        channel.to_host.put_nowait(encode(Hello(80, 24)))
        assert await channel.roles.get() is False
        channel.to_host.put_nowait(encode(Take()))
        assert await channel.roles.get() is True
        channel.to_host.put_nowait(None)
        await served


@pytest.mark.parametrize(
    "caller",
    [
        Caller(),
        Caller(via_socket=True, agent_id="synapse-codex-8120"),
        Caller(via_socket=True, doubt="the process that connected has exited"),
        Caller(via_socket=True, terminal_doubt="it has no terminal"),
    ],
    ids=["over TCP", "an agent", "exited", "without a terminal"],
)
async def test_only_a_person_may_attach(caller: Caller) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(PersonRequired) as refusal:
            await AttachServer(FakeTerminal())(FakeChannel(), caller)
        assert refusal.value.hint == caller.objection
