"""Terminals of real agents through a real gateway: late viewers, resumed ones, slow ones, and those who may not."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from synapse.attach.output_ring import KEPT_BYTES
from synapse.attach.terminal_frames import MAX_IN_FLIGHT, Kind
from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.conformance.real_hosts import COMMAND, PATIENCE, dummy_host, environ
from tests.integration.gateway.terminal_client import ShownTerminal, terminal_page

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Served:
    """A gateway before an agent `ada` with a terminal and `tck` without; `key` may attach."""

    gateway: RunningGateway
    key: str

    @property
    def port(self) -> int:
        return self.gateway.entry.port

    @property
    def home(self) -> Path:
        return self.gateway.home


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder:
        home = Path(folder)
        with dummy_host(home), gateway(home) as running:
            yield Served(running, new_key(home, "page", "--actions", "all"))


async def test_a_late_viewer_sees_the_screen_and_types(served: Served) -> None:
    async with terminal_page(served.port, served.key) as page:
        first = page.terminal(1)
        await first.open("ada")
        await first.until(lambda: first.types is True, "the keyboard")
        await first.type("good morning\r")
        await first.shows("echo: good morning")
    async with terminal_page(served.port, served.key) as page:
        late = page.terminal(7)
        await late.open("ada", types=False)

        await late.shows("echo: good morning")

        assert late.snapshots == 1
        assert late.types is False


async def test_a_viewer_that_reconnects_gets_exactly_the_bytes_that_it_missed(served: Served) -> None:
    async with terminal_page(served.port, served.key) as page:
        staying, leaving = page.terminal(1), page.terminal(2)
        await staying.open("ada")
        await staying.until(lambda: staying.types is True, "the keyboard")
        await leaving.open("ada", types=False)
        await leaving.until(lambda: leaving.snapshots == 1, "a snapshot")
        begin = leaving.offset
        await leaving.close()
        await staying.type("lines 500\r")
        await staying.shows("line 500")

        async with terminal_page(served.port, served.key) as other:
            back = other.terminal(1)
            back.offset = begin
            await back.open("ada", after=begin, run=staying.run, types=False)
            await back.until(lambda: back.offset == staying.offset, "the output")

        assert back.snapshots == 0
        assert back.size == staying.size
        assert back.output == staying.output[len(staying.output) - len(back.output) :]
        assert b"line 250" in back.output


@pytest.mark.parametrize(("after", "run"), [(0, "another"), (10**12, ""), (0, "")])
async def test_an_offset_that_is_worth_nothing_gets_a_snapshot(served: Served, after: int, run: str) -> None:
    async with terminal_page(served.port, served.key) as page:
        terminal = page.terminal(1)
        await terminal.open("ada", after=after, run=run, types=False)

        await terminal.until(lambda: terminal.snapshots == 1, "a snapshot")


async def test_a_viewer_that_gives_no_credit_gets_a_snapshot_instead_of_a_backlog(served: Served) -> None:
    async with terminal_page(served.port, served.key) as page:
        quick, slow = page.terminal(1), page.terminal(2)
        slow.gives_credit = False
        await quick.open("ada")
        await slow.open("ada", types=False)
        await quick.until(lambda: quick.types is True and slow.size == (100, 30), "the keyboard")
        begin, snapshots = slow.offset, slow.snapshots
        await quick.type("lines 150000\r")
        await quick.shows("line 150000")
        await quick.type("marker\r")
        await quick.shows("echo: marker")
        await page.terminal(3).ping()
        await slow.until(lambda: page.pongs > 0, "a pong")
        assert slow.snapshots == snapshots
        assert slow.offset - begin <= MAX_IN_FLIGHT
        assert quick.offset - slow.offset > 2 * KEPT_BYTES

        await slow.credit()
        await slow.shows("echo: marker")

        assert slow.snapshots == snapshots + 1
        assert slow.offset == quick.offset
        assert slow.screen.redraw() == quick.screen.redraw()


async def test_one_viewer_types_until_another_takes_the_keyboard(served: Served) -> None:
    async with (
        terminal_page(served.port, served.key) as here,
        terminal_page(served.port, served.key) as there,
    ):
        first, second = here.terminal(1), there.terminal(1)
        await first.open("ada")
        await first.until(lambda: first.types is True, "the keyboard")
        await second.open("ada")
        await second.until(lambda: second.types is False, "a role")
        await second.type("not mine\r")
        await second.take()
        await second.until(lambda: second.types is True, "the keyboard")
        await first.until(lambda: first.types is False, "the loss of it")
        await second.resize(120, 33)
        await second.type("mine\r")
        await first.shows("echo: mine")
        assert "not mine" not in first.text
        await first.until(lambda: first.size == (120, 33), "the size of who types")

        await there.socket.close()

        await first.until(lambda: first.types is True, "the keyboard back")
        await first.until(lambda: first.size == (100, 30), "its own size")


async def test_a_narrow_window_gets_eighty_columns(served: Served) -> None:
    async with terminal_page(served.port, served.key) as page:
        terminal = page.terminal(1)
        await terminal.open("ada")
        await terminal.resize(31, 12)

        await terminal.until(lambda: terminal.size == (80, 12), "eighty columns")


async def test_a_restarted_host_is_lost_then_shown_again(served: Served) -> None:
    async with terminal_page(served.port, served.key) as page:
        terminal = page.terminal(1)
        await terminal.open("ada")
        await terminal.until(lambda: terminal.types is True, "the keyboard")
        await terminal.type("before\r")
        await terminal.shows("echo: before")
        run = terminal.run

        restart = [*COMMAND, "restart", "ada"]
        await asyncio.to_thread(
            subprocess.run, restart, env=environ(served.home), check=True, capture_output=True, timeout=PATIENCE
        )

        await terminal.until(lambda: terminal.run != run, "a snapshot of another run")
        assert terminal.lost == 1
        assert "echo: before" not in terminal.text
        await terminal.until(lambda: terminal.types is True, "the keyboard")
        await terminal.type("after\r")
        await terminal.shows("echo: after")


async def test_a_revoked_key_ends_the_connection(served: Served) -> None:
    key = new_key(served.home, "passing", "--actions", "all")
    async with terminal_page(served.port, key) as page:
        terminal = page.terminal(1)
        await terminal.open("ada", types=False)
        await terminal.until(lambda: terminal.snapshots == 1, "a snapshot")

        revoke = [*COMMAND, "keys", "revoke", "passing"]
        await asyncio.to_thread(
            subprocess.run, revoke, env=environ(served.home), check=True, capture_output=True, timeout=PATIENCE
        )

        async with asyncio.timeout(PATIENCE):
            await page.socket.wait_closed()
        assert page.socket.close_code == 1008


async def refusal(served: Served, key: str) -> int:
    with pytest.raises(InvalidStatus) as refused:
        async with terminal_page(served.port, key):
            pass
    return refused.value.response.status_code


async def test_only_those_who_may_attach_get_a_connection(served: Served) -> None:
    ordinary = new_key(served.home, "ordinary")
    reader = new_key(served.home, "reader", "--actions", "read,approve")

    assert await refusal(served, "") == 401
    assert await refusal(served, "wrong") == 401
    assert await refusal(served, ordinary) == 403
    assert await refusal(served, reader) == 403


async def told_error(terminal: ShownTerminal) -> str:
    await terminal.until(lambda: bool(terminal.errors), "an error")
    return str(terminal.errors[0]["code"])


async def test_agents_without_a_terminal_and_agents_that_are_not_there(served: Served) -> None:
    limited = new_key(served.home, "limited", "--actions", "attach", "--agents", "tck")
    async with terminal_page(served.port, served.key) as page, terminal_page(served.port, limited) as other:
        scripted, missing, foreign = page.terminal(1), page.terminal(2), other.terminal(3)
        await scripted.open("tck")
        await missing.open("nobody")
        await foreign.open("ada")

        assert await told_error(scripted) == "unsupported_operation"
        assert await told_error(missing) == "agent_not_found"
        assert await told_error(foreign) == "agent_not_found"


async def test_hostile_frames_get_errors_and_the_connection_goes_on(served: Served) -> None:
    header = struct.Struct(">BIQ")
    hostile: list[str | bytes] = [
        "text",
        b"",
        b"\x01",
        header.pack(99, 1, 0),
        header.pack(Kind.SNAPSHOT, 1, 0) + b"{}\n",
        header.pack(Kind.OPEN, 1, 0) + b"\xff\xfe",
        header.pack(Kind.OPEN, 1, 0) + b"[" * 4000,
        header.pack(Kind.OPEN, 1, 0) + b'{"agent": 5, "columns": 80, "rows": 24}',
        header.pack(Kind.OPEN, 1, 0) + b'{"agent": "ada", "columns": 1e9, "rows": 24}',
        header.pack(Kind.OPEN, 1, 0) + b'{"agent": "ada", "columns": 80, "rows": 24, "after": -1}',
        header.pack(Kind.OPEN, 1, 0) + b'{"agent": "../ada\\u0000", "columns": 80, "rows": 24}',
        header.pack(Kind.INPUT, 4, 0) + b"keys of nobody",
        header.pack(Kind.INPUT, 1, 0) + b"x" * 70_000,
        header.pack(Kind.RESIZE, 4, 0) + b'{"columns": 80, "rows": 24}',
        header.pack(Kind.TAKE, 4, 2**63),
    ]
    async with terminal_page(served.port, served.key) as page:
        for frame in hostile:
            await page.socket.send(frame)
        answers = [page.terminal(number) for number in (0, 1, 4)]
        await answers[0].until(lambda: sum(len(one.errors) for one in answers) == len(hostile), "all errors")
        assert {error["code"] for one in answers for error in one.errors} == {"invalid_request", "agent_not_found"}

        good = page.terminal(9)
        await good.open("ada", types=False)
        await good.until(lambda: good.snapshots == 1, "a snapshot")


async def test_a_connection_shows_a_bounded_number_of_terminals(served: Served) -> None:
    async with terminal_page(served.port, served.key) as page:
        for number in range(33):
            await page.terminal(number).open("ada", types=False)

        assert await told_error(page.terminal(32)) == "queue_full"
        await page.terminal(31).until(lambda: page.terminal(31).snapshots == 1, "a snapshot")


async def test_a_browser_gets_the_subprotocol_that_it_offers(served: Served) -> None:
    url = f"ws://localhost:{served.port}/dashboard/terminals"
    async with connect(
        url,
        additional_headers={"Authorization": f"Bearer {served.key}"},
        subprotocols=[Subprotocol("synapse.terminals")],
    ) as socket:
        assert socket.subprotocol == "synapse.terminals"


def resident(pid: int) -> float:
    """The memory of a process in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


FLOOD = """
title = "Flood"
command = ["{python}", "-I", "-c", "import sys\\nfor line in sys.stdin: \\n block = b'the quick brown fox jumps over the lazy dog 0123456789' * 20 + bytes([10])\\n for _ in range(int(line)): sys.stdout.buffer.write(block)\\n sys.stdout.buffer.flush(); print('done'); sys.stdout.flush()"]
[prompt]
pattern = '^> (?P<text>.*)$'
"""  # noqa: E501 - one line of TOML


async def test_a_flood_of_200_megabytes_costs_no_memory_and_the_other_terminal_answers(served: Served) -> None:
    profile = served.home / "config" / "synapse" / "profiles" / "flood.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(FLOOD, encoding="utf-8")
    env = environ(served.home) | {"XDG_CONFIG_HOME": str(served.home / "config")}
    start = [*COMMAND, "start", "flood", "--name", "noah", "--no-instructions"]
    await asyncio.to_thread(subprocess.run, start, env=env, check=True, capture_output=True, timeout=PATIENCE)
    async with terminal_page(served.port, served.key) as page:
        flooded, quiet, deaf = page.terminal(1), page.terminal(2), page.terminal(3)
        deaf.gives_credit = False
        await flooded.open("noah")
        await quiet.open("ada")
        await deaf.open("noah", types=False)
        await flooded.until(lambda: flooded.types is True and quiet.types is True, "both keyboards")
        await flooded.type("1000\r")
        await flooded.shows("done")
        before = resident(served.gateway.process.pid)

        await flooded.type("190000\r")
        for number in range(20):
            await quiet.type(f"number {number}\r")
            await quiet.shows(f"echo: number {number}")
        begin = flooded.offset
        await flooded.until(lambda: flooded.offset - begin > 190_000_000 and "done" in flooded.text, "the end")

        assert resident(served.gateway.process.pid) - before < 24
        assert flooded.snapshots > 1


async def test_the_connection_ends_with_the_gateway(served: Served) -> None:
    with gateway(served.home, IN_PROCESS.replace("tck", "tick")) as second:
        async with terminal_page(second.entry.port, served.key) as page:
            terminal = page.terminal(1)
            await terminal.open("ada", types=False)
            await terminal.until(lambda: terminal.snapshots == 1, "a snapshot")
            second.process.terminate()
            async with asyncio.timeout(PATIENCE):
                await page.socket.wait_closed()
            with pytest.raises(ConnectionClosed):
                await terminal.ping()
