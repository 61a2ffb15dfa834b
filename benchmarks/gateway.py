"""What the gateway costs: beside an agent's own host, and with very many readers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from typing import Any

from benchmarks.a2a import ECHO_SCRIPT, RPC, call
from benchmarks.hosts import Host, temporary_home
from benchmarks.load import Connection
from benchmarks.processes import memory
from benchmarks.rounds import interleave
from benchmarks.rows import QUICK, Effort, Figure, Row, within
from benchmarks.windows import ROOT, Window, measure

TITLE = "The gateway"
READERS, FEW_READERS = 1000, 100
_ROUNDS = 4
_WORDS = 20
_STREAM_SCRIPT = f"""\
[[rule]]
text = "begin"
steps = [
  {{ ask = "shall I?" }},
  {{ stream = {json.dumps([f"word {number}" for number in range(_WORDS)])}, every = 0.05 }},
  {{ answer = "done" }},
]
"""


def run(effort: Effort) -> list[Row]:
    return [_added(effort), *_many_readers(FEW_READERS if effort is QUICK else READERS)]


def _added(effort: Effort) -> Row:
    with temporary_home() as home, home.scripted(ECHO_SCRIPT) as host, home.gateway() as gateway:
        request = RPC.replace(b"POST / ", f"POST {_mount(host)} ".encode())
        found: dict[str, list[Window]] = interleave(
            effort.windows,
            {
                "host": partial(measure, host.socket, host.pid, RPC, effort.window_seconds),
                "gateway": partial(measure, gateway.socket, (gateway.pid, host.pid), request, effort.window_seconds),
            },
        )
    alone = Figure("SendMessage at the host", [window.processor for window in found["host"]], "ms", 1000)
    added = [window.processor - alone.value for window in found["gateway"]]
    return within(1.5, Figure("processor time that the gateway adds to a SendMessage", added, "ms", 1000), alone)


def _many_readers(readers: int) -> list[Row]:
    with temporary_home() as home, home.scripted(_STREAM_SCRIPT) as host, home.gateway() as gateway:
        sizes: list[float] = []
        whole: list[bool] = []
        for _ in range(_ROUNDS):
            whole.append(_round(gateway, host, readers))
            sizes.append(memory(gateway.pid))
    grown = sizes[-1] - sizes[1]
    shown = " → ".join(f"{size:.1f}" for size in sizes)
    return [
        Row(
            what=f"{readers:,} readers of one task: each had all {_WORDS} words and the end, {_ROUNDS} times over",
            measured=f"{sum(whole)} of {_ROUNDS} whole",
            target="all whole",
            reached=all(whole),
        ),
        Row(
            what="memory after each time",
            measured=f"{shown} MB",
            target="flat after the second: ≤ 5 MB",
            reached=grown <= 5,
        ),
    ]


def _round(gateway: Host, host: Host, readers: int) -> bool:
    """Let all of them follow one task from before its first word; whether they all had the same, and all of it."""
    task = _asked(gateway, host, "SendMessage", {"message": _message("begin")})["task"]
    command = [sys.executable, "-m", "benchmarks.subscribers", gateway.socket, str(readers)]
    request = call("SubscribeToTask", {"id": task["id"]}, _mount(host))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as following:
        if following.stdin is None or following.stdout is None:
            raise RuntimeError("it was started with pipes")
        following.stdin.write(request)
        following.stdin.close()
        following.stdout.readline()
        _asked(gateway, host, "SendMessage", {"message": _message("yes", task["id"])})
        had = json.loads(following.stdout.read())
    # The first event shows the task as it is; after it come the words, the answer and the end, among others.
    return len(had) == 1 and len(had[0][0].split()) >= 1 + _WORDS + 2


def _asked(gateway: Host, host: Host, method: str, params: dict[str, Any]) -> dict[str, Any]:
    connection = Connection(gateway.socket)
    connection.ask(call(method, params, _mount(host)))
    while not connection.take_answer():
        pass
    result: dict[str, Any] = json.loads(connection.body)["result"]
    return result


def _mount(host: Host) -> str:
    return f"/agents/{host.name}/v1"


def _message(text: str, task_id: str = "") -> dict[str, Any]:
    named = {"taskId": task_id} if task_id else {}
    return {"messageId": f"m-{time.monotonic_ns()}", "role": "ROLE_USER", "parts": [{"text": text}], **named}
