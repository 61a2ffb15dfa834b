"""Connections to terminals over machines: each is a Channel over the Bus. `fleet.stream` has the rules.

    viewer ─► proxy socket ─► open(): a Channel ─► Bus ─► serve(): a Channel to the host's socket ─► host

One subscription hears all streams of this machine. A stream is registered before the other machine is asked to open
it, so that its first packets are not lost. Packets of an unknown stream, as after a restart of this link, are answered
with a close. Nothing that is carried here is stored or logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import Enum
from typing import Final, Protocol

from synapse.core.caller import for_good
from synapse.core.errors import InvalidRequest, LinkDown, QueueFull
from synapse.core.registry import Channel
from synapse.core.waiting import pause
from synapse.fleet.bus import Arrival, BusError
from synapse.fleet.names import sender_machine, stream_subject
from synapse.fleet.stream import (
    BEAT_SECONDS,
    HEADER,
    MAX_FRAME,
    MAX_PIECE,
    SILENCE_SECONDS,
    Reason,
    StreamEnd,
    close_packet,
    cut,
    is_close,
    is_stream_id,
    next_stream_id,
    viewer_of,
)

log = logging.getLogger(__name__)

MAX_STREAMS: Final = 64
"""How many streams may be open with one other machine."""
_Key = tuple[str, str]
"""The other machine, and the id of the stream."""


class StreamKind(Enum):
    """Which WebSocket of the agent's host a stream continues."""

    ATTACH = "attach"
    TERMINAL = "terminal"


class AskAttach(Protocol):
    """Asks another machine to open a stream, by an `ask` of type `attach`."""

    def __call__(self, machine: str, agent: str, kind: StreamKind, stream_id: str, /) -> Awaitable[None]:
        """Returns when the other machine serves the stream.

        Raises MachineAway, LinkDown, or the SynapseError that the other machine answers with.
        """
        ...


class StreamBus(Protocol):
    """The part of `fleet.bus.Bus` that carries streams: nothing of it is ever kept."""

    @property
    def connected(self) -> bool: ...

    @property
    def max_payload(self) -> int: ...

    async def publish(self, subject: str, body: bytes) -> None: ...

    def arrivals(self, subject: str) -> AsyncIterator[Arrival]: ...


class Streams:
    """All streams of this machine. They live as long as `run` does."""

    def __init__(
        self,
        bus: StreamBus,
        machine: str,
        ask: AskAttach,
        new_id: Callable[[], str],
        *,
        beat_seconds: float = BEAT_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._bus = bus
        self._machine = machine
        self._ask = ask
        self._new_id = new_id
        self._beat_seconds = beat_seconds
        self._silence_seconds = silence_seconds
        self._streams: dict[_Key, _Stream] = {}
        self._any = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Carries packets until it is cancelled; then closes all streams."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hear())
                group.create_task(self._beat())
        finally:
            for job in tuple(self._serving):
                job.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            for stream in tuple(self._streams.values()):
                await stream.leave(Reason.LEFT)

    async def open(self, machine: str, agent: str, kind: StreamKind, lost: str = "") -> StreamChannel:
        """Connects to the terminal of an agent on another machine; `lost` is the id of the stream that it replaces.

        Raises:
            LinkDown: this machine is not connected to the fleet.
            QueueFull: too many streams are open with that machine.
            SynapseError: the other machine is away or refuses; see AskAttach.
        """
        if not self._bus.connected:
            raise LinkDown("this machine is not connected to the fleet's server")
        stream_id = next_stream_id(lost) if lost else self._new_id()
        stream = self._add(machine, stream_id)
        try:
            await self._ask(machine, agent, kind, stream_id)
        except BaseException:
            await stream.close()
            raise
        return stream

    async def serve(
        self, from_machine: str, stream_id: str, host: Channel, *, holds: Callable[[], bool] = for_good
    ) -> None:
        """Begins to carry a stream that `from_machine` has asked for, to and from `host`; returns at once.

        It ends an earlier stream of the same viewer, whose loss this end may not have noticed yet: otherwise that one
        would keep the keyboard from the viewer until then. It closes `host` when the stream ends. `holds` is asked with
        each beat whether `from_machine` may still attach.

        Raises:
            InvalidRequest: the id is not one, or is in use.
            QueueFull: too many streams are open with that machine.
        """
        try:
            stream = self._add(from_machine, stream_id, holds)
            await self._end_earlier(from_machine, stream_id)
        except BaseException:
            await host.close()
            raise
        job = asyncio.create_task(relay(stream, host))
        self._serving.add(job)
        job.add_done_callback(self._serving.discard)

    async def _end_earlier(self, machine: str, stream_id: str) -> None:
        for (other, earlier), stream in tuple(self._streams.items()):
            if other == machine and earlier != stream_id and viewer_of(earlier) == viewer_of(stream_id):
                await stream.leave(Reason.LEFT)

    def _add(self, machine: str, stream_id: str, holds: Callable[[], bool] = for_good) -> _Stream:
        key = machine, stream_id
        if not is_stream_id(stream_id):
            raise InvalidRequest("the id of a stream has 16 to 64 letters, digits, hyphens and underscores")
        if key in self._streams:
            raise InvalidRequest("this stream is open already")
        if sum(one == machine for one, _ in self._streams) >= MAX_STREAMS:
            raise QueueFull(f"{MAX_STREAMS} terminals are open between the two machines", hint="close one first")
        subject = stream_subject(machine, self._machine, stream_id)
        stream = _Stream(
            self._bus, subject, StreamEnd(_now(), self._silence_seconds), holds, lambda: self._streams.pop(key, None)
        )
        self._streams[key] = stream
        self._any.set()
        return stream

    async def _hear(self) -> None:
        async for arrival in self._bus.arrivals(stream_subject(self._machine, "*", "*")):
            key = sender_machine(arrival.subject), arrival.subject.rpartition(".")[2]
            stream = self._streams.get(key)
            if stream is not None:
                stream.hear(arrival.body)
            else:
                await self._refuse(arrival, key)

    async def _refuse(self, arrival: Arrival, key: _Key) -> None:
        """Tells the other machine that this one does not know the stream."""
        if is_close(arrival.body):
            return
        with contextlib.suppress(BusError):
            await self._bus.publish(stream_subject(key[0], self._machine, key[1]), close_packet(Reason.UNKNOWN))

    async def _beat(self) -> None:
        while True:
            if not self._streams:
                self._any.clear()
                await self._any.wait()
            await pause(self._beat_seconds)
            for stream in tuple(self._streams.values()):
                await stream.beat()


class StreamChannel(Channel, Protocol):
    """A Channel with an id that says why it ended."""

    @property
    def stream_id(self) -> str: ...

    @property
    def ended(self) -> Reason | None:
        """Why it ended; None while it is open."""
        ...


class _Stream:
    """One stream, with one reader on this machine. Implements StreamChannel."""

    def __init__(
        self,
        bus: StreamBus,
        subject: str,
        end: StreamEnd,
        holds: Callable[[], bool],
        forget: Callable[[], object],
    ) -> None:
        self.stream_id = subject.rpartition(".")[2]
        self._end = end
        self._bus = bus
        self._subject = subject
        self._holds = holds
        self._forget = forget
        self._most = min(MAX_PIECE, bus.max_payload - HEADER.size)
        self._sending = asyncio.Lock()
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    @property
    def ended(self) -> Reason | None:
        return self._end.ended

    async def send(self, data: bytes | str) -> None:
        """Sends a frame, in pieces; waits while the other end has taken too little. Raises ConnectionError."""
        if len(data) > MAX_FRAME:
            await self.leave(Reason.BROKEN)
        async with self._sending:
            is_cut_off = False
            try:
                for kind, payload in cut(data, self._most):
                    await self._wait_for_room(payload)
                    is_cut_off = True
                    await self._publish(self._end.piece(kind, payload))
                is_cut_off = False
            finally:
                if is_cut_off:
                    # The caller was cancelled within the frame, and the next frame must not continue it.
                    await self.leave(Reason.LEFT)

    async def receive(self) -> bytes | str | None:
        """Returns the next frame; None after the end of the stream, when all whole frames were taken."""
        while True:
            if self._end.ended is None and (credit := self._end.due_credit()) is not None:
                with contextlib.suppress(ConnectionError):
                    await self._publish(credit)
            frame = self._end.take()
            if frame is not None:
                return frame
            if self._end.ended is not None:
                await self.leave(self._end.ended)
                return None
            self._readable.clear()
            await self._readable.wait()

    async def close(self) -> None:
        """Closes the stream at both ends; idempotent."""
        await self.leave(Reason.LEFT)

    async def leave(self, reason: Reason) -> None:
        """Ends the stream for a reason, unless it has ended, and tells the other end."""
        packet = self._end.close(reason)
        self._wake()
        if self._forget() is not None:
            with contextlib.suppress(BusError):
                await self._bus.publish(self._subject, packet)

    def hear(self, packet: bytes) -> None:
        """Takes a packet of the other end. Never waits: what the reader has not taken is bounded by the credit."""
        self._end.receive(packet, _now())
        self._wake()

    async def beat(self) -> None:
        """Shows the other end that this one is alive, or ends the stream if it must not go on."""
        if not self._holds():
            await self.leave(Reason.FORBIDDEN)
            return
        packet = self._end.beat(_now())
        if packet is None:
            await self.leave(self._end.ended or Reason.LEFT)
            return
        with contextlib.suppress(ConnectionError):
            await self._publish(packet)

    async def _wait_for_room(self, payload: bytes) -> None:
        while self._end.ended is None and not self._end.has_room(payload):
            self._writable.clear()
            await self._writable.wait()

    async def _publish(self, packet: bytes) -> None:
        if self._end.ended is not None:
            raise ConnectionError(self._end.ended.sentence)
        try:
            await self._bus.publish(self._subject, packet)
        except BusError as error:
            self._end.end(Reason.ENGINE)
            self._wake()
            raise ConnectionError(Reason.ENGINE.sentence) from error

    def _wake(self) -> None:
        self._readable.set()
        self._writable.set()


async def relay(one: Channel, other: Channel) -> None:
    """Passes frames both ways until one of the two ends; then closes both."""
    jobs = [asyncio.ensure_future(_pass_frames(one, other)), asyncio.ensure_future(_pass_frames(other, one))]
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        for channel in (one, other):
            with contextlib.suppress(ConnectionError):
                await channel.close()


async def _pass_frames(source: Channel, sink: Channel) -> None:
    with contextlib.suppress(ConnectionError):
        while (frame := await source.receive()) is not None:
            await sink.send(frame)


def _now() -> float:
    return asyncio.get_running_loop().time()
