"""An engine between machines that loses, holds and reorders what is published, as the test says. Core messages only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from enum import Enum, auto
from fnmatch import fnmatchcase

from synapse.core.waiting import pause
from synapse.fleet.bus import Arrival, BusError


class Fate(Enum):
    """What becomes of a message."""

    ARRIVES = auto()
    IS_LOST = auto()
    IS_HELD = auto()
    """It arrives when the test calls `release`."""


class StreamEngine:
    """Machines subscribe by `bus()`. `judge` decides the fate of each message by its subject and body."""

    def __init__(self, max_payload: int = 1024 * 1024) -> None:
        self.max_payload = max_payload
        self.judge: Callable[[str, bytes], Fate] = lambda _subject, _body: Fate.ARRIVES
        self.connected = True
        self.published: list[tuple[str, bytes]] = []
        self._held: list[tuple[str, bytes]] = []
        self._readers: list[tuple[str, asyncio.Queue[Arrival]]] = []

    def bus(self) -> FakeStreamBus:
        return FakeStreamBus(self)

    def publish(self, subject: str, body: bytes) -> None:
        if not self.connected:
            raise BusError("the engine is away")
        assert len(body) <= self.max_payload
        self.published.append((subject, body))
        fate = self.judge(subject, body)
        if fate is Fate.ARRIVES:
            self._deliver(subject, body)
        elif fate is Fate.IS_HELD:
            self._held.append((subject, body))

    def release(self) -> None:
        """Lets all that is held arrive, in its order."""
        held, self._held = self._held, []
        for subject, body in held:
            self._deliver(subject, body)

    def subscribe(self, pattern: str) -> asyncio.Queue[Arrival]:
        queue: asyncio.Queue[Arrival] = asyncio.Queue()
        self._readers.append((pattern, queue))
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Arrival]) -> None:
        self._readers = [reader for reader in self._readers if reader[1] is not queue]

    def _deliver(self, subject: str, body: bytes) -> None:
        for pattern, queue in self._readers:
            if fnmatchcase(subject, pattern):
                queue.put_nowait(Arrival(subject, body))


class FakeStreamBus:
    """The bus of one machine. Implements `link.streams.StreamBus`."""

    def __init__(self, engine: StreamEngine) -> None:
        self._engine = engine

    @property
    def connected(self) -> bool:
        return self._engine.connected

    @property
    def max_payload(self) -> int:
        return self._engine.max_payload

    async def publish(self, subject: str, body: bytes) -> None:
        self._engine.publish(subject, body)
        # As a bus with a full buffer does: others run meanwhile.
        await pause(0)

    async def arrivals(self, subject: str) -> AsyncGenerator[Arrival]:
        queue = self._engine.subscribe(subject)
        try:
            while True:
                yield await queue.get()
        finally:
            self._engine.unsubscribe(queue)
