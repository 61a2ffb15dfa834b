"""The relay's shell over an engine in memory, with link.db on disk: what is told happened, and crashes harm nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from synapse.config.process import SystemClock
from synapse.core.errors import AgentNotFound, MachineAway, StoreFailed, to_wire
from synapse.core.store import RELAYED_DAYS
from synapse.core.waiting import pause
from synapse.fleet.bus import Arrival, NoReply
from synapse.fleet.names import mail_subject, relay_subject
from synapse.fleet.relay_io import (
    LONGEST_EXPIRY,
    EndedTask,
    FindTask,
    HostAbsent,
    HostAccepted,
    HostCall,
    HostOutcome,
    HostRefused,
    HostTold,
    HostUnknown,
    HostVoided,
    OpenTask,
    OutboxRow,
    OutboxState,
    StoreMark,
    Tailed,
    TellEnd,
    VoidTask,
)
from synapse.fleet.wire import End
from synapse.link.database import LinkDatabase
from synapse.link.deliveries import refusal_of
from synapse.link.nats_bus import MAIL_DAYS
from synapse.link.shell import OutboxUnknown, RelayShell, gathered
from tests.fakes.memory_engine import MemoryBus, MemoryEngine

BOUND = 50
"""Only for what hangs. A message that is repeated after 5 s may be repeated once more on a busy machine, after 10 s."""
T = TypeVar("T")


class FakeHosts:
    """The hosts of a machine: they take each message once, unless the test says otherwise."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.told: list[OutboxRow] = []
        self.voided: list[str] = []
        self.refuses = False
        self.silent = False
        self.asked = 0

    async def ask(self, call: HostCall) -> HostOutcome:  # noqa: C901, PLR0911 - one case for each call
        self.asked += 1
        if self.silent:
            return HostUnknown()
        match call:
            case OpenTask() if self.refuses:
                return HostRefused(error=msgspec.json.encode(to_wire(AgentNotFound(call.target))))
            case OpenTask() if call.message_id in self.voided:
                return HostAccepted(task_id=call.task_id, end=End(state="canceled"))
            case OpenTask():
                if call.message_id not in self.opened:
                    self.opened.append(call.message_id)
                return HostAccepted(task_id=call.task_id)
            case VoidTask():
                known = call.message_id in self.opened
                self.voided.append(call.message_id)
                return HostVoided(task_id=call.task_id, end=End(state="canceled"), known=known)
            case FindTask():
                return HostAccepted(task_id="t") if call.message_id in self.opened else HostAbsent()
            case TellEnd():
                self.told.append(call.row)
                return HostTold()


class LinkedMachine:
    """A machine whose link can end at any time, and start again with the same files."""

    def __init__(self, name: str, engine: MemoryEngine, folder: Path, relay_seconds: float = BOUND) -> None:
        self.name = name
        self.relay_seconds = relay_seconds
        self.folder = folder / name
        self.hosts = FakeHosts()
        self.engine = engine
        self.notes: list[str] = []
        self.bus: MemoryBus = engine.bus(name)
        self.shell: RelayShell
        self.database: LinkDatabase
        self.tell_incarnations: Callable[[], Awaitable[None]] | None = None
        self._running: asyncio.Task[None] | None = None

    async def start(
        self,
        tell_incarnations: Callable[[], Awaitable[None]] | None = None,
        read_own_log: Callable[[], Awaitable[None]] | None = None,
        check_seconds: float = BOUND,
    ) -> None:
        self.database = LinkDatabase(self.folder / "link.db", SystemClock())
        self.shell = RelayShell(
            self.name,
            bus=self.bus,
            database=self.database,
            hosts=self.hosts,
            read_mark=self._mark,
            clock=SystemClock(),
            relay_seconds=self.relay_seconds,
            check_seconds=check_seconds,
        )
        if self.tell_incarnations is not None:
            self.shell.tell_incarnations = self.tell_incarnations
        self.shell.on_notify = lambda event: self.notes.append(event.text)
        self.shell.tell_incarnations = tell_incarnations or self.shell.tell_incarnations
        self.shell.read_own_log = read_own_log or self.shell.read_own_log
        self._running = asyncio.create_task(self.shell.run())
        async with asyncio.timeout(BOUND):
            await self.shell.loaded.wait()

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None
            await self.database.close()

    async def _mark(self, _seq: int) -> StoreMark:
        return StoreMark(store_id=f"store of {self.name}", last_seq=100, mark="")

    async def send(self, message_id: str, *, queue: bool = False, to: str = "box2") -> OutboxRow:
        async with asyncio.timeout(BOUND):
            return await self.shell.submit(
                to, message_id, target="codex", task_id=f"task-{message_id}", body=b"{}", queue=queue, expires_in=60
            )

    async def row(self, message_id: str) -> OutboxRow:
        row = await self.database.find_message(message_id)
        assert row is not None
        return row


@asynccontextmanager
async def fleet(folder: Path, *, relay_seconds: float = BOUND) -> AsyncGenerator[tuple[LinkedMachine, LinkedMachine]]:
    """Two machines, `laptop` and `box2`, both linked."""
    engine = MemoryEngine()
    machines = LinkedMachine("laptop", engine, folder, relay_seconds), LinkedMachine("box2", engine, folder)
    try:
        for machine in machines:
            await machine.start()
        await until(lambda: _listening(engine, 2))
        for one, other in (machines, machines[::-1]):
            assert other.shell.incarnation is not None
            one.shell.saw(other.name, other.shell.incarnation)
        yield machines
    finally:
        for machine in machines:
            await machine.stop()


async def _listening(engine: MemoryEngine, count: int) -> bool:
    return len(engine.readers) >= count


async def until(condition: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(BOUND):
        while not (found := await condition()):
            await pause(0.01)
        return found


async def _state(machine: LinkedMachine, message_id: str, state: OutboxState) -> bool:
    return (await machine.row(message_id)).state is state


async def test_a_message_is_accepted_and_durable_before_its_sender_is_told(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        row = await laptop.send("m1")

        assert (row.state, row.task_id) == (OutboxState.ACCEPTED, "task-m1")
        assert (await laptop.row("m1")).state is OutboxState.ACCEPTED
        assert box.hosts.opened == ["m1"]


async def test_the_refusal_of_a_host_is_told_with_its_error(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        box.hosts.refuses = True

        row = await laptop.send("m1")

        assert row.state is OutboxState.REFUSED
        assert isinstance(refusal_of(row), AgentNotFound)


async def test_a_message_to_a_machine_that_is_away_is_refused(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()

        row = await laptop.send("m1")

        assert isinstance(refusal_of(row), MachineAway)


async def test_a_message_that_was_refused_can_be_sent_again_under_its_id(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        await laptop.send("m1")
        await box.start()
        await until(lambda: _listening(laptop.engine, 2))

        row = await laptop.send("m1")

        assert row.state is OutboxState.ACCEPTED


async def test_a_kept_message_arrives_by_mail_and_its_mail_is_acknowledged(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        row = await laptop.send("m1", queue=True)
        engine = laptop.engine

        async def mails() -> int:
            return len(engine.kept)

        async def receipts() -> bool:
            return bool(engine.acknowledged)

        await until(mails)
        laptop.bus.cut()  # so that only the mail can bring it

        await box.start()

        await until(receipts)
        assert (row.state, box.hosts.opened) == (OutboxState.OPEN, ["m1"])


async def test_the_engine_is_told_when_a_kept_message_expires(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        await laptop.send("m1", queue=True)

        async def ttls() -> bool:
            return bool(laptop.engine.ttls)

        await until(ttls)

        (ttl,) = laptop.engine.ttls
        assert ttl is not None
        assert 0 < ttl <= 60  # as `send` of this file says


def test_hosts_keep_the_id_of_a_message_longer_than_any_copy_of_it_lives() -> None:
    assert timedelta(days=RELAYED_DAYS) > timedelta(seconds=LONGEST_EXPIRY) + timedelta(days=MAIL_DAYS)


async def test_a_kept_message_that_is_recalled_is_not_opened(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        await laptop.send("m1", queue=True)
        recalled = await laptop.shell.recall("m1")
        assert recalled is not None
        assert (recalled.kind, recalled.state) == ("void", OutboxState.OPEN)

        await box.start()

        await until(lambda: _state(laptop, "m1", OutboxState.VOID))
        assert box.hosts.opened == []


async def test_a_silent_machine_leaves_the_message_in_the_outbox_and_it_arrives_once(tmp_path: Path) -> None:
    async with fleet(tmp_path, relay_seconds=0.3) as (laptop, box):
        laptop.engine.loses_answers = True

        row = await laptop.send("m1")
        laptop.engine.loses_answers = False

        assert row.state is OutboxState.OPEN
        await until(lambda: _state(laptop, "m1", OutboxState.ACCEPTED))
        assert box.hosts.opened == ["m1"]


async def test_a_host_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    async with fleet(tmp_path, relay_seconds=0.3) as (laptop, box):
        box.hosts.silent = True
        row = await laptop.send("m1")
        box.hosts.silent = False

        assert row.state is OutboxState.OPEN
        await until(lambda: _state(laptop, "m1", OutboxState.ACCEPTED))


async def test_a_link_that_was_killed_goes_on_with_its_outbox(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        await laptop.send("m1", queue=True)
        await laptop.stop()

        await box.start()
        await laptop.start()

        await until(lambda: _state(laptop, "m1", OutboxState.ACCEPTED))
        assert box.hosts.opened == ["m1"]


async def test_the_end_of_a_task_settles_the_message_and_tells_its_waiter(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await laptop.send("m1")
        end = End(state="completed", answer=b'{"parts": []}')

        await box.shell.store(
            Tailed(seq=5, mark="", ended=(EndedTask(machine="laptop", message_id="m1", task_id="task-m1", end=end),))
        )

        async def told() -> list[OutboxRow]:
            return laptop.hosts.told

        assert [(row.state, row.end) for row in await until(told)] == [(OutboxState.SETTLED, end)]
        assert box.shell.tail_seq == 5


async def test_an_end_is_told_after_a_restart_of_the_machine_that_has_it(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await laptop.send("m1")
        await laptop.stop()
        end = End(state="failed")
        await box.shell.store(
            Tailed(seq=5, mark="", ended=(EndedTask(machine="laptop", message_id="m1", task_id="task-m1", end=end),))
        )
        await box.stop()

        await laptop.start()
        await box.start()

        await until(lambda: _state(laptop, "m1", OutboxState.SETTLED))


async def test_a_commit_that_fails_is_told_and_the_relay_starts_again(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        with sqlite3.connect(laptop.folder / "link.db") as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )

        with pytest.raises(StoreFailed):
            await laptop.send("m1")

        assert box.hosts.opened == []
        assert "disk is full" in laptop.shell.problem
        with sqlite3.connect(laptop.folder / "link.db") as connection:
            connection.execute("DROP TRIGGER full")
        async with asyncio.timeout(BOUND):
            await laptop.shell.loaded.wait()
        await until(lambda: _listening(laptop.engine, 2))
        assert (await laptop.send("m1")).state is OutboxState.ACCEPTED


@asynccontextmanager
async def _failing_tail(machine: LinkedMachine) -> AsyncGenerator[None]:
    """Lets only commits fail that say how far the log was read, and makes one."""
    with sqlite3.connect(machine.folder / "link.db") as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON tail BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
    machine.shell.give(Tailed(seq=5, mark=""))
    yield
    with sqlite3.connect(machine.folder / "link.db") as connection:
        connection.execute("DROP TRIGGER full")


async def test_a_message_that_is_kept_is_not_reported_as_failed_when_another_commit_fails(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        box.hosts.silent = True
        sending = asyncio.create_task(laptop.send("m1"))
        await until(lambda: laptop.database.find_message("m1"))

        async with _failing_tail(laptop):
            row = await sending
        box.hosts.silent = False

        assert row.state is OutboxState.OPEN
        await until(lambda: _state(laptop, "m1", OutboxState.ACCEPTED))
        assert box.hosts.opened == ["m1"]


async def test_a_caller_is_told_that_nobody_knows_when_the_outbox_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(tmp_path) as (laptop, box):
        box.hosts.silent = True
        sending = asyncio.create_task(laptop.send("m1"))
        await until(lambda: laptop.database.find_message("m1"))

        async def unreadable(_message_id: str) -> OutboxRow | None:
            raise StoreFailed("the disk is broken")

        monkeypatch.setattr(laptop.database, "find_message", unreadable)
        async with _failing_tail(laptop):
            with pytest.raises(OutboxUnknown, match="not known whether") as unknown:
                await sending

        assert "'m1'" in unknown.value.hint


async def test_a_message_that_was_refused_before_is_not_refused_again_when_the_commit_fails(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        box.hosts.refuses = True
        assert (await laptop.send("m1")).state is OutboxState.REFUSED
        with sqlite3.connect(laptop.folder / "link.db") as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )

        with pytest.raises(StoreFailed):
            await laptop.send("m1")


async def test_a_position_in_the_log_is_told_only_when_it_is_durable_with_its_ends(tmp_path: Path) -> None:
    ended = EndedTask(machine="laptop", message_id="m1", task_id="task-m1", end=End(state="completed"))
    async with fleet(tmp_path) as (laptop, box):
        await laptop.send("m1")
        with sqlite3.connect(box.folder / "link.db") as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )

        with pytest.raises(StoreFailed):
            await box.shell.store(Tailed(seq=10, mark="", ended=(ended,)))
        # What follows it is not written either, also if the relay has not heard of the failure yet.
        with pytest.raises(StoreFailed):
            await box.shell.store(Tailed(seq=20, mark=""))

        async def is_loaded_again() -> bool:
            return box.shell.loaded.is_set() and box.shell.tail_seq == 0

        await until(is_loaded_again)
        assert (await box.database.read_rows()).tail.seq == 0


async def test_a_reader_is_woken_when_its_message_changes(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        await laptop.send("m1", queue=True)
        async with laptop.shell.watching("m1") as changed:
            changed.clear()
            await box.start()
            async with asyncio.timeout(BOUND):
                await changed.wait()

        assert (await laptop.row("m1")).state is not OutboxState.REFUSED


async def test_mails_are_gathered_until_none_comes_for_a_moment() -> None:
    async def mails() -> AsyncGenerator[Arrival, None]:
        for number in range(3):
            yield Arrival("synapse.v1.mail.box2.laptop", b"x", mail=number + 1)
        await asyncio.Event().wait()

    async with asyncio.timeout(BOUND):
        first = await anext(gathered(mails()))

    assert [mail.mail for mail in first] == [1, 2, 3]


async def test_a_server_that_forbids_mail_is_noted_and_does_not_end_the_relay(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        box.bus.forbids_mail = True
        await box.start()

        async def notes() -> list[str]:
            return [note for note in box.notes if "hears no messages" in note]

        await until(notes)
        assert (await laptop.send("m1", queue=True)).state is OutboxState.OPEN


async def test_no_message_is_heard_before_the_own_log_is_compared_with_the_engine(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        compared, asked = asyncio.Event(), list[str]()

        async def tell() -> None:
            asked.append("incarnations")

        async def read() -> None:
            asked.append("log")
            await compared.wait()

        await box.start(tell_incarnations=tell, read_own_log=read)
        await until(lambda: _holds(asked == ["incarnations", "log"]))
        assert (await laptop.send("m1")).state is OutboxState.REFUSED, "it does not listen yet"

        compared.set()
        await until(lambda: _listening(box.engine, 2))
        assert (await laptop.send("m1")).state is OutboxState.ACCEPTED
        assert box.notes == []


async def test_messages_are_heard_though_the_server_does_not_tell_what_it_knows(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        told = asyncio.Event()

        async def tell() -> None:
            raise NoReply("JetStream does not answer")

        async def read() -> None:
            told.set()

        await box.start(tell_incarnations=tell, read_own_log=read, check_seconds=0.05)
        await until(lambda: _listening(box.engine, 2))

        assert (await laptop.send("m1")).state is OutboxState.ACCEPTED
        assert ["does not tell" in note for note in box.notes] == [True]
        assert not told.is_set()


async def _holds(condition: bool) -> bool:
    return condition


async def test_a_body_with_too_many_levels_does_not_make_a_machine_deaf(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (laptop, box):
        nested = b"\x82\xa4type\xa4find\xa1x" + b"\x91" * 100_000 + b"\xc0"
        await laptop.bus.publish(relay_subject("box2", "laptop"), nested)
        await laptop.bus.keep(mail_subject("box2", "laptop"), nested, once="1")

        assert (await laptop.send("m1")).state is OutboxState.ACCEPTED
        assert box.shell.problem == ""


async def test_a_defect_while_listening_starts_the_relay_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.link.shell.RELOAD_SECONDS", 0.01)
    failures = iter([ValueError("a defect")])

    async def tell() -> None:
        for failure in failures:
            raise failure

    async with fleet(tmp_path) as (laptop, box):
        await box.stop()
        box.tell_incarnations = tell
        await box.start()

        async def is_heard() -> bool:
            return (await laptop.send("m1", queue=True)).state is OutboxState.ACCEPTED

        await until(is_heard)
        assert box.hosts.opened == ["m1"]
