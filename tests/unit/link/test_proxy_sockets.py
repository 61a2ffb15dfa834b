"""Proxy sockets: their names, the machines for which there is none, and which of them close."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from synapse.client.link import LINK_SECONDS
from synapse.config.settings import load_settings
from synapse.core.agent import AgentEntry
from synapse.core.errors import MachineAway, MachineNotFound, RateLimited
from synapse.core.waiting import pause
from synapse.fleet import asks
from synapse.link.asking import ANSWER_SECONDS, MachineSilent
from synapse.link.presence import LOOK_SECONDS
from synapse.link.proxies import Proxies, socket_name
from tests.fakes.listed_agents import ListedAgents


def test_two_links_on_one_computer_have_different_sockets_for_the_same_agent(tmp_path: Path) -> None:
    names = {
        socket_name("synapse-link", tmp_path / home, inbox)
        for home in ("laptop", "box3")
        for inbox in ("box2!bob", "box2!ada")
    }

    assert len(names) == 4
    assert {len(name) for name in names} == {len("synapse-link-") + 12}


@pytest.mark.parametrize("queue", [False, True])
async def test_a_name_that_no_machine_can_have_is_not_found(tmp_path: Path, queue: bool) -> None:
    proxies = Proxies(
        cast("Any", SimpleNamespace(machine="laptop")),
        me=AgentEntry("synapse-link", "link"),
        registry=ListedAgents(),
        settings=load_settings(environ={"SYNAPSE_HOME": str(tmp_path)}),
    )

    with pytest.raises(MachineNotFound, match=r"box2\.example\.org"):
        await proxies.open("codex@box2.example.org", queue=queue)


async def test_a_machine_that_is_asked_in_vain_for_its_agent_was_sent_nothing(tmp_path: Path) -> None:
    async def ask(machine: str, *_: object) -> None:
        raise MachineSilent(machine, "no answer within 8 s")

    client = SimpleNamespace(ask=ask, require_connected=lambda: None)
    proxies = Proxies(
        cast("Any", SimpleNamespace(machine="laptop", client=client)),
        me=AgentEntry("synapse-link", "link"),
        registry=ListedAgents(),
        settings=load_settings(environ={"SYNAPSE_HOME": str(tmp_path)}),
    )

    with pytest.raises(MachineSilent, match="the machine box2 does not answer: no answer within 8 s") as silence:
        await proxies.open("codex@box2", queue=False)
    assert silence.value.hint == "`synapse fleet status` shows the machines"


def test_commands_wait_longer_for_the_link_than_the_link_for_another_machine() -> None:
    # Else a command says that the link does not answer, because another machine does not.
    assert LINK_SECONDS > ANSWER_SECONDS + LOOK_SECONDS


# How many stay open


class AwayMachine:
    """A machine that resolves no names, so that messages to any name are kept; its status comes when the test says."""

    machine = "laptop"

    def __init__(self) -> None:
        self.client = self.machines = self
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def find(self, name: str) -> None:
        """The fleet has every machine."""

    async def ask(self, machine: str, ask: object, _shape: object, **_options: float) -> asks.StatusRead:
        if isinstance(ask, asks.ResolveAgent):
            raise MachineAway(machine)
        self.asked.set()
        await self.may_answer.wait()
        if isinstance(ask, asks.ReadStatus) and ask.known:
            await asyncio.Event().wait()  # its state does not change
        return asks.StatusRead(status={"state": "ready"}, version="1")


@pytest.fixture(name="folder")
def _folder() -> Generator[Path]:
    # Not below pytest's folder: the path of a Unix socket has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder:
        yield Path(folder)


@asynccontextmanager
async def running(
    folder: Path, away: AwayMachine, *, most_open: int = 100, connect_seconds: float = 0.0, most_at_all: int = 100
) -> AsyncGenerator[Proxies]:
    proxies = Proxies(
        cast("Any", away),
        me=AgentEntry("synapse-link", "link"),
        registry=ListedAgents(),
        settings=load_settings(environ={"SYNAPSE_HOME": str(folder), "SYNAPSE_UDS_DIR": str(folder)}),
        most_open=most_open,
        connect_seconds=connect_seconds,
        most_at_all=most_at_all,
    )
    run = asyncio.create_task(proxies.run())
    try:
        async with asyncio.timeout(30):
            yield proxies
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


async def opened(proxies: Proxies, name: str) -> Path:
    return Path((await proxies.open(f"{name}@box2", queue=True)).entry.socket)


async def read_status(path: Path) -> bytes:
    """Returns the first line of the answer."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.partition(b"\r\n")[0]


REQUEST = b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
DONE = b"HTTP/1.1 200 OK"


async def test_above_the_limit_the_least_recently_used_proxy_closes_and_opens_again(folder: Path) -> None:
    async with running(folder, AwayMachine(), most_open=2) as proxies:
        ada, bob = await opened(proxies, "ada"), await opened(proxies, "bob")
        assert await read_status(ada) == DONE

        cid = await opened(proxies, "cid")

        assert (ada.exists(), bob.exists(), cid.exists()) == (True, False, True)
        assert await opened(proxies, "bob") == bob
        assert await read_status(bob) == DONE


async def test_a_proxy_stays_open_while_it_answers_a_request(folder: Path) -> None:
    away = AwayMachine()
    away.may_answer.clear()
    async with running(folder, away, most_open=1) as proxies:
        ada = await opened(proxies, "ada")
        reading = asyncio.create_task(read_status(ada))
        await away.asked.wait()

        bob = await opened(proxies, "bob")
        cid = await opened(proxies, "cid")

        assert (ada.exists(), bob.exists(), cid.exists()) == (True, False, True)
        away.may_answer.set()
        assert await reading == DONE


async def test_a_proxy_stays_open_while_somebody_follows_its_agent(folder: Path) -> None:
    async with running(folder, AwayMachine(), most_open=1) as proxies:
        ada = await opened(proxies, "ada")
        reader, writer = await asyncio.open_unix_connection(ada)
        writer.write(b"GET /status/subscribe HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"ready" in await reader.readuntil(b'ready"')

        await opened(proxies, "bob")
        await opened(proxies, "cid")

        assert ada.exists()
        assert not reader.at_eof()
        writer.close()
        await writer.wait_closed()


async def test_a_caller_that_was_just_told_of_a_socket_finds_it(folder: Path) -> None:
    async with running(folder, AwayMachine(), most_open=1, connect_seconds=600) as proxies:
        paths = [await opened(proxies, name) for name in ("ada", "bob", "cid")]

        assert [await read_status(path) for path in paths] == [DONE] * 3


async def test_a_connection_that_waits_when_its_proxy_closes_is_still_served(folder: Path) -> None:
    async with running(folder, AwayMachine(), most_open=1) as proxies:
        ada = await opened(proxies, "ada")
        with socket.socket(socket.AF_UNIX) as connection:
            # Blocks the event loop, so the server has not accepted it yet.
            connection.connect(str(ada))
            await opened(proxies, "bob")
            assert not ada.exists()
            again = await opened(proxies, "ada")
            for _ in range(20):
                await pause(0.02)  # the closing of the first one goes on

            reader, writer = await asyncio.open_unix_connection(sock=connection.dup())
            writer.write(REQUEST)
            assert (await reader.read()).startswith(DONE)
            writer.close()
            await writer.wait_closed()
        assert await read_status(again) == DONE


async def test_when_all_are_in_use_no_more_open_than_the_link_has_files_for(folder: Path) -> None:
    async with running(folder, AwayMachine(), most_open=1, connect_seconds=600, most_at_all=2) as proxies:
        ada, bob = await opened(proxies, "ada"), await opened(proxies, "bob")

        with pytest.raises(RateLimited, match="2 agents on other machines are in use"):
            await opened(proxies, "cid")

        assert [await opened(proxies, name) for name in ("ada", "bob")] == [ada, bob]


async def test_the_end_of_the_link_closes_also_what_is_closing(folder: Path) -> None:
    async with running(folder, AwayMachine(), most_open=1) as proxies:
        ada = await opened(proxies, "ada")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(ada))
            bob = await opened(proxies, "bob")
            reader, writer = await asyncio.open_unix_connection(sock=connection.dup())
    assert not bob.exists()
    assert await reader.read() == b""
    writer.close()
