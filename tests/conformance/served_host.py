"""The HTTP server of a host on real sockets, in a thread of its own, with any service."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts
from synapse.core.agent import AgentEntry
from synapse.core.service import Handler
from synapse.dialects.dialect import Dialect
from synapse.dialects.synapse.routes import CardFacts, synapse_dialect
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.http import Server
from synapse.server.listener import UnixListener, bind_port
from synapse.server.websocket import ForEveryCaller, WebSocketHandler


@dataclass
class ServedHost:
    """A served host: its address, and the loop that it runs in."""

    entry: AgentEntry
    service: Any
    loop: asyncio.AbstractEventLoop
    stop: Callable[[], None]

    @property
    def port(self) -> int:
        return self.entry.port

    @property
    def socket(self) -> Path:
        return Path(self.entry.socket)


def no_agents() -> Sequence[AgentEntry]:
    return ()


async def nothing_to_read() -> None:
    """Reads nothing: the entries are known already."""


@contextmanager
def served(
    folder: Path,
    make_service: Callable[[AgentEntry], Handler],
    *,
    entries: Callable[[], Sequence[AgentEntry]] = no_agents,
    token: str = "",
    limits: HttpLimits | None = None,
    websockets: Mapping[str, WebSocketHandler | ForEveryCaller] | None = None,
) -> Generator[ServedHost]:
    """Serves until the end of the block."""
    tcp = bind_port(0)
    entry = entry_at(tcp.getsockname()[1], folder)
    unix = UnixListener(Path(entry.socket))
    auth = LocalAuth(uid=os.getuid(), hosts=loopback_hosts(entry.port), entries=entries, token=token)
    hosts: list[ServedHost] = []
    started = threading.Event()

    async def serve() -> None:
        service = make_service(entry)
        app = HttpApp(
            service,
            [dialect_of(entry)],
            admit=LocalAdmission(auth, nothing_to_read),
            websockets=websockets,
            limits=limits,
        )
        server = Server(app, [tcp, unix.socket])
        loop = asyncio.get_running_loop()
        hosts.append(ServedHost(entry, service, loop, lambda: void(loop.call_soon_threadsafe(server.stop))))
        serving = asyncio.ensure_future(server.serve())
        await server.wait_started()
        started.set()
        with suppress(asyncio.CancelledError):
            await serving

    thread = threading.Thread(target=run_in_loop, args=(serve(),), name=entry.agent_id)
    thread.start()
    try:
        assert started.wait(10)
        yield hosts[0]
    finally:
        if thread.is_alive():
            hosts[0].stop()
        thread.join(10)
        unix.close()
        assert not thread.is_alive()


def entry_at(port: int, folder: Path) -> AgentEntry:
    agent_id = f"synapse-dummy-{port}"
    return AgentEntry(
        agent_id,
        "dummy",
        port=port,
        pid=os.getpid(),
        socket=str(folder / f"{agent_id}.sock"),
        endpoint=f"http://localhost:{port}",
        inbox="dummy",
    )


def dialect_of(entry: AgentEntry) -> Dialect:
    return synapse_dialect(
        CardFacts(agent_id=entry.agent_id, agent_type=entry.agent_type, title="Dummy", url=entry.endpoint)
    )


def run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def void(_handle: object) -> None:
    """Drops a result, so that a lambda returns nothing."""
