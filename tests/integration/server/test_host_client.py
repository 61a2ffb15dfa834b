"""Requests to hosts over Unix sockets: connections are reused, and a missing or broken host is an error at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from synapse.client.http import NoAnswer
from synapse.config.process import SystemClock
from synapse.core.agent import EXITED, READY, WAITING, WORKING, AgentEntry
from synapse.core.errors import AgentNotResponding
from synapse.net.hosts import IDLE_SECONDS, UnixHostClient
from tests.fakes.clock import FakeClock
from tests.fakes.harness import FixedRegistry

pytestmark = pytest.mark.integration

BOUND = 10.0
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Hosts:
    """One listening socket; counts the connections, and records the requests."""

    def __init__(self, path: Path, talk: Talk | None = None) -> None:
        self.path = str(path)
        self.connections = 0
        self.asked: list[bytes] = []
        self._talk = talk or self._answer

    async def __aenter__(self) -> Hosts:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            head = await _head(reader)
            if not head:
                return
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.asked.append(head.partition(b"\r\n")[0] + b" " + await reader.readexactly(length))
            writer.write(OK)
            await writer.drain()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def client_of(clock: FakeClock | None = None) -> UnixHostClient:
    return UnixHostClient(FixedRegistry(), clock or FakeClock())


async def test_connections_are_reused_until_they_were_idle_for_too_long(tmp_path: Path) -> None:
    clock = FakeClock()
    client = client_of(clock)
    async with Hosts(tmp_path / "s") as host:
        for _ in range(3):
            assert await client.ask(host.path, "POST", "/commands", b"{1}") == (200, b"{}")
        assert host.connections == 1
        clock.advance(IDLE_SECONDS + 0.1)
        await client.ask(host.path, "GET", "/status")
        assert host.connections == 2
        assert host.asked[0] == b"POST /commands HTTP/1.1 {1}"
        assert host.asked[-1] == b"GET /status HTTP/1.1 "
        client.close()


async def test_requests_at_the_same_time_do_not_wait_for_each_other(tmp_path: Path) -> None:
    client = client_of()
    async with Hosts(tmp_path / "s") as host:
        answers = await asyncio.gather(*(client.ask(host.path, "POST", "/x", b"{}") for _ in range(30)))
        assert [answer.status for answer in answers] == [200] * 30
        assert host.connections == 30
        await asyncio.gather(*(client.ask(host.path, "POST", "/x", b"{}") for _ in range(10)))
        assert host.connections == 30
        client.close()


async def test_a_connection_that_the_host_has_closed_is_not_reused(tmp_path: Path) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _head(reader)
        writer.write(OK.replace(b"OK\r\n", b"OK\r\nconnection: close\r\n"))

    client = client_of()
    async with Hosts(tmp_path / "s", once) as host:
        for _ in range(2):
            await client.ask(host.path, "GET", "/status")
        assert host.connections == 2


async def test_a_missing_host_is_an_error_that_says_nothing_was_sent(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer) as silence:
        await client_of().ask(str(tmp_path / "none"), "GET", "/status")
    assert not silence.value.sent


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\n", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", OK[:-1]], ids=str
)
async def test_a_host_that_disconnects_or_sends_nonsense_has_not_answered(tmp_path: Path, said: bytes) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _head(reader)
        writer.write(said)

    async with Hosts(tmp_path / "s", odd) as host:
        with pytest.raises(NoAnswer) as silence:
            await client_of().ask(host.path, "GET", "/status")
        assert silence.value.sent


async def test_a_silent_host_times_out(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with Hosts(tmp_path / "s", silent) as host:
        with pytest.raises(NoAnswer) as silence:
            await client_of().ask(host.path, "GET", "/status", seconds=0.05)
        assert silence.value.timed_out


def answer(body: object, status: bytes = b"200 OK") -> bytes:
    content = json.dumps(body).encode()
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(content), content)


async def test_a_host_of_an_earlier_version_is_polled_for_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.net.hosts.POLL_SECONDS", 0.001)
    states = [READY, READY, WORKING, WAITING, READY]

    async def earlier(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            if head.startswith(b"GET /status/subscribe "):
                writer.write(answer({"error": {"code": "route_not_found"}}, b"404 Not Found"))
            elif states:
                told = {"state": states.pop(0), "why": "w", "source": "screen", "since": "2026-01-15T10:30:00.000Z"}
                writer.write(answer(told | {"queue_depth": 0}))
            else:
                return

    client = UnixHostClient(FixedRegistry(), SystemClock(), return_seconds=0)
    async with asyncio.timeout(BOUND), Hosts(tmp_path / "s", earlier) as host:
        agent = AgentEntry("synapse-codex-1", "codex", socket=host.path)
        told = [status.state async for status in client.follow_status(agent)]
    assert told == [READY, WORKING, WAITING, READY, EXITED]
    client.close()


async def test_the_whole_status_of_a_host_of_an_earlier_version_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.net.hosts.POLL_SECONDS", 0.001)
    depths = [0, 0, 1, 1, 2]
    asked: list[bytes] = []

    async def earlier(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            asked.append(head.split(b" ")[1])
            if b"/status/watch" in head:
                writer.write(answer({"error": {"code": "route_not_found"}}, b"404 Not Found"))
            elif depths:
                told = {"state": READY, "why": "w", "source": "screen", "since": "2026-01-15T10:30:00.000Z"}
                writer.write(answer(told | {"queue_depth": depths.pop(0)}))
            else:
                return

    client = UnixHostClient(FixedRegistry(), SystemClock(), return_seconds=0)
    async with asyncio.timeout(BOUND), Hosts(tmp_path / "s", earlier) as host:
        agent = AgentEntry("synapse-codex-1", "codex", socket=host.path)
        told = [status async for status in client.watch_status(agent, finished=5)]
    assert [one.get("queue_depth") for one in told] == [0, 1, 2, None]
    assert (told[-1]["state"], told[-1]["why"]) == (EXITED, "its host has ended, or cannot be reached")
    assert asked[:2] == [b"/status/watch?finished=5", b"/status?finished=5"]
    client.close()


async def test_a_host_that_goes_silent_within_a_stream_is_reported_as_not_responding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SILENCE_SECONDS", "WATCH_SILENCE_SECONDS"):
        monkeypatch.setattr(f"synapse.net.hosts.{name}", 0.05)
    over = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _head(reader)
        told = json.dumps({"state": READY, "why": "w", "source": "screen", "since": "2026-01-15T10:30:00.000Z"})
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(f"event: status\ndata: {told}\n\n".encode())
        await over.wait()

    async with asyncio.timeout(BOUND), Hosts(tmp_path / "s", silent) as host:
        agent = AgentEntry("synapse-codex-1", "codex", socket=host.path)
        statuses, whole = client_of().follow_status(agent), client_of().watch_status(agent)
        assert (await anext(statuses)).state == READY
        with pytest.raises(AgentNotResponding):
            await anext(statuses)
        assert (await anext(whole))["state"] == READY
        with pytest.raises(AgentNotResponding):
            await anext(whole)
        over.set()
