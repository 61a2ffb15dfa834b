"""The client of real hosts: status, followed over restarts and ends, and terminals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from synapse.attach.frames import Exited, Hello, Role, decode_to_viewer, encode
from synapse.attach.terminal_frames import HOST_TERMINAL, Input, Kind, Open, encode_from_viewer, split
from synapse.client.http import HostAddress, request
from synapse.client.overview import Row, row_of
from synapse.config.process import SystemClock
from synapse.core.agent import EXITED, READY, WAITING, WORKING
from synapse.core.caller import ACTIONS, Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import AgentNotResponding, UnsupportedOperation
from synapse.core.message import Message, MessageId, TextPart
from synapse.core.message import Role as Speaker
from synapse.core.registry import Channel
from synapse.core.requests import AnswerQuestion, SendMessage
from synapse.net.hosts import UnixHostClient
from synapse.registry.local import open_local_registry
from tests.conformance.real_hosts import COMMAND, dummy_host, entry_of, environ, scripted_host
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration

BOUND = 30.0
SCRIPT = """\
[[rule]]
text = "deploy"
steps = [
  { question = "Deploy?" },
  { answer = "deployed" },
]
"""
LAPTOP = Caller(scope="key:laptop", name="laptop", actions=frozenset(ACTIONS))


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder:
        yield Path(folder)


def client_of(home: Path, *, return_seconds: float = 0.3) -> UnixHostClient:
    clock = SystemClock()
    registry = open_local_registry(home / "registry", clock.monotonic)
    return UnixHostClient(registry, clock, return_seconds=return_seconds)


def message(text: str) -> SendMessage:
    return SendMessage(
        message=Message(message_id=MessageId(""), role=Speaker.USER, parts=(TextPart(text=text),)), dialect="synapse"
    )


async def state_of(statuses: AsyncGenerator[AgentStatus, None]) -> str:
    return (await anext(statuses)).state


async def test_each_state_of_an_agent_is_reported_and_its_end(home: Path) -> None:
    script = home / "script.toml"
    script.write_text(SCRIPT, encoding="utf-8")

    with scripted_host(home, script) as entry:
        hosts = client_of(home)
        async with asyncio.timeout(BOUND), aclosing(hosts.follow_status(entry)) as statuses:
            assert await state_of(statuses) == READY
            await hosts.command(entry, message("deploy"), LAPTOP)
            assert await state_of(statuses) == WORKING
            asking = await anext(statuses)
            assert (asking.state, asking.why, asking.source) == (WAITING, "asks: Deploy?", "script")
            assert await hosts.status(entry) == asking

            await hosts.command(entry, AnswerQuestion(verdict="allow"), LAPTOP)
            assert [await state_of(statuses), await state_of(statuses)] == [WORKING, READY]

            os.kill(entry.pid, signal.SIGKILL)
            assert [one.state async for one in statuses] == [EXITED]
        with pytest.raises(AgentNotResponding):
            await hosts.status(entry)
        hosts.close()


async def test_whoever_watches_a_host_sees_the_row_of_its_agent_change(home: Path) -> None:
    script = home / "script.toml"
    script.write_text(SCRIPT, encoding="utf-8")

    with scripted_host(home, script) as entry:
        hosts = client_of(home)

        async def until(state: str) -> Row:
            """Waits for a row in this state."""
            while True:
                row = row_of(entry, await anext(statuses), None)
                if row["state"] == state:
                    return row

        async with asyncio.timeout(BOUND), aclosing(hosts.watch_status(entry)) as statuses:
            await until("ready")
            await hosts.command(entry, message("deploy"), LAPTOP)
            asks = await until("asks")
            assert (asks["why"], asks["needs"][0]["from"]) == ("Deploy?", "key.laptop")

            await hosts.command(entry, AnswerQuestion(verdict="allow"), LAPTOP)
            done = await until("done")
            assert (done["why"], done["unread"]) == ("→ key.laptop: deployed", 1)

            os.kill(entry.pid, signal.SIGKILL)
            away = await until("away")
            assert (away["agent_state"], away["why"]) == (EXITED, "its host has ended, or cannot be reached")
        hosts.close()


async def test_a_follower_of_an_agent_sees_its_restart(home: Path) -> None:
    try:
        synapse(home, "start", "dummy", "--name", "ada", "--port", str(own_port()), "--no-instructions")
        entry = entry_of(home, "ada")
        hosts = client_of(home, return_seconds=BOUND)
        async with asyncio.timeout(2 * BOUND), aclosing(hosts.follow_status(entry)) as statuses:
            while await state_of(statuses) != READY:
                pass
            await asyncio.to_thread(synapse, home, "restart", entry.name)
            seen = [await state_of(statuses)]
            while seen[-1] != READY:
                seen.append(await state_of(statuses))
            assert seen[0] == EXITED
        hosts.close()
    finally:
        synapse(home, "stop", "--all", "--force")


async def test_bytes_go_both_ways_through_an_opened_terminal(home: Path) -> None:
    with dummy_host(home) as entry:
        hosts = client_of(home)
        async with asyncio.timeout(BOUND):
            terminal = await hosts.open_terminal(entry)
            await terminal.send(encode(Hello(80, 24)))
            await until_told(terminal, Role(types=True))
            await terminal.send(b"good morning\r")
            await until_shown(terminal, b"echo: good morning")

            await asyncio.to_thread(synapse, home, "stop", entry.name)
            while (said := await terminal.receive()) is not None:
                if isinstance(said, str) and isinstance(decode_to_viewer(said), Exited):
                    break
            assert await terminal.receive() is None
            with pytest.raises(ConnectionError):
                await terminal.send(b"x")
            await terminal.close()
            with pytest.raises(AgentNotResponding):
                await hosts.open_terminal(entry)


async def test_a_terminal_is_followed_by_offset(home: Path) -> None:
    with dummy_host(home) as entry:
        hosts = client_of(home)
        async with asyncio.timeout(BOUND):
            terminal = await hosts.follow_terminal(entry)
            wanted = Open(agent="", after=None, run="", columns=80, rows=24, types=True)
            await terminal.send(encode_from_viewer(HOST_TERMINAL, wanted))
            await terminal.send(encode_from_viewer(HOST_TERMINAL, Input(b"good morning\r")))
            shown = b""
            while b"echo: good morning" not in shown:
                data = await terminal.receive()
                assert data is not None, f"it was closed; it showed {shown!r}"
                frame = split(data)
                shown += frame.payload if frame.kind in (Kind.SNAPSHOT, Kind.OUTPUT) else b""
            await terminal.close()


async def test_an_agent_without_a_terminal_says_so(home: Path) -> None:
    with scripted_host(home) as entry:
        for connect in (client_of(home).open_terminal, client_of(home).follow_terminal):
            with pytest.raises(UnsupportedOperation, match="no terminal"):
                await connect(entry)


async def test_what_a_terminal_shows_is_read_once_for_each_version(home: Path) -> None:
    with dummy_host(home) as entry:
        hosts = client_of(home)
        async with asyncio.timeout(BOUND), aclosing(hosts.watch_status(entry)) as statuses:
            await hosts.command(entry, message("good morning"), LAPTOP)
            while row_of(entry, await anext(statuses), None)["state"] != "done":
                pass
            screen = await hosts.screen(entry, lines=100)
            assert screen is not None
            texts = ["".join(run[0] for run in line) for line in screen["lines"]]
            assert any("good morning" in text for text in texts), texts
            assert len(screen["lines"]) >= screen["rows"]

            assert await hosts.screen(entry, known=screen["version"]) is None
            terminal = await hosts.open_terminal(entry)
            await terminal.send(encode(Hello(80, 24)))
            await until_told(terminal, Role(types=True))
            await terminal.send(b"evening\r")
            await until_shown(terminal, b"echo: evening")
            later = await hosts.screen(entry, known=screen["version"])
            assert later is not None
            assert later["version"] != screen["version"]
            await terminal.close()
        hosts.close()


async def test_an_agent_without_a_terminal_has_no_screen(home: Path) -> None:
    hosts = client_of(home)
    with scripted_host(home) as entry, pytest.raises(UnsupportedOperation, match="no terminal"):
        await hosts.screen(entry)
    hosts.close()


async def test_nobody_reads_a_screen_over_the_port(home: Path) -> None:
    with dummy_host(home) as entry:
        answer = await asyncio.to_thread(request, HostAddress(port=entry.port), "GET", "/screen", timeout=BOUND)

    assert (answer.status, answer.body["error"]["code"]) == (403, "forbidden")


async def until_told(terminal: Channel, frame: Role) -> None:
    while (said := await terminal.receive()) is not None:
        if isinstance(said, str) and decode_to_viewer(said) == frame:
            return
    raise AssertionError(f"it was closed before it told {frame}")


async def until_shown(terminal: Channel, text: bytes) -> None:
    shown = b""
    while text not in shown:
        said = await terminal.receive()
        assert said is not None, f"it was closed; it showed {shown!r}"
        shown += said if isinstance(said, bytes) else b""


def synapse(home: Path, *arguments: str) -> None:
    command = [*COMMAND, *arguments]
    subprocess.run(command, env=environ(home), cwd=home, check=True, capture_output=True, timeout=BOUND)
