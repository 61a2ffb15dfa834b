"""`synapse top` with 100 agents: what it costs while nothing happens, and how soon a host's event is on the screen.

The hosts are fakes in this process: they speak the stream of statuses over Unix sockets. The app runs in a terminal of
its own, as a person runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.hosts import Home, temporary_home
from benchmarks.processes import SYNAPSE, processor_seconds
from benchmarks.rows import Effort, Figure, Row, within
from benchmarks.terminals import Terminal, in_terminal
from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry, start_time

TITLE = "The overview in a terminal"
AGENTS = 100
_MOST_IDLE_PERCENT = 2.0
_MOST_EVENT_MS = 100.0
_SHOWN = 10
"""Which agents get events: the first ones are in view."""
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
_LONG_AGO = "2026-01-01T12:00:00Z"


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home, _serving(home) as hosts, _shown(home) as terminal:
        terminal.read_until(f"{AGENTS} agents".encode())
        terminal.rest(1.0)
        seconds = [_event(hosts, terminal, number) for number in range(effort.messages)]
        terminal.rest(1.0)
        idle = _idle_percent(terminal, effort.idle_seconds)
    return [
        within(_MOST_IDLE_PERCENT, Figure(f"{AGENTS} agents, processor while idle", [idle], "%")),
        within(_MOST_EVENT_MS, Figure(f"{AGENTS} agents, a host's event → its row on the screen", seconds, "ms", 1000)),
    ]


@contextlib.contextmanager
def _shown(home: Home) -> Generator[Terminal]:
    env = {**home.env, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    with in_terminal([SYNAPSE, "top"], env, home.folder) as terminal:
        yield terminal


def _event(hosts: FakeHosts, terminal: Terminal, number: int) -> float:
    """Returns the seconds from a change at a host until its new text is drawn."""
    words = f"event-{number}-end"
    begun = time.perf_counter()
    hosts.tell(number % _SHOWN, words)
    terminal.read_until(words.encode())
    return time.perf_counter() - begun


def _idle_percent(terminal: Terminal, seconds: float) -> float:
    begun, before = time.perf_counter(), processor_seconds(terminal.pid)
    terminal.rest(seconds)  # the clock in the title may be drawn meanwhile, which makes it longer
    return (processor_seconds(terminal.pid) - before) / (time.perf_counter() - begun) * 100


class FakeHosts:
    """All hosts on one event loop: each tells its status at once, and again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._streams: list[asyncio.Future[None]] = []
        self._texts = [f"write part {number}" for number in range(AGENTS)]
        self._changed = [asyncio.Event() for _ in range(AGENTS)]

    async def serve(self, listening: threading.Event) -> None:
        """Serves until `stop`."""
        self._loop = asyncio.get_running_loop()
        await self._listen()
        listening.set()
        await self._ended.wait()
        for changed in self._changed:
            changed.set()
        await asyncio.gather(*self._streams)

    def stop(self) -> None:
        self._call(self._ended.set)

    def tell(self, number: int, text: str) -> None:
        """Changes what an agent works on."""
        self._call(lambda: self._change(number, text))

    def _call(self, act: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(act)

    def _change(self, number: int, text: str) -> None:
        self._texts[number] = text
        self._changed[number].set()

    async def _listen(self) -> None:
        registry, pid = FileRegistry(self._folder / "state" / "registry"), os.getpid()
        for number in range(AGENTS):
            path = str(self._folder / f"{number}.sock")
            await asyncio.start_unix_server(partial(self._answer, number), path)
            entry = AgentEntry(f"synapse-dummy-{8100 + number}", "dummy", name=f"agent{number:02}", socket=path)
            entry.pid, entry.pid_started, entry.working_dir = pid, start_time(pid) or 0, str(self._folder)
            registry.write(entry)

    async def _answer(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = asyncio.get_running_loop().create_future()
        self._streams.append(over)
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_HEAD)
            while not self._ended.is_set():
                self._changed[number].clear()
                writer.write(b"event: status\ndata: " + json.dumps(self._status(number)).encode() + b"\n\n")
                await writer.drain()
                await self._changed[number].wait()
        finally:
            over.set_result(None)

    def _status(self, number: int) -> dict[str, Any]:
        task = {
            "id": f"{number:08x}-1111-4111-8111-111111111111",
            "status": "working",
            "message": {"role": "user", "parts": [{"type": "text", "text": self._texts[number]}]},
            "metadata": {"receipt": "turn_started", "sender": {"sender_id": "user"}, "sender_verified": True},
        }
        return {"state": "working", "why": "", "source": "hook", "since": _LONG_AGO, "current_task": task}


@contextlib.contextmanager
def _serving(home: Home) -> Generator[FakeHosts]:
    hosts, listening = FakeHosts(home.folder), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(hosts.serve(listening)), daemon=True)
    thread.start()
    listening.wait(20)
    try:
        yield hosts
    finally:
        hosts.stop()
        thread.join()
