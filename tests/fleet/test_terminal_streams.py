"""A terminal of another machine over a real NATS server, also after that server was killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve

from synapse.attach.frames import Role
from synapse.attach.relay import RelayViewer, TerminalRelays
from synapse.attach.server import AttachServer
from synapse.attach.terminal_frames import Credit, Input, Lost, Open, Output, Snapshot, ToTerminalViewer
from synapse.attach.terminal_server import TerminalServer
from synapse.config.process import new_id
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.registry import Channel
from synapse.fleet.bus import NobodyThere
from synapse.link.nats_bus import NatsBus
from synapse.link.nats_connection import Access
from synapse.link.streams import StreamKind, Streams
from synapse.link.terminals import RemoteAttach, proxy_websockets
from synapse.net.hosts import open_host_client
from synapse.registry.local import open_local_registry
from tests.fakes.clock import FakeClock
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.waiting import until
from tests.integration.attach.seat import Seat, seated
from tests.integration.attach.test_attach import SocketChannel
from tests.integration.pty.terminals import Stage, answer, dummy, line_program, staged

pytestmark = pytest.mark.integration

BOUND = 30
CLIENT = str(Path(__file__).parents[1] / "integration" / "attach" / "attach_here.py")
PERSON = Caller(via_socket=True)
FLOOD = ("sh", "-c", "stty raw -echo; head -c 1 >/dev/null; head -c 6000000 /dev/zero | tr '\\0' x; echo ===; cat")


@asynccontextmanager
async def host_of(stage: Stage, folder: Path) -> AsyncGenerator[AgentEntry]:
    """The sockets of an agent's host on box2."""
    attach = AttachServer(stage.program)
    served: dict[str, AttachServer | TerminalServer] = {
        "/attach": attach,
        "/terminal": TerminalServer(attach, stage.program, new_id()),
    }

    async def serve(connection: ServerConnection) -> None:
        assert connection.request is not None
        await served[connection.request.path](SocketChannel(connection), PERSON)

    path = str(folder / "host.sock")
    async with unix_serve(serve, path, compression=None, max_size=None):
        yield AgentEntry("synapse-dummy-8190", "dummy", port=8190, endpoint="", socket=path)


class Machines:
    """The links of laptop and box2, as far as terminals go; box2 has one agent."""

    def __init__(self, server: NatsServer, agent: AgentEntry, folder: Path) -> None:
        self._buses = [NatsBus(Access(machine=name, servers=(server.url,))) for name in ("laptop", "box2")]
        self.laptop = Streams(self._buses[0], "laptop", self._ask, new_id, silence_seconds=BOUND)
        self._box2 = Streams(self._buses[1], "box2", self._ask, new_id, silence_seconds=BOUND)
        clock = FakeClock()
        registry = open_local_registry(folder, clock.monotonic)
        self._hosts = open_host_client(registry, clock, registry.recheck)
        self._agent = agent

    async def _ask(self, _machine: str, _agent: str, kind: StreamKind, stream_id: str) -> None:
        is_attach = kind is StreamKind.ATTACH
        host = await (self._hosts.open_terminal if is_attach else self._hosts.follow_terminal)(self._agent)
        await self._box2.serve("laptop", stream_id, host)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with self._buses[0], self._buses[1], asyncio.TaskGroup() as group:
            for bus in self._buses:
                await bus.wait_connected(BOUND)
            jobs = [group.create_task(streams.run()) for streams in (self.laptop, self._box2)]
            for bus in self._buses:
                # The server answers in order: after this it knows the subscription.
                with pytest.raises(NobodyThere):
                    await bus.request("synapse.v1.nobody", b"", BOUND)
            yield
            for job in jobs:
                job.cancel()


@asynccontextmanager
async def box2_with(
    command: tuple[str, ...], folder: Path, server: NatsServer
) -> AsyncGenerator[tuple[Stage, Machines]]:
    async with staged(command, line_program()) as stage, host_of(stage, folder) as agent:
        machines = Machines(server, agent, folder)
        async with machines.running():
            yield stage, machines


@asynccontextmanager
async def proxy_socket(machines: Machines, folder: Path) -> AsyncGenerator[str]:
    attach = proxy_websockets(machines.laptop, "box2", "dummy")["/attach"]
    assert isinstance(attach, RemoteAttach)

    async def serve(connection: ServerConnection) -> None:
        await attach(SocketChannel(connection), PERSON)

    path = str(folder / "proxy.sock")
    async with unix_serve(serve, path, compression=None, max_size=None):
        yield path


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path, jetstream=False) as server:
        yield server


async def sits(path: str, story: Callable[[Seat], None]) -> None:
    """Lets a person attach and do what `story` says, in a thread: the machines go on."""

    def sit() -> None:
        with seated(sys.executable, CLIENT, path) as seat:
            story(seat)

    await asyncio.to_thread(sit)


async def test_a_person_sees_types_resizes_and_leaves(tmp_path: Path, server: NatsServer) -> None:
    def story(seat: Seat) -> None:
        seat.sees("echo: before you came")
        seat.types("hello\r")
        seat.sees("echo: hello")
        seat.resizes(120, 40)
        until(lambda: stage.program.size == (120, 40), "the size of the program", lambda: stage.program.size)
        seat.types("\x1d")
        seat.sees("left: detached None")

    async with box2_with(dummy().command, tmp_path, server) as (stage, machines):
        await stage.turn("before you came")
        async with proxy_socket(machines, tmp_path) as path:
            await sits(path, story)

        assert answer(await stage.turn("still there?")) == "echo: still there?"


async def test_a_person_goes_on_after_the_server_was_killed(tmp_path: Path, server: NatsServer) -> None:
    def story(seat: Seat) -> None:
        seat.types("hello\r")
        seat.sees("echo: hello")

        server.kill()
        seat.sees("no connection to box2")
        seat.types("x")  # lost, as the note says
        server.start_again()

        # The whole screen comes again, with what was typed before.
        seat.sees("echo: hello")
        seat.types("again\r")
        seat.sees("echo: again")

    async with (
        box2_with(dummy().command, tmp_path, server) as (_, machines),
        proxy_socket(machines, tmp_path) as path,
    ):
        await sits(path, story)


class Page:
    """A viewer of a gateway, who shows all at once."""

    def __init__(self, machines: Machines) -> None:
        async def connect(_agent: str) -> Channel:
            return await machines.laptop.open("box2", "dummy", StreamKind.TERMINAL)

        self.seen = b""
        self.types = self.is_painted = False
        self.told: asyncio.Queue[ToTerminalViewer] = asyncio.Queue()
        self.relays = TerminalRelays(connect)
        wanted = Open(agent="dummy", after=None, run="", columns=100, rows=30, types=True)
        self.viewer = RelayViewer(self.relays.find("dummy"), self._show, wanted)
        self.showing = asyncio.ensure_future(self.viewer.show())

    async def sees(self, condition: Callable[[ToTerminalViewer], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not condition(await self.told.get()):
                pass

    async def leave(self) -> None:
        self.showing.cancel()
        await asyncio.gather(self.showing, return_exceptions=True)
        await self.relays.close()

    async def _show(self, said: ToTerminalViewer) -> None:
        if isinstance(said, Output):
            self.seen += said.data
            await self.viewer.receive(Credit(said.offset + len(said.data)))
        self.types = said.types if isinstance(said, Role) else self.types
        if isinstance(said, Snapshot):
            # A page that is behind gets one instead of the output that it has missed.
            self.is_painted = True
            self.seen += said.data
        self.told.put_nowait(said)


async def test_a_gateway_shows_a_flood_of_another_machine(tmp_path: Path, server: NatsServer) -> None:
    async with box2_with(FLOOD, tmp_path, server) as (_, machines):
        page = Page(machines)
        await page.sees(lambda _: page.types and page.is_painted)

        await page.viewer.receive(Input(b"go"))

        await page.sees(lambda _: b"===" in page.seen[-9000:])
        await page.leave()


async def test_a_gateway_goes_on_after_the_server_was_killed(tmp_path: Path, server: NatsServer) -> None:
    async with box2_with(dummy().command, tmp_path, server) as (stage, machines):
        page = Page(machines)
        await page.sees(lambda said: isinstance(said, Snapshot))
        await stage.turn("one")
        await page.sees(lambda _: b"echo: one" in page.seen)

        server.kill()
        await page.sees(lambda said: isinstance(said, Lost))
        await stage.turn("two")
        assert b"echo: two" not in page.seen
        await asyncio.to_thread(server.start_again)

        await page.sees(lambda _: b"echo: two" in page.seen)
        await page.leave()
