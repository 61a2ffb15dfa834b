"""The relay: one connection to a host for all viewers, snapshots for those behind, one keyboard, hosts that return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from synapse.attach.frames import Exited, Resize, Role, Size, Take
from synapse.attach.output_ring import KEPT_BYTES
from synapse.attach.relay import RelayViewer, TerminalRelays
from synapse.attach.terminal_frames import (
    MAX_IN_FLIGHT,
    Credit,
    Failed,
    FromViewer,
    Input,
    Lost,
    Open,
    Output,
    Snapshot,
    ToTerminalViewer,
    decode_from_viewer,
    encode_to_viewer,
    split,
)
from synapse.core.errors import (
    AgentNotFound,
    AgentNotResponding,
    LinkDown,
    MachineAway,
    SynapseError,
    UnsupportedOperation,
)
from synapse.core.override import override
from synapse.core.registry import Channel

T = TypeVar("T", bound=FromViewer)
S = TypeVar("S", bound=ToTerminalViewer)
BOUND = 20


class FakeHost:
    """The host's side of a connection; the test says what it says."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[FromViewer] = asyncio.Queue()
        self._to_gateway: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_closed = False

    async def send(self, data: bytes | str) -> None:
        if self.is_closed:
            raise ConnectionError
        self.heard.put_nowait(decode_from_viewer(split(data)))

    async def receive(self) -> bytes | str | None:
        return await self._to_gateway.get()

    async def close(self) -> None:
        self.is_closed = True

    def say(self, said: ToTerminalViewer) -> None:
        self._to_gateway.put_nowait(encode_to_viewer(0, said))

    def hang_up(self) -> None:
        self._to_gateway.put_nowait(None)

    async def hears(self, kind: type[T]) -> T:
        async with asyncio.timeout(BOUND):
            while not isinstance(said := await self.heard.get(), kind):
                pass
            return said

    async def begins(self, offset: int = 0, run: str = "r1", data: bytes = b"screen") -> None:
        """Answers the first open as a host does."""
        await self.hears(Open)
        self.say(Size(80, 24))
        self.say(Snapshot(offset, 80, 24, run, data))


class Hosts:
    """Gives each connection the next host, or raises the next error."""

    def __init__(self, *hosts: FakeHost | SynapseError) -> None:
        self._hosts = list(hosts)
        self.asked = 0

    async def connect(self, _agent: str) -> Channel:
        self.asked += 1
        if not self._hosts:
            raise AgentNotResponding("ada", 8100, "dummy")
        host = self._hosts.pop(0)
        if isinstance(host, SynapseError):
            raise host
        return host


class FakePage:
    """One viewer; `may_read` holds back what it is sent."""

    def __init__(self, relays: TerminalRelays, wanted: Open) -> None:
        self.told: asyncio.Queue[ToTerminalViewer] = asyncio.Queue()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.relay = relays.find("ada")
        self.viewer = RelayViewer(self.relay, self._take, wanted)
        self.showing = asyncio.ensure_future(self.viewer.show())

    async def _take(self, said: ToTerminalViewer) -> None:
        await self.may_read.wait()
        self.told.put_nowait(said)

    async def sees(self, kind: type[S]) -> S:
        async with asyncio.timeout(BOUND):
            while not isinstance(said := await self.told.get(), kind):
                pass
            return said

    async def sees_output_until(self, end: int) -> bytes:
        data = b""
        while (piece := await self.sees(Output)).offset + len(piece.data) < end:
            data += piece.data
        return data + piece.data

    async def leave(self) -> None:
        self.showing.cancel()
        await asyncio.gather(self.showing, return_exceptions=True)


@asynccontextmanager
async def relayed(
    hosts: Hosts, *, linger: float = 30.0, patience: float = BOUND
) -> AsyncGenerator[Callable[..., FakePage], None]:
    """Gives a function that adds a viewer."""
    relays = TerminalRelays(hosts.connect, linger=linger, retry=0.01, patience=patience)
    pages: list[FakePage] = []

    def view(*, types: bool = False, after: int | None = None, run: str = "", columns: int = 100) -> FakePage:
        wanted = Open(agent="ada", after=after, run=run, columns=columns, rows=30, types=types)
        pages.append(FakePage(relays, wanted))
        return pages[-1]

    try:
        yield view
    finally:
        for page in pages:
            await page.leave()
        await relays.close()


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.to_thread(lambda: None)


async def test_all_viewers_share_one_connection_and_one_snapshot() -> None:
    host = FakeHost()
    hosts = Hosts(host)
    async with relayed(hosts) as view:
        first = view()
        await host.begins(offset=40)
        assert (await first.sees(Snapshot)).data == b"screen"
        host.say(Output(40, b"hello"))
        assert (await first.sees(Output)) == Output(40, b"hello")

        late = view()

        assert (await late.sees(Snapshot)).offset == 40
        assert await late.sees(Output) == Output(40, b"hello")
        assert hosts.asked == 1
        assert host.heard.empty()


async def test_a_viewer_goes_on_at_its_offset_only_in_the_same_run() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        first = view()
        await host.begins()
        host.say(Output(0, b"0123456789"))
        await first.sees(Output)

        back, stranger = view(after=4, run="r1"), view(after=4, run="r0")

        assert await back.sees(Size) == Size(80, 24)
        assert await back.sees(Output) == Output(4, b"456789")
        assert (await stranger.sees(Snapshot)).offset == 0


async def test_a_viewer_without_credit_gets_a_bounded_amount_then_one_snapshot() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        slow = view()
        await host.begins()
        await slow.sees(Snapshot)
        end = 3 * MAX_IN_FLIGHT
        for offset in range(0, end, 65536):
            host.say(Output(offset, bytes(65536)))
            if offset < MAX_IN_FLIGHT:
                await slow.sees_output_until(offset + 65536)
        await settled(lambda: view.__name__ == "view" and slow.relay.ring is not None and slow.relay.ring.end == end)
        assert slow.told.empty()

        await slow.viewer.receive(Credit(MAX_IN_FLIGHT))
        assert (await host.hears(Open)).after is None
        host.say(Snapshot(end, 80, 24, "r1", b"fresh"))

        assert (await slow.sees(Snapshot)).data == b"fresh"
        host.say(Output(end, b"more"))
        assert await slow.sees(Output) == Output(end, b"more")


async def test_one_request_for_a_snapshot_serves_all_who_wait() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        pages = [view() for _ in range(5)]
        await host.begins()
        for page in pages:
            await page.sees(Snapshot)
            page.may_read.clear()
        for offset in range(0, 4 * KEPT_BYTES, 65536):
            host.say(Output(offset, bytes(65536)))
        relay = pages[0].relay
        await settled(lambda: relay.ring is not None and relay.ring.end == 4 * KEPT_BYTES)
        for page in pages:
            page.may_read.set()

        assert (await host.hears(Open)).after is None
        host.say(Snapshot(4 * KEPT_BYTES, 80, 24, "r1", b"fresh"))

        for page in pages:
            assert (await page.sees(Snapshot)).data == b"fresh"
        assert all(not isinstance(host.heard.get_nowait(), Open) for _ in range(host.heard.qsize()))


async def test_a_host_that_skips_output_and_then_is_quiet_leaves_nobody_behind() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        page = view()
        await host.begins()
        await page.sees(Snapshot)

        host.say(Snapshot(900, 80, 24, "r1", b"later"))
        host.say(Output(900, b""))

        assert (await page.sees(Snapshot)).data == b"later"


async def test_the_first_who_wants_to_type_has_the_keyboard_until_another_takes_it() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        first = view(types=True, columns=90)
        while not (opened := await host.hears(Open)).types:
            pass
        assert opened.columns == 90
        host.say(Snapshot(0, 90, 30, "r1", b""))
        host.say(Role(types=True))
        await settled(lambda: first.relay.types(first.viewer))
        second = view(types=True, columns=50)
        assert not (await second.sees(Role)).types
        await second.viewer.receive(Input(b"ignored"))
        await first.viewer.receive(Input(b"first"))
        assert (await host.hears(Input)).data == b"first"

        await second.viewer.receive(Take())

        resized = await host.hears(Open)
        assert (resized.columns, resized.types) == (80, True)
        await settled(lambda: not first.relay.types(first.viewer))
        await first.viewer.receive(Resize(200, 50))
        await second.viewer.receive(Resize(10, 20))
        assert await host.hears(Resize) == Resize(80, 20)
        await second.viewer.receive(Input(b"second"))
        assert (await host.hears(Input)).data == b"second"


async def test_the_keyboard_goes_back_to_the_host_with_the_last_who_types() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        looking, typing = view(), view(types=True)
        await host.begins()
        host.say(Role(types=True))
        await looking.sees(Snapshot)
        await settled(lambda: typing.relay.types(typing.viewer))

        await typing.leave()

        while (await host.hears(Open)).types:
            pass


async def test_a_gateway_that_may_not_type_takes_the_keyboard_at_the_host() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        page = view(types=True)
        await host.begins()
        host.say(Role(types=False))
        assert not (await page.sees(Role)).types

        await page.viewer.receive(Take())

        await host.hears(Take)
        host.say(Role(types=True))
        while not (await page.sees(Role)).types:
            pass


async def test_a_host_that_returns_is_shown_again() -> None:
    before, after = FakeHost(), FakeHost()
    async with relayed(Hosts(before, AgentNotResponding("ada", 8100, "dummy"), after)) as view:
        page = view()
        await before.begins(offset=500)
        await page.sees(Snapshot)
        before.say(Exited(0))
        before.hang_up()

        assert (await page.sees(Exited)).status == 0
        await page.sees(Lost)
        assert (await after.hears(Open)).after == 500
        after.say(Size(80, 24))
        after.say(Snapshot(3, 80, 24, "r2", b"new"))

        assert (await page.sees(Snapshot)).run == "r2"
        after.say(Output(3, b"x"))
        assert await page.sees(Output) == Output(3, b"x")


async def test_a_host_that_was_only_unreachable_goes_on_without_a_snapshot() -> None:
    before, after = FakeHost(), FakeHost()
    async with relayed(Hosts(before, after)) as view:
        page = view()
        await before.begins()
        await page.sees(Snapshot)
        before.hang_up()
        await page.sees(Lost)
        assert (await after.hears(Open)).run == "r1"

        after.say(Size(80, 24))
        after.say(Output(0, b"on"))

        assert await page.sees(Size) == Size(80, 24)
        assert await page.sees(Output) == Output(0, b"on")


@pytest.mark.parametrize("error", [AgentNotFound("ada"), MachineAway("box2"), UnsupportedOperation("no terminal")])
async def test_what_cannot_be_shown_says_why(error: SynapseError) -> None:
    async with relayed(Hosts(error)) as view:
        page = view()

        assert (await page.sees(Failed)).error is error
        async with asyncio.timeout(BOUND):
            await page.showing


async def test_the_host_gets_the_credit_of_the_fastest_viewer() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        quick, slow = view(), view()
        await host.begins()
        await slow.sees(Snapshot)
        await quick.sees(Snapshot)
        host.say(Output(0, bytes(200_000)))
        await quick.sees_output_until(200_000)
        await slow.sees_output_until(200_000)

        await slow.viewer.receive(Credit(10_000))
        await quick.viewer.receive(Credit(200_000))

        assert await host.hears(Credit) == Credit(200_000)


async def test_nonsense_of_a_viewer_about_credit_is_ignored() -> None:
    host = FakeHost()
    async with relayed(Hosts(host)) as view:
        page = view()
        await host.begins(offset=10)
        await page.sees(Snapshot)

        await page.viewer.receive(Credit(2**50))

        assert page.viewer.credited == 10


async def test_a_relay_ends_a_while_after_its_last_viewer() -> None:
    first, second = FakeHost(), FakeHost()
    async with relayed(Hosts(first, second), linger=0.01) as view:
        page = view()
        await first.begins()
        await page.sees(Snapshot)
        await page.leave()
        await settled(lambda: first.is_closed)

        again = view()

        await second.begins(data=b"again")
        assert (await again.sees(Snapshot)).data == b"again"


class BusyHost(FakeHost):
    """A host that takes nothing before the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_hear = asyncio.Event()
        self.is_told = asyncio.Event()

    @override
    async def send(self, data: bytes | str) -> None:
        self.is_told.set()
        await self.may_hear.wait()
        await super().send(data)


async def test_a_viewer_that_leaves_while_the_host_is_busy_keeps_no_keyboard() -> None:
    host = BusyHost()
    host.may_hear.set()
    async with relayed(Hosts(host)) as view:
        looking = view()
        await host.begins()
        await looking.sees(Snapshot)
        host.may_hear.clear()
        host.is_told.clear()
        typing = view(types=True)
        async with asyncio.timeout(BOUND):
            await host.is_told.wait()
        leaving = asyncio.ensure_future(typing.leave())
        host.may_hear.set()
        await leaving

        await looking.viewer.receive(Open(agent="ada", after=0, run="r1", columns=90, rows=30, types=True))
        host.say(Role(types=True))

        await settled(lambda: looking.relay.types(looking.viewer))


async def test_a_host_that_has_stopped_holds_up_no_page() -> None:
    host = BusyHost()
    host.may_hear.set()
    async with relayed(Hosts(host), patience=0.01) as view:
        page = view(types=True)
        await host.begins()
        host.say(Role(types=True))
        await settled(lambda: page.relay.types(page.viewer))
        host.may_hear.clear()

        async with asyncio.timeout(BOUND):
            await page.viewer.receive(Input(b"keys"))
        assert not page.relay.types(page.viewer), "what is typed now would be lost"
        host.is_told.clear()
        await page.viewer.receive(Input(b"more"))
        await page.leave()

        assert not host.is_told.is_set()
        await settled(lambda: host.is_closed)


async def test_a_relay_whose_viewer_left_before_it_had_joined_ends_too() -> None:
    host = FakeHost()
    async with relayed(Hosts(host), linger=0.01) as view:
        await view().leave()

        await host.hears(Open)
        await settled(lambda: host.is_closed)


async def test_a_relay_that_failed_without_a_viewer_does_not_end_the_one_after_it() -> None:
    host = FakeHost()
    hosts = Hosts(AgentNotFound("ada"), host)
    async with relayed(hosts, linger=0.01) as view:
        await view().leave()
        await settled(lambda: hosts.asked == 1)
        again = view()
        await host.begins()
        await again.sees(Snapshot)

        await asyncio.wait({again.showing}, timeout=0.05)  # longer than the first relay would have lingered

        assert view().relay is again.relay


async def test_a_terminal_of_a_machine_that_was_away_goes_on() -> None:
    host, back = FakeHost(), FakeHost()
    async with relayed(Hosts(host, LinkDown("no server"), MachineAway("box2"), back)) as view:
        page = view()
        await host.begins(offset=40)
        await page.sees(Snapshot)

        host.hang_up()

        await page.sees(Lost)
        assert (await back.hears(Open)).after == 40
