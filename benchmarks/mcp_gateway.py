"""A tool call through the gateway, beside the official SDK's server with a tool that does nothing.

Ours makes the message durable before it answers. SYNAPSE_MCP_2_PYTHON is a Python that has version 2 of the SDK;
`scripts/clients` makes one.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.a2a import ECHO_SCRIPT
from benchmarks.hosts import temporary_home
from benchmarks.load import ID, Connection, with_id
from benchmarks.processes import running, wait_until
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, at_least, at_most, beside
from benchmarks.windows import Window, measure, post

TITLE = "MCP at the gateway"
PEER = os.environ.get("SYNAPSE_MCP_2_PYTHON", "")
_ACCEPT = {"Accept": "application/json, text/event-stream"}
_WHAT = "`tools/call send` that does not wait, durable, through the gateway to another process"

_NOTHING = "SDK, a tool that does nothing"


def run(effort: Effort) -> list[Row]:
    if not PEER:
        return [Row(what=_WHAT, measured="left out", beside="needs the SDK that `scripts/clients` installs")]
    with temporary_home() as home, home.scripted(ECHO_SCRIPT) as host, home.gateway() as gateway:
        path = home.folder / "peer.sock"
        # -P: beside the program lies `mcp.py`, which has the name of the SDK.
        program = str(Path(__file__).with_name("mcp_sdk_app.py"))
        with running([PEER, "-P", program, str(path)], home.with_path(), home.folder) as peer:
            wait_until(partial(_listens, str(path)), "the SDK listens")
            call = _send(host.name)
            timed = {
                "gateway": partial(_seconds, Connection(gateway.socket), call),
                "SDK": partial(_seconds, Connection(str(path)), call),
            }
            for one in timed.values():
                one()
            found = interleave(effort.messages, timed)
            seconds = effort.window_seconds
            windows: dict[str, list[Window]] = interleave(
                effort.windows,
                {
                    "gateway": partial(measure, gateway.socket, (gateway.pid, host.pid), call, seconds),
                    "SDK": partial(measure, str(path), peer.pid, call, seconds),
                },
            )
    return [
        beside(Figure(_WHAT, found["gateway"], "ms", 1000), Figure(_NOTHING, found["SDK"], "ms", 1000)),
        at_least(
            1,
            Figure("the same, 32 at once", [one.per_second for one in windows["gateway"]], "/s"),
            Figure(_NOTHING, [one.per_second for one in windows["SDK"]], "/s"),
        ),
        at_most(
            1,
            Figure(
                "processor time of one, in the gateway and the host",
                [one.processor for one in windows["gateway"]],
                "ms",
                1000,
            ),
            Figure(_NOTHING, [one.processor for one in windows["SDK"]], "ms", 1000),
        ),
    ]


def _listens(path: str) -> bool:
    try:
        Connection(path).socket.close()
    except OSError:
        return False
    return True


def _send(to: str) -> bytes:
    arguments = {"to": to, "text": "please look at the parser again", "idempotency_key": ID.decode()}
    params: dict[str, Any] = {"name": "send", "arguments": arguments}
    return post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, _ACCEPT)


def _seconds(connection: Connection, request: bytes) -> float:
    begun = time.perf_counter()
    connection.ask(with_id(request, time.monotonic_ns()))
    while not connection.take_answer():
        pass
    taken = time.perf_counter() - begun
    if b'"isError":false' not in connection.body.replace(b" ", b""):
        raise RuntimeError(connection.body.decode())
    return taken
