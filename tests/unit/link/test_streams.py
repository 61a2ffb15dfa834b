"""Streams over an engine that loses, holds and reorders: what arrives is right, and every end is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from synapse.core.errors import InvalidRequest, LinkDown, MachineAway, QueueFull
from synapse.fleet.stream import HEADER, MAX_FRAME, WINDOW, Kind, Reason
from synapse.link.streams import MAX_STREAMS, StreamChannel, StreamKind, Streams
from tests.fakes.stream_engine import Fate, StreamEngine

BOUND = 20
DATA = (Kind.TEXT, Kind.BINARY, Kind.TEXT_PIECE, Kind.BINARY_PIECE)


class FakeHost:
    """The Channel to the host of an agent: it answers nothing by itself."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes | str] = asyncio.Queue()
        self.says: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.closed = asyncio.Event()

    async def send(self, data: bytes | str) -> None:
        self.heard.put_nowait(data)

    async def receive(self) -> bytes | str | None:
        return await self.says.get()

    async def close(self) -> None:
        self.closed.set()

    async def hears(self) -> bytes | str:
        async with asyncio.timeout(BOUND):
            return await self.heard.get()

    async def is_closed(self) -> None:
        async with asyncio.timeout(BOUND):
            await self.closed.wait()


class Fleet:
    """Two machines, `laptop` and `box2`, whose links find each other's streams. Agents are on box2."""

    def __init__(self, engine: StreamEngine, group: asyncio.TaskGroup, silence_seconds: float) -> None:
        self.engine = engine
        self._silence_seconds = silence_seconds
        self.host = FakeHost()
        self.is_allowed = True
        self._group = group
        self._ids = (f"stream-{number:016}" for number in count())
        self.laptop = self._link_of("laptop")
        self.box2 = self._link_of("box2")
        self.jobs = [group.create_task(self.laptop.run()), group.create_task(self.box2.run())]

    async def open(self, lost: str = "") -> StreamChannel:
        return await self.laptop.open("box2", "codex", StreamKind.ATTACH, lost)

    async def restart_box2(self) -> None:
        """Ends the link of box2 as a kill does: it says nothing."""
        self.engine.judge = lambda subject, _body: Fate.IS_LOST if ".laptop.box2." in subject else Fate.ARRIVES
        self.jobs[1].cancel()
        await asyncio.wait([self.jobs[1]])
        self.engine.judge = lambda _subject, _body: Fate.ARRIVES
        self.box2 = self._link_of("box2")
        self.jobs[1] = self._group.create_task(self.box2.run())

    def _link_of(self, machine: str) -> Streams:
        return Streams(
            self.engine.bus(),
            machine,
            self._ask,
            lambda: next(self._ids),
            beat_seconds=0.01,
            silence_seconds=self._silence_seconds,
        )

    async def _ask(self, machine: str, agent: str, kind: StreamKind, stream_id: str) -> None:
        if machine != "box2":
            raise MachineAway(machine)
        assert (agent, kind) == ("codex", StreamKind.ATTACH)
        await self.box2.serve("laptop", stream_id, self.host, holds=lambda: self.is_allowed)


@asynccontextmanager
async def two_machines(max_payload: int = 1024 * 1024, silence_seconds: float = BOUND) -> AsyncGenerator[Fleet]:
    async with asyncio.TaskGroup() as group:
        fleet = Fleet(StreamEngine(max_payload), group, silence_seconds)
        await asyncio.to_thread(lambda: None)
        try:
            yield fleet
        finally:
            for job in fleet.jobs:
                job.cancel()


async def receive(channel: StreamChannel) -> bytes | str | None:
    async with asyncio.timeout(BOUND):
        return await channel.receive()


def is_data(body: bytes) -> bool:
    return body[0] in DATA


async def test_frames_of_both_kinds_pass_both_ways_in_order() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()

        await viewer.send('{"type": "hello"}')
        await viewer.send(b"keys")
        fleet.host.says.put_nowait(b"screen")
        fleet.host.says.put_nowait('{"type": "role"}')

        assert [await fleet.host.hears(), await fleet.host.hears()] == ['{"type": "hello"}', b"keys"]
        assert [await receive(viewer), await receive(viewer)] == [b"screen", '{"type": "role"}']


async def test_a_frame_larger_than_window_and_payload_arrives_whole() -> None:
    snapshot = bytes(range(256)) * (3 * WINDOW // 256)
    async with two_machines(max_payload=5000) as fleet:
        viewer = await fleet.open()

        fleet.host.says.put_nowait(snapshot)

        assert await receive(viewer) == snapshot


async def test_frames_that_are_sent_at_once_do_not_mix() -> None:
    frames = [bytes([number]) * 3000 for number in range(20)]
    async with two_machines(max_payload=1000) as fleet:
        viewer = await fleet.open()

        await asyncio.gather(*(viewer.send(frame) for frame in frames))

        assert [await fleet.host.hears() for _ in frames] == frames


async def test_a_slow_viewer_stops_the_host_at_the_window() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()
        for _ in range(100):
            fleet.host.says.put_nowait(bytes(32 * 1024))

        # It is still when the same is left after more beats than it takes to send all.
        left = 0
        while left != (left := fleet.host.says.qsize()):
            await beats_pass(fleet, 20)
        sent = sum(len(body) for subject, body in fleet.engine.published if ".laptop." in subject and is_data(body))

        assert sent <= WINDOW
        assert left > 80
        for _ in range(100):
            assert await receive(viewer) == bytes(32 * 1024)


async def beats_pass(fleet: Fleet, number: int) -> None:
    """Returns after so many beats of box2."""
    seen = len(fleet.engine.published)
    async with asyncio.timeout(BOUND):
        while sum(body[0] == Kind.BEAT for _, body in fleet.engine.published[seen:]) < 2 * number:
            await asyncio.to_thread(lambda: None)


async def test_a_lost_packet_ends_both_ends_and_nothing_wrong_is_shown() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()
        fleet.engine.judge = lambda _subject, body: Fate.IS_LOST if body.endswith(b"second") else Fate.ARRIVES
        for frame in (b"first", b"second", b"third"):
            fleet.host.says.put_nowait(frame)

        assert await receive(viewer) == b"first"
        assert await receive(viewer) is None

        assert viewer.ended is Reason.HOLE
        await fleet.host.is_closed()
        with pytest.raises(ConnectionError, match="was lost"):
            await viewer.send(b"keys")


async def test_a_lost_last_packet_is_noticed_by_the_next_beat() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()
        fleet.engine.judge = lambda _subject, body: Fate.IS_LOST if is_data(body) else Fate.ARRIVES

        fleet.host.says.put_nowait(b"the only one")

        assert await receive(viewer) is None
        assert viewer.ended is Reason.HOLE


async def test_packets_that_change_places_end_the_stream() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()
        fleet.engine.judge = lambda _subject, body: Fate.IS_HELD if body.endswith(b"first") else Fate.ARRIVES

        await viewer.send(b"first")
        await viewer.send(b"second")
        fleet.engine.release()

        assert await receive(viewer) is None
        assert viewer.ended is Reason.HOLE
        assert fleet.host.heard.empty()


async def test_packets_that_are_late_but_in_order_are_no_loss() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()
        fleet.engine.judge = lambda _subject, _body: Fate.IS_HELD

        await viewer.send(b"first")
        await viewer.send(b"second")
        fleet.engine.judge = lambda _subject, _body: Fate.ARRIVES
        fleet.engine.release()

        assert [await fleet.host.hears(), await fleet.host.hears()] == [b"first", b"second"]
        assert viewer.ended is None


async def test_silence_ends_both_ends() -> None:
    async with two_machines(silence_seconds=0.2) as fleet:
        viewer = await fleet.open()

        fleet.engine.judge = lambda _subject, _body: Fate.IS_LOST

        assert await receive(viewer) is None
        assert viewer.ended is Reason.SILENCE
        await fleet.host.is_closed()


async def test_a_stream_in_the_place_of_a_lost_one_ends_that_one_first() -> None:
    async with two_machines() as fleet:
        other, lost = await fleet.open(), await fleet.open()
        fleet.engine.judge = lambda subject, _body: Fate.IS_LOST if subject.endswith(lost.stream_id) else Fate.ARRIVES
        await lost.close()
        old_host, fleet.host = fleet.host, FakeHost()

        found = await fleet.open(lost.stream_id)

        await old_host.is_closed()
        await found.send(b"keys")
        assert await fleet.host.hears() == b"keys"
        assert other.ended is None


async def test_a_link_that_was_restarted_says_that_it_does_not_know_the_stream() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()

        await fleet.restart_box2()

        assert await receive(viewer) is None
        assert viewer.ended is Reason.UNKNOWN


async def test_two_machines_that_both_know_nothing_do_not_answer_each_other_for_ever() -> None:
    async with two_machines() as fleet:
        fleet.engine.publish("synapse.v1.stream.box2.laptop.nobody", HEADER.pack(Kind.BEAT, 0))
        viewer = await fleet.open()
        await viewer.send(b"later")
        await fleet.host.hears()

        closes = [body for _, body in fleet.engine.published if body[0] == Kind.CLOSE]
        assert len(closes) == 1


async def test_what_the_host_said_before_it_closed_arrives() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()

        fleet.host.says.put_nowait('{"type": "exited"}')
        fleet.host.says.put_nowait(None)

        assert await receive(viewer) == '{"type": "exited"}'
        assert await receive(viewer) is None
        assert viewer.ended is Reason.LEFT


async def test_a_viewer_that_leaves_closes_the_connection_to_the_host() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()

        await viewer.close()
        await viewer.close()

        await fleet.host.is_closed()
        with pytest.raises(ConnectionError):
            await viewer.send(b"keys")


async def test_a_machine_that_loses_the_right_is_cut_off() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()

        fleet.is_allowed = False

        assert await receive(viewer) is None
        assert viewer.ended is Reason.FORBIDDEN
        await fleet.host.is_closed()


async def test_an_engine_that_is_away_ends_the_stream_and_refuses_another() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()

        fleet.engine.connected = False

        with pytest.raises(ConnectionError, match="not connected"):
            await viewer.send(b"keys")
        assert await receive(viewer) is None
        with pytest.raises(LinkDown):
            await fleet.open()


async def test_a_refused_stream_is_forgotten() -> None:
    async with two_machines() as fleet:
        for _ in range(MAX_STREAMS + 1):
            with pytest.raises(MachineAway):
                await fleet.laptop.open("box3", "codex", StreamKind.ATTACH)


async def test_one_machine_cannot_open_streams_without_end() -> None:
    async with two_machines() as fleet:
        for _ in range(MAX_STREAMS):
            await fleet.open()

        with pytest.raises(QueueFull):
            await fleet.open()


async def test_an_id_that_is_none_is_refused_and_its_host_let_go() -> None:
    async with two_machines() as fleet:
        with pytest.raises(InvalidRequest):
            await fleet.box2.serve("laptop", "a.b.c.d.e.f.g.h.i", fleet.host)

        assert fleet.host.closed.is_set()


async def test_an_id_in_use_is_refused_and_the_first_stream_goes_on() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()
        repeated = FakeHost()

        with pytest.raises(InvalidRequest):
            await fleet.box2.serve("laptop", "stream-0000000000000000", repeated)

        assert repeated.closed.is_set()
        await viewer.send(b"keys")
        assert await fleet.host.hears() == b"keys"


async def test_a_sender_that_is_cancelled_within_a_frame_ends_the_stream() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()
        fleet.engine.judge = lambda subject, _body: Fate.IS_LOST if ".laptop.box2." in subject else Fate.ARRIVES
        # The credit is lost, so that the frame stops within.
        sending = asyncio.ensure_future(viewer.send(bytes(2 * WINDOW)))
        await beats_pass(fleet, 5)

        sending.cancel()

        assert await receive(viewer) is None
        assert viewer.ended is Reason.LEFT


async def test_a_frame_over_the_limit_is_not_sent() -> None:
    async with two_machines() as fleet:
        viewer = await fleet.open()

        with pytest.raises(ConnectionError):
            await viewer.send(bytes(MAX_FRAME + 1))
