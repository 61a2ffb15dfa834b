"""What `synapse mcp` costs: its start, its memory, and the way of a message from a tool call to a program.

Beside it stands a Python that reads a line, writes one, and waits.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.delivery import Reports
from benchmarks.hosts import Host, temporary_home
from benchmarks.processes import SYNAPSE, peak_memory
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, at_most, within

TITLE = "The tools of MCP"

_MOST_TIMES = 1.5
_MOST_MS = 30
_TEXT = "please look at the parser again"
_NOTHING = (
    "import sys; sys.stdin.buffer.readline(); sys.stdout.buffer.write(b'{}\\n'); sys.stdout.buffer.flush(); "
    "sys.stdin.buffer.read()"
)


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home, home.host() as sender:
        # The receiver takes more messages of one agent than two agents may exchange in a minute.
        home.env["SYNAPSE_LOOP_LIMIT_PER_MINUTE"] = "0"
        reports = Reports(home.folder / "lines.report")
        home.write_profile("lines", "line_program.py", reports.path)
        env = {**home.env, "SYNAPSE_AGENT_ID": sender.agent_id, "SYNAPSE_SOCKET": sender.socket}
        contenders = {
            "mcp": lambda: _start([SYNAPSE, "mcp"], env, home.folder),
            "nothing": lambda: _start([sys.executable, "-c", _NOTHING], env, home.folder),
        }
        # The first time compiles what no other process has compiled yet.
        interleave(1, contenders)
        found = interleave(effort.commands, contenders)
        with home.host("lines") as receiver, _serving([SYNAPSE, "mcp"], env, home.folder) as server:
            for _ in range(3):
                _send(server, receiver, reports)
            sent = [_send(server, receiver, reports) for _ in range(effort.messages)]
            _ask(server, "send", to=receiver.agent_id, text=_TEXT, wait="answer")
            waited = peak_memory(server.pid)
    walls, peaks = ({name: [one[index] for one in costs] for name, costs in found.items()} for index in (0, 1))
    idle = Figure("a Python that waits", peaks["nothing"], "MB")
    return [
        at_most(
            _MOST_TIMES,
            Figure("synapse mcp, start → tools/list answered", walls["mcp"], "ms", 1000),
            Figure("a Python that answers a line", walls["nothing"], "ms", 1000),
        ),
        at_most(_MOST_TIMES, Figure("synapse mcp, peak memory", peaks["mcp"], "MB"), idle),
        at_most(2 * _MOST_TIMES, Figure("the same, after a call that waited", [waited], "MB"), idle),
        within(_MOST_MS, Figure("tool call send → submitted at a ready program", sent, "ms", 1000)),
    ]


@contextlib.contextmanager
def _serving(command: Sequence[str], env: Mapping[str, str], folder: Path) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def _start(command: Sequence[str], env: Mapping[str, str], folder: Path) -> tuple[float, float]:
    """Return the seconds until the first answer of a new process, and its peak memory then."""
    begun = time.perf_counter()
    with _serving(command, env, folder) as process:
        _exchange(process, "tools/list", {})
        return time.perf_counter() - begun, peak_memory(process.pid)


def _send(server: subprocess.Popen[bytes], receiver: Host, reports: Reports) -> float:
    """Return the seconds from a call to the proof that the program took the message, by the clock of this machine."""
    receiver.wait_ready()
    begun = time.time()
    said = _ask(server, "send", to=receiver.agent_id, text=_TEXT)
    task_id = said.removeprefix("task ")[:8]
    reports.wait()
    receiver.wait_completed(task_id)
    steps = {step["step"]: step["at"] for step in receiver.get(f"/tasks/{task_id}")["metadata"]["receipts"]}
    return datetime.fromisoformat(steps["submitted"]).astimezone(UTC).timestamp() - begun


def _ask(server: subprocess.Popen[bytes], tool: str, **arguments: str) -> str:
    """Call a tool and return the first block of its result."""
    result = _exchange(server, "tools/call", {"name": tool, "arguments": arguments})["result"]
    if result["isError"]:
        raise RuntimeError(f"{tool} was refused: {result}")
    return str(result["content"][0]["text"])


def _exchange(server: subprocess.Popen[bytes], method: str, params: dict[str, Any]) -> dict[str, Any]:
    assert server.stdin is not None
    assert server.stdout is not None
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    server.stdin.write(json.dumps(request).encode() + b"\n")
    server.stdin.flush()
    reply: dict[str, Any] = json.loads(server.stdout.readline())
    return reply
