"""The engine between machines in memory: requests, mail, buckets. Tests cut machines off, and lose what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from fnmatch import fnmatchcase

from synapse.core.waiting import pause
from synapse.fleet.bus import Arrival, NobodyThere, NoReply, NotAllowed, NotConnected, NotLast
from synapse.fleet.names import inbox_prefix, mail_subject


class MemoryEngine:
    """Any number of machines connect by `bus`."""

    def __init__(self) -> None:
        self.buses: list[MemoryBus] = []
        self.readers: list[tuple[MemoryBus, str, asyncio.Queue[Arrival]]] = []
        self.kept: list[tuple[int, str, bytes]] = []
        """Number, subject and body of what is in the streams."""
        self.ttls: list[float | None] = []
        """With what TTL each message was given to a stream."""
        self.number = 0
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.deleted: set[tuple[str, str]] = set()
        """The keys of buckets that were deleted, and not only lost."""
        self.grew = asyncio.Condition()
        self.acknowledged: list[int] = []
        self.loses_answers = False
        """Whether answers are lost: requests are handled, and their senders learn nothing."""

    def bus(self, machine: str) -> MemoryBus:
        self.buses.append(MemoryBus(self, machine))
        return self.buses[-1]

    def deliver(self, arrival: Arrival) -> bool:
        """Give it to all that listen; returns whether anybody does."""
        heard = False
        for bus, pattern, queue in self.readers:
            if bus.connected and fnmatchcase(arrival.subject, pattern):
                queue.put_nowait(arrival)
                heard = True
        return heard


class MemoryBus:
    """Implements `fleet.bus.Bus` for one machine."""

    def __init__(self, engine: MemoryEngine, machine: str) -> None:
        self._engine = engine
        self._machine = machine
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._listeners: list[asyncio.Queue[bool]] = []
        self._connected = True
        self.requests: list[tuple[str, bytes]] = []
        self.max_payload = 1024 * 1024
        self.forbids_mail = False

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def problem(self) -> str:
        return "" if self._connected else "the test has cut this machine off"

    def cut(self) -> None:
        self._set(connected=False)

    def mend(self) -> None:
        self._set(connected=True)

    def _set(self, *, connected: bool) -> None:
        self._connected = connected
        for queue in self._listeners:
            queue.put_nowait(connected)

    async def changes(self) -> AsyncGenerator[bool, None]:
        queue = asyncio.Queue[bool]()
        queue.put_nowait(self._connected)
        self._listeners.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.remove(queue)

    async def request(self, subject: str, body: bytes, seconds: float) -> bytes:
        self._require()
        self.requests.append((subject, body))
        reply_to = f"{inbox_prefix(self._machine)}.{len(self.requests)}"
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[reply_to] = answered
        if not self._engine.deliver(Arrival(subject, body, reply_to)):
            raise NobodyThere(f"nobody listens on {subject}")
        try:
            async with asyncio.timeout(seconds):
                return await answered
        except TimeoutError:
            raise NoReply("no answer came") from None

    async def publish(self, subject: str, body: bytes) -> None:
        self._require()
        for bus in self._engine.buses:
            bus.take_answer(subject, body)
        self._engine.deliver(Arrival(subject, body))

    def take_answer(self, subject: str, body: bytes) -> None:
        answered = self._answers.get(subject)
        if answered is not None and not answered.done() and not self._engine.loses_answers:
            answered.set_result(body)

    async def keep(
        self, subject: str, body: bytes, *, once: str, expected_last: int | None = None, ttl: float | None = None
    ) -> int:
        self._require()
        assert once
        last = next((number for number, kept, _ in reversed(self._engine.kept) if kept == subject), 0)
        if expected_last is not None and expected_last != last:
            raise NotLast("another message is the last")
        self._engine.number += 1
        self._engine.kept.append((self._engine.number, subject, body))
        self._engine.ttls.append(ttl)
        self._engine.deliver(Arrival(subject, body))
        async with self._engine.grew:
            self._engine.grew.notify_all()
        return self._engine.number

    async def acknowledge(self, arrival: Arrival) -> None:
        self._require()
        self._engine.acknowledged.append(arrival.mail)
        self._engine.kept = [one for one in self._engine.kept if one[0] != arrival.mail]

    async def postpone(self, arrival: Arrival, seconds: float) -> None:
        self._require()
        assert arrival.mail
        assert seconds >= 0

    async def arrivals(self, subject: str) -> AsyncGenerator[Arrival, None]:
        queue = asyncio.Queue[Arrival]()
        reader = (self, subject, queue)
        self._engine.readers.append(reader)
        try:
            while True:
                yield await queue.get()
        finally:
            self._engine.readers.remove(reader)

    async def mails(self, machine: str) -> AsyncGenerator[Arrival, None]:
        if self.forbids_mail:
            raise NotAllowed("the engine forbids this machine its mail")
        seen = set[int]()
        while True:
            for number, subject, body in tuple(self._engine.kept):
                if fnmatchcase(subject, mail_subject(machine, "*")) and number not in seen:
                    seen.add(number)
                    yield Arrival(subject, body, mail=number)
            async with self._engine.grew:
                await self._engine.grew.wait()

    async def discard_mails(self, members: Callable[[], Collection[str]]) -> None:
        self._require()
        now = set(members())
        self._engine.kept = [
            (number, subject, body)
            for number, subject, body in self._engine.kept
            if not fnmatchcase(subject, mail_subject("*", "*")) or {*subject.split(".")[-2:]} <= now
        ]

    async def last_kept(self, subject: str) -> tuple[int, bytes] | None:
        self._require()
        found = [(number, body) for number, kept, body in self._engine.kept if kept == subject]
        return found[-1] if found else None

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        self._require()
        self._engine.buckets.setdefault(bucket, {})[key] = value
        self._engine.deleted.discard((bucket, key))

    async def get(self, bucket: str, key: str) -> bytes | None:
        self._require()
        return self._engine.buckets.get(bucket, {}).get(key)

    async def is_deleted(self, bucket: str, key: str) -> bool:
        self._require()
        return (bucket, key) in self._engine.deleted

    async def keys(self, bucket: str) -> list[str]:
        self._require()
        return sorted(self._engine.buckets.get(bucket, {}))

    async def delete(self, bucket: str, key: str) -> None:
        self._require()
        self._engine.buckets.get(bucket, {}).pop(key, None)
        self._engine.deleted.add((bucket, key))

    async def watch(self, bucket: str) -> AsyncGenerator[tuple[str, bytes | None], None]:
        for key, value in tuple(self._engine.buckets.get(bucket, {}).items()):
            yield key, value
        yield "", None
        while True:
            await pause(60)

    def _require(self) -> None:
        if not self._connected:
            raise NotConnected("this machine is cut off")
