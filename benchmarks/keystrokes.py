"""From a key to its echo: in a terminal around `synapse PROFILE`, and in one that is attached to a background agent."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.hosts import temporary_home
from benchmarks.processes import SYNAPSE
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, beside
from benchmarks.terminals import Terminal, in_terminal
from benchmarks.wrappers import C_PUMP, OURS, PLAIN, SCRIPT, wrapped

TITLE = "A person's keys"

_ATTACHED = "synapse attach"
_LINE_LENGTH = 40


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home, wrapped(home, "printer.py") as (wrapping, _), home.host() as background:
        background.wait_ready()
        attach = [SYNAPSE, "attach", background.agent_id]
        with in_terminal(attach, home.env, home.folder) as attached:
            attached.read_until(b"> ")
            terminals = {**wrapping, _ATTACHED: attached}
            for terminal in terminals.values():
                terminal.rest()
            contenders = {name: partial(_line_of_keys, terminal) for name, terminal in terminals.items()}
            found = interleave(max(1, effort.keys // _LINE_LENGTH), contenders)
    keys = {name: Figure(name, [key for line in lines for key in line], "ms", 1000) for name, lines in found.items()}
    peer = keys.get(C_PUMP) or keys.get(SCRIPT) or keys[PLAIN]
    return [
        beside(Figure("key → echo in `synapse PROFILE`", keys[OURS].values, "ms", 1000), peer),
        beside(Figure("key → echo in `synapse attach`", keys[_ATTACHED].values, "ms", 1000), peer),
    ]


def _line_of_keys(terminal: Terminal) -> list[float]:
    """Type a line, key by key, each after the echo of the one before; then take the line back."""
    found: list[float] = []
    for _ in range(_LINE_LENGTH):
        begun = time.perf_counter()
        terminal.type(b"x")
        while b"x" not in terminal.read():
            pass
        found.append(time.perf_counter() - begun)
    # Ctrl-U: the kernel's own line editing clears the line, and echoes that.
    terminal.type(b"\x15")
    terminal.rest()
    return found
