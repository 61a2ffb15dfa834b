"""A window of load on one server: how many requests it answers, and what each costs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import processor_seconds

CONNECTIONS = 32
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Window:
    """What one server did while it was under load."""

    per_second: float
    processor: float
    """Seconds of processor time for one request, of all processes that took part in it."""


def measure(path: str, pids: int | tuple[int, ...], request: bytes, seconds: float) -> Window:
    """Load the server at a Unix socket; `pids` are the processes whose time counts."""
    counted = (pids,) if isinstance(pids, int) else pids
    used = sum(map(processor_seconds, counted))
    load = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", path, str(seconds), str(CONNECTIONS)],
        input=request,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        check=True,
    )
    told = json.loads(load.stdout)
    used = sum(map(processor_seconds, counted)) - used
    return Window(told["answered"] / told["seconds"], used / told["answered"])


def post(path: str, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
    """A POST with a JSON body, as it goes over the wire."""
    content = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
        f"Content-Length: {len(content)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


def get(path: str) -> bytes:
    """A GET, as it goes over the wire."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
