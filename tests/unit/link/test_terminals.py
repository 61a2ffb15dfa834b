"""The WebSockets of a proxy socket: persons only, frames as they are, and a view that comes back after a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from synapse.attach.frames import Hello, Resize, Role, Take, encode
from synapse.core.caller import Caller
from synapse.core.errors import Forbidden, MachineAway, PersonRequired, SynapseError
from synapse.fleet.stream import Reason
from synapse.link.streams import StreamKind
from synapse.link.terminals import RemoteAttach, RemoteTerminal
from synapse.server.websocket import WebSocketChannel

BOUND = 20
PERSON = Caller(via_socket=True, pid=1)
AGENT = Caller(via_socket=True, agent_id="synapse-claude-8100", pid=1)


class FakeStream:
    """A stream to another machine; the test speaks for that machine. Implements StreamChannel."""

    def __init__(self) -> None:
        self.ended: Reason | None = None
        self.stream_id = ""
        self.heard: asyncio.Queue[bytes | str] = asyncio.Queue()
        self.refused: asyncio.Queue[bytes | str] = asyncio.Queue()
        self._says: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.is_closed = False

    async def send(self, data: bytes | str) -> None:
        if self.ended is not None:
            self.refused.put_nowait(data)
            raise ConnectionError
        self.heard.put_nowait(data)

    async def receive(self) -> bytes | str | None:
        return await self._says.get()

    async def close(self) -> None:
        self.is_closed = True

    def say(self, data: bytes | str) -> None:
        self._says.put_nowait(data)

    def end(self, reason: Reason) -> None:
        self.ended = reason
        self._says.put_nowait(None)

    async def hears(self) -> bytes | str:
        async with asyncio.timeout(BOUND):
            return await self.heard.get()


class FakeMachine:
    """Gives each connection the next stream, or raises the next error."""

    def __init__(self, *streams: FakeStream | SynapseError) -> None:
        self._streams = list(streams)
        self.asked: list[StreamKind] = []
        self.lost: list[str] = []

    async def open(self, kind: StreamKind, lost: str) -> FakeStream:
        self.asked.append(kind)
        self.lost.append(lost)
        found = self._streams.pop(0)
        if isinstance(found, SynapseError):
            raise found
        found.stream_id = f"stream-{len(self.asked)}"
        return found


class Viewer:
    """The local end of a WebSocket, as ASGI gives it."""

    def __init__(self) -> None:
        self.shown: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._sends: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.channel = WebSocketChannel(self._sends.get, self._show)

    def send(self, data: bytes | str) -> None:
        kind = "bytes" if isinstance(data, bytes) else "text"
        self._sends.put_nowait({"type": "websocket.receive", kind: data})

    def leave(self) -> None:
        self._sends.put_nowait({"type": "websocket.disconnect"})

    async def sees(self) -> bytes | str:
        async with asyncio.timeout(BOUND):
            while (message := await self.shown.get())["type"] != "websocket.send":
                pass
            data: bytes | str = message["bytes"] if "bytes" in message else message["text"]
            return data

    def told(self) -> list[dict[str, Any]]:
        """Takes all messages so far."""
        return [self.shown.get_nowait() for _ in range(self.shown.qsize())]

    async def _show(self, message: Any) -> None:
        self.shown.put_nowait(dict(message))


def attach_to(machine: FakeMachine) -> RemoteAttach:
    return RemoteAttach(machine.open, "box2", retry_seconds=0)


def terminal_of(machine: FakeMachine) -> RemoteTerminal:
    return RemoteTerminal(machine.open)


BOTH = pytest.mark.parametrize("handler", [attach_to, terminal_of])
Handler = Callable[[FakeMachine], RemoteAttach | RemoteTerminal]


async def finished(job: asyncio.Task[None]) -> None:
    async with asyncio.timeout(BOUND):
        await job


@BOTH
async def test_an_agent_is_refused_before_anything_is_asked(handler: Handler) -> None:
    machine, viewer = FakeMachine(FakeStream()), Viewer()

    with pytest.raises(PersonRequired, match="only a person"):
        await handler(machine)(viewer.channel, AGENT)

    assert not machine.asked
    assert not viewer.channel.accepted


@BOTH
async def test_a_machine_that_refuses_refuses_the_handshake(handler: Handler) -> None:
    viewer = Viewer()

    with pytest.raises(MachineAway):
        await handler(FakeMachine(MachineAway("box2")))(viewer.channel, PERSON)

    assert not viewer.channel.accepted


@BOTH
async def test_frames_pass_both_ways_until_the_viewer_leaves(handler: Handler) -> None:
    stream, viewer = FakeStream(), Viewer()
    job = asyncio.ensure_future(handler(FakeMachine(stream))(viewer.channel, PERSON))

    viewer.send(encode(Hello(80, 24)))
    viewer.send(b"keys")
    stream.say(b"screen")
    stream.say(encode(Role(types=True)))

    assert [await stream.hears(), await stream.hears()] == [encode(Hello(80, 24)), b"keys"]
    assert [await viewer.sees(), await viewer.sees()] == [b"screen", encode(Role(types=True))]
    viewer.leave()
    await finished(job)
    assert stream.is_closed


@BOTH
async def test_a_stream_that_ends_in_order_ends_the_view(handler: Handler) -> None:
    stream, viewer = FakeStream(), Viewer()
    machine = FakeMachine(stream)
    job = asyncio.ensure_future(handler(machine)(viewer.channel, PERSON))

    stream.end(Reason.LEFT)

    await finished(job)
    assert len(machine.asked) == 1


async def test_a_gateway_reconnects_by_itself_with_its_offset() -> None:
    stream, viewer = FakeStream(), Viewer()
    machine = FakeMachine(stream)
    job = asyncio.ensure_future(terminal_of(machine)(viewer.channel, PERSON))

    stream.end(Reason.SILENCE)

    await finished(job)
    assert machine.asked == [StreamKind.TERMINAL]


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.is_loss])
async def test_an_attached_person_is_told_of_a_loss_and_sees_the_screen_again(reason: Reason) -> None:
    lost, found, viewer = FakeStream(), FakeStream(), Viewer()
    machine = FakeMachine(lost, MachineAway("box2"), MachineAway("box2"), found)
    job = asyncio.ensure_future(attach_to(machine)(viewer.channel, PERSON))
    for frame in (Hello(80, 24, take=True), Take(), Resize(100, 30)):
        viewer.send(encode(frame))
        await lost.hears()

    lost.end(reason)

    assert "no connection to box2" in str(await viewer.sees())
    # The size of now; the keyboard of somebody who took it since is not taken back.
    assert await found.hears() == encode(Hello(100, 30, take=False))
    assert machine.lost == ["", "stream-1", "stream-1", "stream-1"]
    viewer.send(b"keys")
    assert await found.hears() == b"keys"
    viewer.leave()
    await finished(job)
    assert found.is_closed


async def test_keys_that_are_typed_without_a_connection_are_not_typed_later() -> None:
    lost, found, viewer = FakeStream(), FakeStream(), Viewer()
    machine = FakeMachine(lost, found)
    job = asyncio.ensure_future(attach_to(machine)(viewer.channel, PERSON))
    viewer.send(encode(Hello(80, 24)))
    await lost.hears()
    lost.ended = Reason.HOLE
    viewer.send(b"rm -rf")
    viewer.send(encode(Resize(90, 20)))

    async with asyncio.timeout(BOUND):
        assert [await lost.refused.get(), await lost.refused.get()] == [b"rm -rf", encode(Resize(90, 20))]
    lost.end(Reason.HOLE)

    assert await found.hears() == encode(Hello(90, 20))
    viewer.send(b"ls")
    assert await found.hears() == b"ls"
    job.cancel()


async def test_a_right_that_was_withdrawn_meanwhile_ends_the_view() -> None:
    lost, viewer = FakeStream(), Viewer()
    job = asyncio.ensure_future(attach_to(FakeMachine(lost, Forbidden("no")))(viewer.channel, PERSON))

    lost.end(Reason.SILENCE)

    with pytest.raises(Forbidden):
        await finished(job)


async def test_a_person_who_leaves_while_the_machine_is_away_is_let_go() -> None:
    lost, viewer = FakeStream(), Viewer()
    away = [MachineAway("box2") for _ in range(10_000)]
    job = asyncio.ensure_future(attach_to(FakeMachine(lost, *away))(viewer.channel, PERSON))
    lost.end(Reason.SILENCE)
    await viewer.sees()

    viewer.leave()

    await finished(job)


async def test_a_right_that_is_withdrawn_is_the_reason_of_the_close() -> None:
    stream, viewer = FakeStream(), Viewer()
    job = asyncio.ensure_future(attach_to(FakeMachine(stream))(viewer.channel, PERSON))

    stream.end(Reason.FORBIDDEN)

    await finished(job)
    closes = [message for message in viewer.told() if message["type"] == "websocket.close"]
    assert [(one["code"], one["reason"]) for one in closes] == [(1008, Reason.FORBIDDEN.sentence)]
