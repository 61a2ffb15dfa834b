"""A thousand WebSocket clients on one gateway: each sees the events of its own tasks, all of them and once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.hosts import temporary_home
from benchmarks.processes import SYNAPSE, memory, running, wait_until
from benchmarks.rows import QUICK, Effort, Figure, Row, within
from synapse.auth.api_keys import Grant, KeyFile
from synapse.config.process import SystemClock
from synapse.core.agent import entry_from

TITLE = "WebSocket clients of one gateway"
GROWTH_LIMIT_MB = 8.0
"""What a gateway may need more after each further round of as many tasks, on average."""
_KEYS = 20
_AGENTS = 4
_AT_ONCE = 50
_PATIENCE_SECONDS = 240.0
_EXPECTED = ["task.created", "task.updated", "task.updated", "task.updated", "task.completed"]
_SCRIPT = """
[default]
steps = [{ artifact = "answer", chunks = ["You said: ", "{text}"] }]
"""
_AGENT = """
[[agents]]
id = "agent-{number}"
driver = "scripted"
script = "{script}"
"""


@dataclass(slots=True)
class Client:
    """One connection, and what it was told in the round that runs."""

    number: int
    socket: ClientConnection
    frames: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    last_seq: int = 0

    async def ask(self, text: str) -> None:
        self.frames.clear()
        message = [{"type": "text", "content": text}]
        frame = {"type": "message", "agentId": f"agent-{self.number % _AGENTS}", "message": message, "messageId": text}
        await self.socket.send(json.dumps(frame))
        while not self.frames or self.frames[-1]["type"] not in ("task.completed", "task.failed", "error"):
            self.frames.append(json.loads(await self.socket.recv()))

    def faults(self, text: str) -> int:
        """What is missing, foreign, repeated or out of order."""
        tasks = {frame.get("taskId") or frame["task"]["id"] for frame in self.frames if frame["type"] != "error"}
        seqs = [self.last_seq, *(frame["seq"] for frame in self.frames)]
        self.last_seq = seqs[-1]
        told = self.frames[-1].get("task", {}).get("artifacts", [{}])[0].get("content", [{}])[0].get("content")
        return sum(
            (
                [frame["type"] for frame in self.frames] != _EXPECTED,
                len(tasks) != 1,
                seqs != sorted(set(seqs)),
                told != f"You said: {text}",
            )
        )


def run(effort: Effort) -> list[Row]:
    """Let all clients talk, round by round."""
    clients, rounds = (100, 3) if effort is QUICK else (1000, 6)
    with temporary_home() as home:
        script = home.folder / "agent.toml"
        script.write_text(_SCRIPT, encoding="utf-8")
        config = "[rate_limit]\nrequests_per_minute = 0\n" + "".join(
            _AGENT.format(number=number, script=script) for number in range(_AGENTS)
        )
        (home.folder / "gateway.toml").write_text(config, encoding="utf-8")
        state = Path(home.env["SYNAPSE_HOME"])
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        keys = KeyFile(state, SystemClock())
        texts = [keys.create(f"key-{number}", Grant())[1] for number in range(_KEYS)]
        argv = [SYNAPSE, "gateway", "--port", "0", "--config", str(home.folder / "gateway.toml")]
        with running(argv, home.env, home.folder) as process:
            port = _port(state, process.pid)
            return asyncio.run(_talk(port, process.pid, texts, clients, rounds))


async def _talk(port: int, pid: int, keys: list[str], count: int, rounds: int) -> list[Row]:
    seconds: list[float] = []
    megabytes: list[float] = []
    faults: Counter[int] = Counter()
    async with asyncio.timeout(_PATIENCE_SECONDS), AsyncExitStack() as sockets:
        clients = await _connected(sockets, port, keys, count)
        for number in range(rounds):
            begun = time.perf_counter()
            await asyncio.gather(*(client.ask(f"{number}:{client.number}") for client in clients))
            seconds.append(time.perf_counter() - begun)
            faults[0] += sum(client.faults(f"{number}:{client.number}") for client in clients)
            megabytes.append(memory(pid))
    growth = (megabytes[-1] - megabytes[1]) / max(rounds - 2, 1)
    return [
        within(0, Figure(f"{count:,} clients, {rounds} tasks each: events lost, repeated, foreign", [faults[0]], "")),
        within(GROWTH_LIMIT_MB, Figure(f"memory for each further {count:,} tasks", [growth], "MB")),
        Row(what=f"{count:,} clients connected and heard", measured=f"{megabytes[-1]:.0f} MB"),
        Row(what=f"{count:,} tasks at once, from the first message to the last end", measured=f"{min(seconds):.1f} s"),
    ]


async def _connected(sockets: AsyncExitStack, port: int, keys: list[str], count: int) -> list[Client]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def open_one(number: int) -> Client:
        headers = {"Authorization": f"Bearer {keys[number % len(keys)]}"}
        async with gate:
            connecting = connect(f"ws://localhost:{port}/ws", additional_headers=headers, open_timeout=60)
            return Client(number, await sockets.enter_async_context(connecting))

    return list(await asyncio.gather(*(open_one(number) for number in range(count))))


def _port(state: Path, pid: int) -> int:
    ports: list[int] = []

    def found() -> bool:
        for file in (state / "gateways").glob("[!.]*.json"):
            entry = entry_from(json.loads(file.read_text(encoding="utf-8")))
            if entry is not None and entry.pid == pid:
                ports.append(entry.port)
        return bool(ports)

    wait_until(found, "the gateway listens")
    return ports[0]
