"""Terminals in browsers: what the gateway adds to a key's way, and what a hundred viewers cost the agent's pump."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from websockets.asyncio.client import ClientConnection, unix_connect

from benchmarks.hosts import Host, temporary_home
from benchmarks.processes import memory, wait_until
from benchmarks.rows import Effort, Figure, Row, at_most, beside, within
from synapse.attach.terminal_frames import Close, Credit, FromViewer, Input, Kind, Open, encode_from_viewer, split

TITLE = "Terminals in browsers"

_VIEWERS = 100
_KEY_LIMIT_MS = 5.0
_PUMP_LIMIT = 1.05
_FLAT_MB = 40.0
"""A hundred connections of any kind take about half of it."""
_AT_GATEWAY = "ws://localhost/dashboard/terminals"
_AT_HOST = "ws://localhost/terminal"
_PROFILE = "printing"
_FLOOD_SECONDS = 120.0


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home:
        home.write_profile(_PROFILE, "printer.py")
        with home.host(_PROFILE) as first, home.host(_PROFILE) as second, home.gateway() as gateway:
            first.wait_ready()
            second.wait_ready()
            return asyncio.run(_measure(effort, first, second, gateway))


async def _measure(effort: Effort, first: Host, second: Host, gateway: Host) -> list[Row]:
    keys = await _keys(effort, first, second, gateway)
    flooded = await _keys_during_flood(effort, first, second, gateway)
    pump = _pump_thread(first.pid, await _flood_costs(first, effort.megabytes))
    alone: list[float] = []
    viewed: list[float] = []
    sizes: list[float] = []
    # Many short floods in turns: what other processes do at the same time costs the thread as much as viewers do.
    for _ in range(effort.passes * 3):
        alone.append(await _pump_cost(first, pump, effort.megabytes // 5))
        async with _viewers(gateway, first.name, _VIEWERS):
            sizes.append(memory(gateway.pid))
            viewed.append(await _pump_cost(first, pump, effort.megabytes // 5))
            sizes.append(memory(gateway.pid))
    without = Figure("nobody views", _quietest(alone), "ms/MB", 1000)
    part = keys["gateway"].value - keys["host"].value
    return [
        within(_KEY_LIMIT_MS, Figure("key → echo: the gateway's part", [part], "ms", 1000), keys["host"]),
        beside(
            Figure(f"the same while another terminal prints {effort.megabytes} MB", flooded, "ms", 1000),
            keys["gateway"],
        ),
        at_most(_PUMP_LIMIT, Figure(f"pump's thread, {_VIEWERS} viewers", _quietest(viewed), "ms/MB", 1000), without),
        Row(
            what=f"memory of the gateway: {_VIEWERS} viewers → after {effort.passes * 3} floods",
            measured=f"{sizes[0]:.1f} → {sizes[-1]:.1f} MB",
            target=f"≤ {_FLAT_MB:g} MB more",
            reached=sizes[-1] - sizes[0] <= _FLAT_MB,
        ),
    ]


def _quietest(values: list[float]) -> list[float]:
    """The lower half: other processes only ever add to what a thread takes."""
    return sorted(values)[: (len(values) + 1) // 2]


async def _keys(effort: Effort, first: Host, second: Host, gateway: Host) -> dict[str, Figure]:
    """Type keys in turns, into one agent at its host and into another through the gateway."""
    async with (
        _viewer(first.socket, _AT_HOST, "") as direct,
        _viewer(gateway.socket, _AT_GATEWAY, second.name) as relayed,
    ):
        found: dict[str, list[float]] = {"host": [], "gateway": []}
        for _ in range(effort.keys):
            found["host"].append(await _key(direct))
            found["gateway"].append(await _key(relayed))
        for socket in (direct, relayed):
            await _say(socket, Input(b"\x15"))
    names = {"host": "at the host", "gateway": "through the gateway"}
    return {name: Figure(names[name], values, "ms", 1000) for name, values in found.items()}


async def _keys_during_flood(effort: Effort, first: Host, second: Host, gateway: Host) -> list[float]:
    """Type into one agent through the gateway while a viewer follows the flood of another as fast as it can."""
    async with _viewer(gateway.socket, _AT_GATEWAY, second.name) as typing, _viewers(gateway, first.name, 1):
        flood = asyncio.ensure_future(_flood(first, effort.megabytes))
        found: list[float] = []
        while not flood.done():
            found.append(await _key(typing))
            if len(found) % 40 == 0:
                await _say(typing, Input(b"\x15"))
        await flood
        await _say(typing, Input(b"\x15"))
    return found


async def _key(socket: ClientConnection) -> float:
    """Type a key; return how long its echo took."""
    begun = time.perf_counter()
    await _say(socket, Input(b"x"))
    while b"x" not in await _output(socket):
        pass
    return time.perf_counter() - begun


async def _flood_costs(host: Host, megabytes: int) -> dict[int, float]:
    """Return what each thread of the host uses for a flood."""
    before = _thread_seconds(host.pid)
    await _flood(host, megabytes)
    return {thread: used - before.get(thread, 0.0) for thread, used in _thread_seconds(host.pid).items()}


def _pump_thread(pid: int, costs: dict[int, float]) -> int:
    """Return the thread that moved the output: the busiest besides that of the event loop."""
    return max((thread for thread in costs if thread != pid), key=lambda thread: costs[thread])


async def _pump_cost(host: Host, pump: int, megabytes: int) -> float:
    return (await _flood_costs(host, megabytes))[pump] / megabytes


async def _flood(host: Host, megabytes: int) -> None:
    """Let the program print, seen by nobody; return when it asks again."""
    async with _viewer(host.socket, _AT_HOST, "") as socket:
        await _say(socket, Input(b"%d\r" % megabytes))
        # Its echo: the program has been given the line.
        while b"%d" % megabytes not in await _output(socket):
            pass
        await _say(socket, Close())
        await socket.wait_closed()
    await asyncio.to_thread(wait_until, host.is_ready, "the program asks again", _FLOOD_SECONDS)


def _thread_seconds(pid: int) -> dict[int, float]:
    """What each thread of a process has used of the processor."""
    return {
        int(folder.name): int((folder / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
        for folder in Path(f"/proc/{pid}/task").iterdir()
    }


@asynccontextmanager
async def _viewers(gateway: Host, agent: str, count: int) -> AsyncGenerator[None]:
    """Viewers who show what they get at once, and give credit for it."""
    async with AsyncExitStack() as stack:
        followers: list[asyncio.Task[None]] = []
        for _ in range(count):
            socket = await stack.enter_async_context(_viewer(gateway.socket, _AT_GATEWAY, agent, types=False))
            followers.append(asyncio.ensure_future(_follow(socket)))
        try:
            yield
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)


async def _follow(socket: ClientConnection) -> None:
    while True:
        await _output(socket)


@asynccontextmanager
async def _viewer(path: str, url: str, agent: str, *, types: bool = True) -> AsyncGenerator[ClientConnection]:
    """A viewer that has the terminal's first snapshot, and the keyboard if it types."""
    async with unix_connect(path, url, max_size=None, compression=None) as socket:
        await _say(socket, Open(agent=agent, after=None, run="", columns=100, rows=30, types=types))
        awaited = {Kind.SNAPSHOT, Kind.ROLE}
        while awaited:
            data = await socket.recv()
            frame = split(data)
            if frame.kind == Kind.ERROR:
                raise RuntimeError(frame.payload.decode())
            if frame.kind != Kind.ROLE or (b"true" in frame.payload) == types:
                awaited.discard(Kind(frame.kind))
        yield socket


async def _output(socket: ClientConnection) -> bytes:
    """The bytes of the next frame, if it shows something; gives credit for it."""
    frame = split(await socket.recv())
    if frame.kind != Kind.OUTPUT:
        return frame.payload if frame.kind == Kind.SNAPSHOT else b""
    await _say(socket, Credit(frame.offset + len(frame.payload)))
    return frame.payload


async def _say(socket: ClientConnection, said: FromViewer) -> None:
    await socket.send(encode_from_viewer(0, said))
