"""How fast a program's output passes through `synapse PROFILE`, which keeps the screen; and in what memory."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.hosts import temporary_home
from benchmarks.printer import LINES_PER_MEGABYTE
from benchmarks.processes import memory, peak_memory
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, at_least, shown
from benchmarks.terminals import Terminal
from benchmarks.wrappers import C_PUMP, OURS, PLAIN, SCRIPT, wrapped

TITLE = "Output through a terminal"

_LEAST = 0.6
_FLAT_MB = 5.0


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home, wrapped(home, "printer.py") as (terminals, host):
        contenders = {
            name: partial(_print, terminal, effort.megabytes) for name, terminal in terminals.items() if name != PLAIN
        }
        sizes = [memory(host.pid)]
        # The first pass fills the scrollback, which is bounded, and whatever else grows once.
        found = interleave(1, contenders)
        sizes.append(memory(host.pid))
        for name, more in interleave(effort.passes - 1, contenders).items():
            found[name] += more
        sizes.append(peak_memory(host.pid))
    speeds = {name: Figure(name, values, "MB/s") for name, values in found.items()}
    what = f"{effort.megabytes} MB through `synapse PROFILE`"
    peers = [name for name in (C_PUMP, SCRIPT) if name in speeds]
    return [
        *(at_least(_LEAST, speeds[OURS], speeds[name], what) for name in peers),
        _memory(sizes, effort),
    ]


def _memory(sizes: list[float], effort: Effort) -> Row:
    passed = f"at first → after {effort.megabytes} MB → after {effort.megabytes * effort.passes} MB"
    return Row(
        what=f"memory: {passed}",
        measured=" → ".join(f"{size:.1f}" for size in sizes) + " MB",
        target=f"last step ≤ {shown(_FLAT_MB)} MB",
        reached=sizes[2] - sizes[1] <= _FLAT_MB,
    )


def _print(terminal: Terminal, megabytes: int) -> float:
    """Let the program print; return how many megabytes a second came out at the person's end."""
    terminal.rest()
    begun = time.perf_counter()
    terminal.type(b"%d\r" % megabytes)
    terminal.read_bytes(megabytes * LINES_PER_MEGABYTE * 80)
    return megabytes / (time.perf_counter() - begun)
