"""How many requests a host answers, beside a bare JSON echo on the same kind of server under the same load."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.hosts import Home, message, temporary_home
from benchmarks.load import ID
from benchmarks.processes import running, wait_until
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, at_least, beside
from benchmarks.windows import Window, get, measure, post

TITLE = "Requests"

_WARM_UP_SECONDS = 0.2
_TEXT = "please look at the parser again"

_POST = post("/tasks/send", {"message": message(_TEXT)})
_POST_WITH_ID = post("/tasks/send", {"message": {**message(_TEXT), "message_id": ID.decode()}})


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home, home.host() as host:
        host.keep_busy()
        peer = home.folder / "echo.sock"
        with running([sys.executable, "-m", "benchmarks.echo_app", str(peer)], home.with_path(), home.folder) as echo:
            wait_until(peer.exists, "the echo listens")
            seconds = effort.window_seconds
            one = get(f"/tasks/{host.send(_TEXT)}")
            contenders: dict[str, Callable[[], Window]] = {
                "POST": partial(_queue, home, _POST, seconds),
                "POST echo": partial(measure, str(peer), echo.pid, _POST, seconds),
                "POST with id": partial(_queue, home, _POST_WITH_ID, seconds),
                "GET": partial(measure, host.socket, host.pid, one, seconds),
                "GET echo": partial(measure, str(peer), echo.pid, one, seconds),
            }
            found = interleave(effort.windows, contenders)
        syncs = _syncs_per_second(home.folder)
    return _rows(found, syncs)


def _queue(home: Home, request: bytes, seconds: float) -> Window:
    """Fill the queue of a host of its own: with the queues of earlier windows it would be longer than any real one."""
    with home.host() as host:
        host.keep_busy()
        measure(host.socket, host.pid, request, _WARM_UP_SECONDS)
        return measure(host.socket, host.pid, request, seconds)


def _rows(found: dict[str, list[Window]], syncs: float) -> list[Row]:
    speed = {name: Figure(name, [window.per_second for window in windows], "/s") for name, windows in found.items()}
    used = {name: Figure(name, [window.processor for window in windows], "ms", 1000) for name, windows in found.items()}
    durable = Figure("durable POST /tasks/send, 32 at once", speed["POST"].values, "/s")
    return [
        at_least(0.5, durable, speed["POST echo"]),
        at_least(0.5, Figure("the same with a message id", speed["POST with id"].values, "/s"), speed["POST echo"]),
        at_least(0.6, Figure("GET /tasks/{id}, 32 at once", speed["GET"].values, "/s"), speed["GET echo"]),
        beside(Figure("processor time of such a POST", used["POST"].values, "ms", 1000), used["POST echo"]),
        beside(Figure("processor time of such a GET", used["GET"].values, "ms", 1000), used["GET echo"]),
        beside(durable, Figure("fdatasync of 4 KB", [syncs], "/s")),
    ]


def _syncs_per_second(folder: Path, seconds: float = 0.5) -> float:
    """What the disk does when each write waits for it."""
    number = os.open(folder / "synced", os.O_CREAT | os.O_WRONLY, 0o600)
    done, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < seconds:
        os.write(number, bytes(4096))
        os.fdatasync(number)
        done += 1
    os.close(number)
    return done / taken
