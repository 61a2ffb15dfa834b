"""From POST /tasks/send to the line being read by the program, beside the same program on a plain pseudo-terminal."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

from benchmarks.hosts import Host, temporary_home
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, beside, within
from benchmarks.terminals import Terminal, in_terminal

TITLE = "Delivery"

_MOST_MS = 50
_PROGRAM = str(Path(__file__).with_name("line_program.py"))
_TEXT = "please look at the parser again"


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home:
        reports = {name: Reports(home.folder / f"{name}.report") for name in ("host", "plain")}
        home.write_profile("lines", "line_program.py", reports["host"].path)
        plain = [sys.executable, "-I", "-S", _PROGRAM, reports["plain"].path]
        with home.host("lines") as host, in_terminal(plain, home.env, home.folder) as terminal:
            tasks: list[str] = []
            contenders = {
                "host": lambda: _deliver(host, reports["host"], tasks),
                "plain": lambda: _type(terminal, reports["plain"]),
            }
            interleave(3, contenders)
            tasks.clear()
            found = interleave(effort.messages, contenders)
            answered = [_seconds(host, task_id, "queued", "answered") for task_id in tasks]
    typed = Figure("the line typed by hand", found["plain"], "ms", 1000)
    slowest = sorted(found["host"])[int(len(found["host"]) * 0.95)]
    return [
        within(_MOST_MS, Figure("POST /tasks/send → the program has the line", found["host"], "ms", 1000), typed),
        beside(Figure("the same, slowest of twenty", [slowest], "ms", 1000), typed),
        Row(
            what="queued → answered, of a program that answers at once",
            measured=Figure("", answered, "ms", 1000).shown,
            beside="quiet 20 ms and settle 30 ms of the profile",
        ),
    ]


class Reports:
    """Where the program tells when it has read a line."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(10)

    def wait(self) -> float:
        """The moment of the next line, by the clock that all processes share."""
        return float(self._socket.recv(64))


def _deliver(host: Host, reports: Reports, tasks: list[str]) -> float:
    host.wait_ready()
    begun = time.monotonic()
    task_id = host.send(_TEXT)
    taken = reports.wait() - begun
    host.wait_completed(task_id)
    tasks.append(task_id)
    return taken


def _type(terminal: Terminal, reports: Reports) -> float:
    terminal.rest()
    begun = time.monotonic()
    terminal.type(_TEXT.encode() + b"\r")
    return reports.wait() - begun


def _seconds(host: Host, task_id: str, first: str, last: str) -> float:
    """The time between two steps of a task's receipt."""
    steps = {
        receipt["step"]: _seconds_of_day(receipt["at"])
        for receipt in host.get(f"/tasks/{task_id}")["metadata"]["receipts"]
    }
    return (steps[last] - steps[first]) % 86400


def _seconds_of_day(instant: str) -> float:
    hours, minutes, seconds = instant.rstrip("Z").partition("T")[2].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
