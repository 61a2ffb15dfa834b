"""Standard A2A beside the official SDK: an agent that answers at once, asked in the same words over the same server.

Ours makes every message and every answer durable. The SDK keeps its tasks in memory, or in SQLite.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.hosts import Home, temporary_home
from benchmarks.load import ID, Connection, with_id
from benchmarks.processes import running, wait_until
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, at_least, at_most, beside, within
from benchmarks.windows import Window, measure, post

TITLE = "Standard A2A"
ECHO_SCRIPT = '[default]\nsteps = [{ answer = "{text}" }]\n'
VERSION = {"A2A-Version": "1.0"}

_ANSWER_SECONDS = 20.0
_READ_SIZE = 65536
_MESSAGE = {
    "messageId": ID.decode(),
    "role": "ROLE_USER",
    "parts": [{"text": "please look at the parser again"}],
}
REST = post("/message:send", {"message": _MESSAGE}, VERSION)


def call(method: str, params: dict[str, Any], path: str = "/") -> bytes:
    """A JSON-RPC request."""
    return post(path, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, VERSION)


RPC = call("SendMessage", {"message": _MESSAGE})
STREAM = call("SendStreamingMessage", {"message": _MESSAGE})


@dataclass(frozen=True, slots=True)
class Server:
    """Something that speaks A2A at a Unix socket."""

    socket: str
    pid: int


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home, _servers(home) as servers:
        windows = interleave(effort.windows, _contenders(servers, effort.window_seconds))
        # What a request costs drifts with whatever else the machine does, so the two stand side by side, more often.
        costs = interleave(2 * effort.windows, _side_by_side(servers, effort.window_seconds))
        first = interleave(effort.messages, {name: partial(_first_event, one) for name, one in _spoken(servers)})
    return _rows(windows, costs, first)


@contextlib.contextmanager
def _servers(home: Home) -> Generator[dict[str, Server]]:
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(home.scripted(ECHO_SCRIPT))
        servers = {"Synapse": Server(host.socket, host.pid)}
        database = str(home.folder / "sdk.db")
        peers = {"SDK": ("sdk_app",), "SDK with SQLite": ("sdk_app", database), "echo": ("echo_app",)}
        for name, (module, *more) in peers.items():
            path = home.folder / f"{len(servers)}.sock"
            command = [sys.executable, "-m", f"benchmarks.{module}", str(path), *more]
            process = stack.enter_context(running(command, home.with_path(), home.folder))
            wait_until(path.exists, f"{name} listens")
            servers[name] = Server(str(path), process.pid)
        # The SDK makes its table when it is first asked, and two that are asked at once stumble over each other.
        _sent(servers["SDK with SQLite"])
        yield servers


def _spoken(servers: dict[str, Server]) -> list[tuple[str, Server]]:
    return [(name, servers[name]) for name in ("Synapse", "SDK")]


def _contenders(servers: dict[str, Server], seconds: float) -> dict[str, Callable[[], Window]]:
    def loaded(name: str, request: bytes) -> Callable[[], Window]:
        return partial(measure, servers[name].socket, servers[name].pid, request, seconds)

    found = {f"{name} JSON-RPC": loaded(name, RPC) for name in ("Synapse", "SDK", "SDK with SQLite")}
    found |= {f"{name} REST": loaded(name, REST) for name in ("Synapse", "SDK")}
    for name, server in _spoken(servers):
        found[f"{name} GetTask"] = partial(_get_a_new_one, server, seconds)
        found[f"{name} GetTask of old"] = loaded(name, call("GetTask", {"id": _sent(server)}))
    return found


def _side_by_side(servers: dict[str, Server], seconds: float) -> dict[str, Callable[[], Window]]:
    # The same bytes, so that the same is parsed.
    requests = {"Synapse": RPC, "echo": RPC.replace(b"POST / ", b"POST /tasks/send ")}
    return {
        name: partial(measure, servers[name].socket, servers[name].pid, request, seconds)
        for name, request in requests.items()
    }


def _get_a_new_one(server: Server, seconds: float) -> Window:
    return measure(server.socket, server.pid, call("GetTask", {"id": _sent(server)}), seconds)


def _sent(server: Server) -> str:
    """Send a message; return the id of its task."""
    connection = Connection(server.socket)
    connection.ask(with_id(RPC, time.monotonic_ns()))
    while not connection.take_answer():
        pass
    return str(json.loads(connection.body)["result"]["task"]["id"])


def _first_event(server: Server) -> float:
    """Seconds from a message to the first event of what becomes of it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        begun = time.perf_counter()
        connection.connect(server.socket)
        connection.sendall(with_id(STREAM, time.monotonic_ns()))
        received = b""
        while b"data:" not in received:
            data = connection.recv(_READ_SIZE)
            if not data:
                raise ConnectionError(f"the stream ended without an event: {received.decode()}")
            received += data
        return time.perf_counter() - begun


def _rows(windows: dict[str, list[Window]], costs: dict[str, list[Window]], first: dict[str, list[float]]) -> list[Row]:
    def speed(name: str, shown: str = "") -> Figure:
        return Figure(shown or name, [window.per_second for window in windows[name]], "/s")

    def used(some: list[Window], shown: str) -> Figure:
        return Figure(shown, [window.processor for window in some], "ms", 1000)

    sent = speed("Synapse JSON-RPC", "durable SendMessage, JSON-RPC, 32 at once")
    return [
        at_least(5, sent, speed("SDK JSON-RPC", "SDK, in memory")),
        at_least(5, speed("Synapse REST", "durable SendMessage, REST"), speed("SDK REST", "SDK, in memory")),
        at_least(30, sent, speed("SDK with SQLite JSON-RPC", "SDK, in SQLite")),
        at_most(4, used(costs["Synapse"], "processor time of a durable SendMessage"), used(costs["echo"], "POST echo")),
        beside(used(windows["Synapse JSON-RPC"], "the same"), used(windows["SDK JSON-RPC"], "SDK, in memory")),
        at_least(2, speed("Synapse GetTask", "GetTask, JSON-RPC"), speed("SDK GetTask", "SDK, in memory")),
        beside(
            speed("Synapse GetTask of old", "GetTask of one behind thousands, from the store"),
            speed("SDK GetTask of old", "SDK, in memory"),
        ),
        within(
            5,
            Figure("SendStreamingMessage → first event", first["Synapse"], "ms", 1000),
            Figure("SDK", first["SDK"], "ms", 1000),
        ),
    ]
