"""The bus over a real nats-server, as an operator may run one already: no permissions, a user and a password."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from synapse.cli.doctor import NOTE
from synapse.cli.fleet_doctor import try_forgery
from synapse.config.fleet import FleetConfig
from synapse.core.override import override
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import Bus, BusError, MailboxFull, NobodyThere, NoReply, NoStream, NotConnected
from synapse.link.members import FleetMember, permissions
from synapse.link.nats_bus import LOG_BYTES, MAILS_PER_PAIR, STREAMS, NatsBus, matches
from synapse.link.nats_connection import MARK, Access, Connection, NatsClient, cancel_until_done
from tests.fleet.bus_conformance import BOUND, BusConformance, Pair, answer, ask, first
from tests.fleet.nats_jwt import Operator
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.tcp_proxy import tcp_proxy
from tests.samples.ports import own_port

NUMBERS = itertools.count(1)
CONNECT: Any = vars(nats)["connect"]
"""nats-py leaves parts of its types open."""


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    users = "authorization { user: fleet, password: secret }"
    with nats_server(tmp_path_factory.mktemp("nats"), users) as server:
        yield server


def access_to(server: NatsServer, machine: str) -> Access:
    return Access(machine=machine, servers=(f"nats://fleet:secret@127.0.0.1:{server.port}",), makes_streams=True)


@asynccontextmanager
async def pair_on(server: NatsServer) -> AsyncGenerator[Pair]:
    number = next(NUMBERS)
    laptop, box2 = f"laptop{number}", f"box{number}"
    async with NatsBus(access_to(server, laptop)) as one, NatsBus(access_to(server, box2)) as two:
        await one.wait_connected(BOUND)
        await one.make_missing()
        await two.wait_connected(BOUND)
        yield Pair(one, two, laptop, box2)


class TestNatsBus(BusConformance):
    """The promises of the port, kept by NATS."""

    server: NatsServer

    @pytest.fixture(autouse=True)
    def _use(self, server: NatsServer) -> None:
        self.server = server

    @override
    @asynccontextmanager
    async def open_pair(self) -> AsyncGenerator[Pair]:
        async with pair_on(self.server) as pair:
            yield pair


class TestNatsBusWithCredentials(BusConformance):
    """The same with a hosted NATS: a credentials file for each machine, with the rights of the how-to and no more."""

    server: NatsServer
    operator: Operator
    folder: Path

    @pytest.fixture(autouse=True)
    def _use(self, tmp_path: Path) -> Iterator[None]:
        self.operator, self.folder = Operator.new(), tmp_path
        with nats_server(tmp_path, self.operator.configuration()) as self.server:
            yield

    def bus(self, machine: FleetMember) -> NatsBus:
        creds = self.operator.creds(self.folder, machine.name, permissions(machine, names.JETSTREAM_API))
        access = Access(machine=machine.name, servers=(self.server.url,), creds=str(creds), makes_streams=True)
        return NatsBus(access)

    @override
    @asynccontextmanager
    async def open_pair(self) -> AsyncGenerator[Pair]:
        makes_streams = self.bus(FleetMember(name="hub", key="", runs_server=True))
        one, two = self.bus(FleetMember(name="laptop", key="")), self.bus(FleetMember(name="box2", key=""))
        async with makes_streams, one, two:
            for bus in (makes_streams, one, two):
                await bus.wait_connected(BOUND)
                await bus.check()
            yield Pair(one, two, "laptop", "box2")


async def test_mail_beyond_the_limit_is_refused_and_what_was_kept_stays(server: NatsServer) -> None:
    async with pair_on(server) as pair:
        subject = names.mail_subject(pair.box2_name, pair.laptop_name)
        await asyncio.gather(*(pair.laptop.keep(subject, b"x", once=f"6.{n}.1") for n in range(MAILS_PER_PAIR)))

        with pytest.raises(MailboxFull):
            await pair.laptop.keep(subject, b"one more", once="6.x.1")
        # Each pair of machines has a count of its own.
        await pair.box2.keep(names.mail_subject(pair.laptop_name, pair.box2_name), b"y", once="6.y.1")

        assert (await first(pair.box2.mails(pair.box2_name))).body == b"x"
        assert (await first(pair.laptop.mails(pair.laptop_name))).body == b"y"


async def test_mail_that_is_postponed_keeps_no_other_machine_s_mail_away(server: NatsServer) -> None:
    async with pair_on(server) as pair:
        for number in range(600):
            await pair.laptop.keep(names.mail_subject("box9", pair.laptop_name), b"later", once=f"p.{number}.1")
        await pair.box2.keep(names.mail_subject("box9", pair.box2_name), b"now", once="p.x.1")

        async with aclosing(pair.laptop.mails("box9")) as mails, asyncio.timeout(BOUND):
            async for mail in mails:
                if mail.body == b"now":
                    break
                await pair.laptop.postpone(mail, 60.0)


async def test_shipped_logs_have_a_limit_also_on_a_server_with_little_space(server: NatsServer) -> None:
    async with NatsBus(access_to(server, "laptop")) as bus:
        await bus.wait_connected(BOUND)
        await bus.make_missing()
        config = (await bus.ask_engine(f"STREAM.INFO.{names.LOG_STREAM}"))["config"]

    assert config["max_bytes"] in LOG_BYTES
    assert config["discard"] == "old"


async def test_mail_goes_away_when_its_time_is_over(server: NatsServer) -> None:
    async with pair_on(server) as pair:
        assert isinstance(pair.laptop, NatsBus)
        subject = names.mail_subject(pair.box2_name, pair.laptop_name)
        await pair.laptop.keep(subject, b"short", once="7.1.1", ttl=0.3)
        await pair.laptop.keep(subject, b"long", once="7.2.1", ttl=3600.0)

        async with asyncio.timeout(BOUND):
            while await kept_on(pair.laptop, subject) > 1:
                await pause(0.05)

        assert (await first(pair.box2.mails(pair.box2_name))).body == b"long"


async def test_a_mailbox_of_an_older_version_keeps_mail_and_learns_to_let_it_expire(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        client = await CONNECT(server.url)
        older = next({**one, "num_replicas": 1} for one in STREAMS if one["name"] == names.MAIL_STREAM)
        del older["allow_msg_ttl"]
        await client.request("$JS.API.STREAM.CREATE.SYN_MAIL", json.dumps(older).encode())
        async with NatsBus(Access(machine="box2", servers=(server.url,))) as bus:
            await bus.wait_connected(BOUND)
            subject = names.mail_subject("laptop", "box2")
            await bus.keep(subject, b"one", once="1", ttl=3600.0)
            assert not (await bus.ask_engine("STREAM.INFO.SYN_MAIL"))["config"].get("allow_msg_ttl")

            await bus.make_missing()

            assert (await bus.ask_engine("STREAM.INFO.SYN_MAIL"))["config"]["allow_msg_ttl"]
            assert await kept_on(bus, subject) == 1
        await client.close()


async def kept_on(bus: NatsBus, subject: str) -> int:
    """Returns how many mails wait on a subject."""
    told = await bus.ask_engine("STREAM.INFO.SYN_MAIL", {"subjects_filter": subject})
    counts: dict[str, int] = told["state"].get("subjects") or {}
    return counts.get(subject, 0)


async def test_everything_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        access = Access(machine="laptop", servers=(server.url,), makes_streams=True)
        async with NatsBus(access) as laptop, NatsBus(Access(machine="box2", servers=(server.url,))) as box2:
            await laptop.wait_connected(BOUND)
            await laptop.make_missing()
            await box2.wait_connected(BOUND)
            await laptop.put(names.PRESENCE, "laptop", b"here")
            watched, mails = box2.watch(names.PRESENCE), box2.mails("box2")
            assert await first(watched) == ("laptop", b"here")
            states = laptop.changes()
            assert await first(states) is True
            await laptop.keep(names.mail_subject("box2", "laptop"), b"before", once="1")
            await box2.acknowledge(await first(mails))

            server.kill()
            assert await first(states) is False
            with pytest.raises(NotConnected, match="no connection"):
                await laptop.request(names.relay_subject("box2", "laptop"), b"", 5.0)
            server.start_again()
            assert await first(states) is True

            # The bucket was in memory, and is made again.
            assert await first(watched, lambda change: change[1] is None and change[0] != "") == ("laptop", None)
            async with asyncio.timeout(BOUND):
                while True:
                    try:
                        await laptop.keep(names.mail_subject("box2", "laptop"), b"after", once="2")
                        await laptop.put(names.PRESENCE, "laptop", b"back")
                        break
                    except BusError:
                        await pause(0.01)
            # An acknowledgement may be lost with the server; then the mail comes again.
            await first(mails, lambda mail: mail.body == b"after")
            assert await first(watched, lambda change: change[1] is not None) == ("laptop", b"back")


async def test_an_entry_that_expires_is_no_forgery(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    async with pair_on(server) as pair:
        client = await CONNECT(access_to(server, pair.laptop_name).servers[0])
        await pair.laptop.put(names.PRESENCE, pair.laptop_name, b"here")
        async with aclosing(pair.box2.watch(names.PRESENCE)) as watched:
            await first(watched, lambda change: change == (pair.laptop_name, b"here"))

            # As the server's own limit of 30 seconds, in one.
            headers = {**MARK, "Nats-TTL": "1s"}
            await client.publish(f"$KV.{names.PRESENCE}.{pair.laptop_name}", b"short", headers=headers)
            await first(watched, lambda change: change == (pair.laptop_name, None))

        forged = [one for one in caplog.records if one.message == "message_forged"]
        assert len(forged) == 1, "the entry with a header of ours that no machine writes, and not its expiry"
        await client.close()


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a connection on which nothing moves be lost after a second."""
    monkeypatch.setattr("synapse.link.nats_connection.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("synapse.link.nats_connection.PING_SECONDS", 0.5)
    monkeypatch.setattr("synapse.link.nats_connection.SILENCE_SECONDS", 0.5)
    monkeypatch.setattr("synapse.link.nats_connection._LONGEST_TUNNEL", 0.5)


async def test_what_waits_for_a_line_ends_with_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up_soon(monkeypatch)
    with nats_server(tmp_path) as server:
        async with NatsBus(Access(machine="laptop", servers=(server.url,))) as bus:
            await bus.wait_connected(BOUND)
            os.kill(server.process.pid, signal.SIGSTOP)
            subject = names.relay_subject("box2", "laptop")
            large = [asyncio.create_task(bus.request(subject, b"x" * 1_000_000, 3600.0)) for _ in range(12)]
            jobs = {*large, asyncio.create_task(bus.put(names.PRESENCE, "laptop", b"small"))}

            done, _ = await asyncio.wait(jobs, timeout=BOUND)

            os.kill(server.process.pid, signal.SIGCONT)
            assert len(done) == len(jobs)
            assert all(isinstance(job.exception(), BusError) for job in jobs)
            await bus.wait_connected(BOUND)
            with pytest.raises(NobodyThere):
                await bus.request(subject, b"again", BOUND)


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
async def test_a_slow_line_is_no_dead_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_up: bool) -> None:
    monkeypatch.setattr("synapse.link.nats_connection.PING_SECONDS", 0.1)
    monkeypatch.setattr("synapse.link.nats_connection.SILENCE_SECONDS", 0.5)
    with nats_server(tmp_path) as server, tcp_proxy(server.port, rate=200_000) as line:
        slow, fast = f"nats://127.0.0.1:{line.port}", server.url
        one, two = (slow, fast) if is_up else (fast, slow)
        async with (
            NatsBus(Access(machine="laptop", servers=(one,))) as laptop,
            NatsBus(Access(machine="box2", servers=(two,))) as box2,
        ):
            await laptop.wait_connected(BOUND)
            await box2.wait_connected(BOUND)
            losses: list[bool] = []
            watching = [asyncio.create_task(note_losses(bus, losses)) for bus in (laptop, box2)]
            answering = asyncio.create_task(answer_all(box2, names.relay_subject("box2", "*")))
            await until_heard(laptop, names.relay_subject("box2", "laptop"))

            answer = await laptop.request(names.relay_subject("box2", "laptop"), b"x" * 500_000, 1.0)

            for task in (*watching, answering):
                task.cancel()
            assert answer == b"500000 bytes"
            assert losses == []


async def test_subscriptions_that_have_ended_leave_nothing(server: NatsServer) -> None:
    async with pair_on(server) as pair:
        await pair.laptop.put(names.PRESENCE, pair.laptop_name, b"here")
        connection: Connection = vars(pair.laptop)["_connection"]
        subscribed: dict[str, Any] = vars(connection)["_subscribed"]
        before = len(subscribed)

        for _ in range(10):
            async with aclosing(pair.laptop.watch(names.PRESENCE)) as watched:
                await first(watched, lambda change: not change[0])

        assert len(subscribed) == before


async def test_a_consumer_that_is_gone_is_noticed_while_other_messages_come(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.link.nats_connection.PING_SECONDS", 0.1)
    monkeypatch.setattr("synapse.link.nats_connection._MISSED_SECONDS", 0.3)
    access = access_to(server, "laptop")
    connection = await Connection.open(access, access.servers[0])
    client = await CONNECT(access.servers[0])
    await client.subscribe("consumer")  # and it never answers
    await client.flush()
    await client.flush()  # the first one overtakes the subscription
    jobs = [
        asyncio.create_task(connection.wait_lost()),
        asyncio.create_task(first(connection.messages("busy"), lambda _: False)),
        asyncio.create_task(keep_busy(client, "busy")),
    ]

    try:
        with pytest.raises(NoReply, match="silent"):
            await first(connection.pulled("consumer"))
    finally:
        for job in jobs:
            await cancel_until_done(job)
        await connection.close()
        await client.close()


async def keep_busy(client: Any, subject: str) -> None:
    while True:
        await client.publish(subject, b"x" * 40_000)
        await pause(0.02)


async def test_a_mail_may_be_longer_on_a_slow_line_than_a_consumer_is_silent(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("synapse.link.nats_connection.PING_SECONDS", 0.1)
    monkeypatch.setattr("synapse.link.nats_connection._MISSED_SECONDS", 0.5)
    caplog.set_level("INFO")
    async with pair_on(server) as pair:
        with tcp_proxy(server.port, rate=200_000) as line:
            slow = Access(machine=pair.box2_name, servers=(f"nats://fleet:secret@127.0.0.1:{line.port}",))
            async with NatsBus(slow) as box2:
                await box2.wait_connected(BOUND)
                await pair.laptop.keep(names.mail_subject(pair.box2_name, pair.laptop_name), b"x" * 300_000, once="1")

                mail = await first(box2.mails(pair.box2_name))

        assert len(mail.body) == 300_000
        assert [one.message for one in caplog.records if one.message == "consumer_lost"] == []


async def note_losses(bus: NatsBus, losses: list[bool]) -> None:
    async for connected in bus.changes():
        losses += [] if connected else [True]


async def until_heard(bus: NatsBus, subject: str) -> None:
    async with asyncio.timeout(BOUND):
        while True:
            with suppress(NobodyThere):
                await bus.request(subject, b"", BOUND)
                return
            await pause(0.01)


async def answer_all(bus: NatsBus, subject: str) -> None:
    async for arrival in bus.arrivals(subject):
        await bus.publish(arrival.reply_to, f"{len(arrival.body)} bytes".encode())


async def test_mail_that_is_postponed_again_and_again_comes_later_each_time(server: NatsServer) -> None:
    async with pair_on(server) as pair:
        await pair.laptop.keep(names.mail_subject(pair.box2_name, pair.laptop_name), b"later", once="l.1.1")
        came: list[float] = []
        async with aclosing(pair.box2.mails(pair.box2_name)) as mails, asyncio.timeout(BOUND):
            async for mail in mails:
                came.append(asyncio.get_running_loop().time())
                if len(came) == 4:
                    break
                await pair.box2.postpone(mail, 0.2)

        pauses = [after - before for before, after in itertools.pairwise(came)]
        assert [pause >= wanted for pause, wanted in zip(pauses, (0.2, 0.4, 0.8), strict=True)] == [True] * 3


async def test_a_request_whose_line_is_lost_while_it_is_sent_may_have_been_handled(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server, tcp_proxy(server.port, rate=4_000_000) as line:
        slow = Access(machine="laptop", servers=(f"nats://127.0.0.1:{line.port}",))
        async with NatsBus(slow) as laptop, NatsBus(Access(machine="box2", servers=(server.url,))) as box2:
            await laptop.wait_connected(BOUND)
            await box2.wait_connected(BOUND)
            subject = names.relay_subject("box2", "laptop")
            hearing = asyncio.create_task(first(box2.arrivals(subject), lambda arrival: arrival.body == b"do it"))
            await until_subscribed(box2, laptop, subject)

            def send_large(count: int) -> list[asyncio.Task[None]]:
                other = names.relay_subject("nobody", "laptop")
                return [asyncio.create_task(laptop.publish(other, b"x" * 1_000_000)) for _ in range(count)]

            # nats-py sends all of this at once, and everything beyond 2 MiB waits for the last byte.
            large = send_large(3)
            asking = asyncio.create_task(laptop.request(subject, b"do it", BOUND))
            large += send_large(9)
            await hearing
            assert not asking.done()
            line.reset()

            with pytest.raises(NoReply):
                await asking
            await asyncio.gather(*large, return_exceptions=True)
            await laptop.wait_connected(BOUND)


async def until_subscribed(bus: Bus, asker: Bus, subject: str) -> None:
    """Waits until the server knows the subscriptions that a bus has made on a subject."""
    answering = asyncio.create_task(answer(bus, subject, []))
    await ask(asker, subject, b"")
    await cancel_until_done(answering)


async def test_one_that_waits_for_a_slow_line_can_be_canceled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.link.nats_connection.PING_SECONDS", 3600.0)
    with nats_server(tmp_path) as server:
        async with NatsBus(Access(machine="laptop", servers=(server.url,))) as bus:
            await bus.wait_connected(BOUND)
            flooding = await stuck_flood(bus, server)
            sending = asyncio.create_task(bus.publish(names.relay_subject("box2", "laptop"), b"late"))
            await pause(0.1)

            sending.cancel()
            await asyncio.wait({sending}, timeout=BOUND)

            flooding.cancel()
            assert sending.cancelled()


async def stuck_flood(bus: NatsBus, server: NatsServer) -> asyncio.Future[list[None]]:
    """Lets the server stand still, and publishes until the line and the client are full. Returns what publishes."""
    os.kill(server.process.pid, signal.SIGSTOP)
    sent: list[int] = []
    sending = asyncio.create_task(flood(bus, sent))
    before = -1
    while before != len(sent):
        before = len(sent)
        await pause(0.5)  # the kernel takes a little more for a while
    subject = names.relay_subject("box2", "laptop")
    more = [asyncio.create_task(bus.publish(subject, b"x" * 1_000_000)) for _ in range(3)]
    await pause(0.1)
    return asyncio.gather(sending, *more)


async def flood(bus: NatsBus, sent: list[int]) -> None:
    """Publishes until the line takes no more, and notes each message that was taken."""
    while True:
        await bus.publish(names.relay_subject("box2", "laptop"), b"x" * 1_000_000)
        sent.append(1)
        await pause(0)


READERS: dict[str, Callable[[NatsBus], AsyncIterator[object]]] = {
    "arrivals": lambda bus: bus.arrivals(names.relay_subject("laptop", "*")),
    "mails": lambda bus: bus.mails("laptop"),
    "watch": lambda bus: bus.watch(names.KEYS),
}
WRITERS: dict[str, Callable[[NatsBus], Awaitable[object]]] = {
    "arrivals": lambda bus: bus.publish(names.relay_subject("laptop", "laptop"), b"late"),
    "mails": lambda bus: bus.keep(names.mail_subject("laptop", "laptop"), b"late", once="1"),
    "watch": lambda bus: bus.put(names.KEYS, "laptop.gateway", b"late"),
}
"""What each reader reads."""


@asynccontextmanager
async def stuck_reader(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> AsyncGenerator[tuple[NatsBus, NatsServer, asyncio.Task[None]]]:
    """Starts a reader. When it is about to subscribe, the server stands still and the line to it is full.

    The line is not given up before `give_up_soon`.
    """
    monkeypatch.setattr("synapse.link.nats_connection.PING_SECONDS", 0.5)
    monkeypatch.setattr("synapse.link.nats_connection.SILENCE_SECONDS", 3600.0)
    monkeypatch.setattr("synapse.link.nats_connection._LONGEST_TUNNEL", 0.5)
    with nats_server(folder) as server:
        async with NatsBus(Access(machine="laptop", servers=(server.url,), makes_streams=True)) as bus:
            await bus.wait_connected(BOUND)
            await bus.make_missing()
            listen, floods, is_stuck = NatsClient.listen, list[asyncio.Future[list[None]]](), asyncio.Event()

            async def listen_on_a_full_line(
                client: NatsClient, subject: str, take: Callable[[Msg], Awaitable[None]]
            ) -> Subscription:
                if not floods:
                    floods.append(await stuck_flood(bus, server))
                    is_stuck.set()
                return await listen(client, subject, take)

            monkeypatch.setattr(NatsClient, "listen", listen_on_a_full_line)
            reading = asyncio.create_task(read_one(READERS[kind](bus)))
            try:
                async with asyncio.timeout(BOUND):
                    await is_stuck.wait()
                yield bus, server, reading
            finally:
                await cancel_until_done(reading)
                for flooding in floods:
                    flooding.cancel()
                await asyncio.gather(*floods, return_exceptions=True)


async def read_one(items: AsyncIterator[object]) -> None:
    async for item in items:
        if item != ("", None):  # the end of what a bucket had
            return


@pytest.mark.parametrize("kind", READERS)
async def test_a_reader_can_be_canceled_while_its_subscription_waits_for_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with stuck_reader(tmp_path, monkeypatch, kind) as (bus, server, reading):
        reading.cancel()
        await asyncio.wait({reading}, timeout=BOUND)

        assert reading.cancelled()
        os.kill(server.process.pid, signal.SIGCONT)
        with pytest.raises(NobodyThere):
            await bus.request(names.relay_subject("laptop", "laptop"), b"who listens?", BOUND)


@pytest.mark.parametrize("kind", READERS)
async def test_a_reader_whose_subscription_waited_for_a_lost_line_reads_on_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with stuck_reader(tmp_path, monkeypatch, kind) as (bus, server, reading):
        give_up_soon(monkeypatch)
        await first(bus.changes(), lambda connected: not connected)
        os.kill(server.process.pid, signal.SIGCONT)
        await bus.wait_connected(BOUND)

        async with asyncio.timeout(BOUND):
            while not reading.done():
                with suppress(BusError):
                    await WRITERS[kind](bus)
                await pause(0.05)

        assert reading.exception() is None


async def test_what_waited_for_a_lost_line_is_not_sent_when_it_moves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stuck_reader(tmp_path, monkeypatch, "arrivals") as (bus, server, reading):
        give_up_soon(monkeypatch)
        await first(bus.changes(), lambda connected: not connected)
        await cancel_until_done(reading)
        async with asyncio.timeout(BOUND):
            while not bus.problem.endswith("does not answer"):  # the next connection is tried: this one was closed
                await pause(0.01)
        os.kill(server.process.pid, signal.SIGCONT)
        await bus.wait_connected(BOUND)

        with pytest.raises(NobodyThere):
            await bus.request(names.relay_subject("laptop", "laptop"), b"who listens?", 5.0)


async def test_a_connection_that_has_much_to_send_can_be_closed(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.link.nats_connection._CLOSE_SECONDS", BOUND)
    with tcp_proxy(server.port, rate=8_000_000) as line:
        slow = f"nats://fleet:secret@127.0.0.1:{line.port}"
        connection = await Connection.open(access_to(server, "laptop"), slow)
        subject = names.relay_subject("nobody", "laptop")
        large = [asyncio.create_task(connection.publish(subject, b"x" * 900_000)) for _ in range(8)]
        await pause(0.1)

        await connection.close()

        await asyncio.gather(*large, return_exceptions=True)


async def test_a_reader_can_be_canceled_while_the_line_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.link.nats_connection.PING_SECONDS", 3600.0)
    with nats_server(tmp_path) as server:
        async with NatsBus(Access(machine="laptop", servers=(server.url,))) as bus:
            await bus.wait_connected(BOUND)
            reading = asyncio.create_task(answer_all(bus, names.relay_subject("laptop", "*")))
            await until_heard(bus, names.relay_subject("laptop", "laptop"))
            flooding = await stuck_flood(bus, server)

            reading.cancel()
            await asyncio.wait({reading}, timeout=BOUND)

            flooding.cancel()
            assert reading.cancelled()


async def test_what_the_server_was_made_to_write_over_an_entry_is_a_loss_for_its_machine_alone(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        gate, other = (
            NatsBus(Access(machine=name, servers=(server.url,), makes_streams=True)) for name in ("gate", "other")
        )
        async with gate, other:
            await gate.wait_connected(BOUND)
            await gate.make_missing()
            await other.wait_connected(BOUND)
            await gate.put(names.KEYS, "gate.r-1", b"revoked")
            own, watched = gate.watch(names.KEYS), other.watch(names.KEYS)
            assert await first(own) == ("gate.r-1", b"revoked")
            assert await first(watched) == ("gate.r-1", b"revoked")
            states = other.changes()
            assert await first(states) is True

            # Any machine can make the server write its acknowledgement there.
            client = await CONNECT(server.url)
            await client.publish(names.log_subject("evil"), b"", reply=f"$KV.{names.KEYS}.gate.r-1")
            await client.flush()

            assert await first(own, lambda change: change[0] != "") == ("gate.r-1", None)
            assert await gate.get(names.KEYS, "gate.r-1") is None
            # Nor after a reconnection, when all entries come again.
            server.kill()
            assert await first(states) is False
            server.start_again()
            assert await first(states) is True
            async with asyncio.timeout(BOUND):
                while True:
                    try:
                        await other.put(names.KEYS, "other.gateway", b"true")
                        break
                    except BusError:
                        await pause(0.01)
            later = [await first(watched), await first(watched)]
            assert later == [("", None), ("other.gateway", b"true")]
            await client.close()


async def require_problem(bus: NatsBus, words: str) -> None:
    """Waits until the bus says why it is not connected, and finds the words there."""
    async with asyncio.timeout(BOUND):
        while "not connected yet" in bus.problem:
            await pause(0.01)
    with pytest.raises(NotConnected, match=words):
        await bus.wait_connected(0.1)


@pytest.mark.parametrize("kind", ["relay", "mail", "ask", "command", ""])
async def test_the_doctor_finds_each_way_to_act_as_another_machine(tmp_path: Path, kind: str) -> None:
    rights = permissions(FleetMember(name="box2", key=""), names.JETSTREAM_API)
    rights["publish"]["allow"] += [f"{names.ROOT}.{kind}.*.*"] if kind else []
    users = [{"user": "maker", "password": "x"}, {"user": "box2", "password": "x", "permissions": rights}]
    with nats_server(tmp_path, f"authorization: {json.dumps({'users': users})}") as server:
        maker, box2 = (
            NatsBus(Access(machine=name, servers=(f"nats://{name}:x@127.0.0.1:{server.port}",)))
            for name in ("maker", "box2")
        )
        async with maker, box2:
            await maker.wait_connected(BOUND)
            await maker.make_missing()
            await box2.wait_connected(BOUND)

            found = await try_forgery(box2, FleetConfig(fleet="f", machine="box2", servers=()))

            assert found.level == NOTE
            assert found.text == (
                f"the server lets this machine act as another ({names.ROOT}.{kind}.nobody.somebody-else)"
                if kind
                else "acting as another machine was refused, but a stolen key can use all of JetStream in this account"
            )


async def test_a_server_that_is_not_there_is_told_in_words() -> None:
    async with NatsBus(Access(machine="laptop", servers=(f"nats://127.0.0.1:{own_port()}",))) as bus:
        await require_problem(bus, "nothing listens at 127")


DAMAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda _: "", "is damaged"),
    "cut": (lambda whole: whole[:100], "is damaged"),
    "no JWT": (lambda whole: whole[whole.index("-----BEGIN USER") :], "is damaged"),
    "a cut seed": (lambda whole: whole[: whole.index("\nSU") + 10], "cannot be used"),
    "another seed": (lambda whole: whole.replace("\nSU", "\n!!"), "cannot be used"),
}


@pytest.mark.parametrize(("damage", "told"), DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_file_of_credentials_is_told_and_read_again(
    tmp_path: Path, damage: Callable[[str], str], told: str
) -> None:
    operator = Operator.new()
    file = operator.creds(tmp_path, "box2", permissions(FleetMember(name="box2", key=""), names.JETSTREAM_API))
    whole = file.read_text(encoding="ascii")
    file.write_text(damage(whole), encoding="ascii")
    with nats_server(tmp_path, operator.configuration()) as server:
        async with NatsBus(Access(machine="box2", servers=(server.url,), creds=str(file))) as bus:
            await require_problem(bus, told)

            file.write_text(whole, encoding="ascii")
            await bus.wait_connected(BOUND)


@pytest.mark.parametrize("seed", ["garbage", "SUAXX", "SU\ufffd"])
async def test_a_damaged_key_is_told(server: NatsServer, seed: str) -> None:
    async with NatsBus(Access(machine="box2", servers=(server.url,), seed=seed)) as bus:
        await require_problem(bus, "the key of this machine is damaged")


async def test_an_address_that_cannot_be_read_is_told() -> None:
    async with NatsBus(Access(machine="box2", servers=("nats://u:hidden@host:abc",))) as bus:
        await require_problem(bus, "in fleet.json cannot be read")

        assert "hidden" not in bus.problem
        assert bus.server_address == "the fleet's server"


async def test_a_wrong_password_is_told_in_words(server: NatsServer) -> None:
    async with NatsBus(Access(machine="laptop", servers=(f"nats://a:b@127.0.0.1:{server.port}",))) as bus:
        await require_problem(bus, "refuses the key of this machine")


async def test_where_tls_is_asked_for_nothing_is_sent_without_it(server: NatsServer) -> None:
    async with NatsBus(Access(machine="laptop", servers=(f"tls://fleet:secret@127.0.0.1:{server.port}",))) as bus:
        await require_problem(bus, "does not offer TLS")


async def test_a_server_without_jetstream_is_told_in_words(tmp_path: Path) -> None:
    with nats_server(tmp_path, jetstream=False) as server:
        async with NatsBus(Access(machine="laptop", servers=(server.url,), makes_streams=True)) as bus:
            await bus.wait_connected(BOUND)

            with pytest.raises(NoStream, match="no JetStream"):
                await bus.check()


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.*.c", "a.b.c", True),
        ("a.b", "a.b", True),
    ],
)
def test_patterns_of_subjects(pattern: str, subject: str, expected: bool) -> None:
    assert matches(pattern, subject) is expected
