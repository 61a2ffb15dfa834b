"""What `synapse send` and its siblings cost as whole processes, beside a Python that does nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from benchmarks.hosts import Host, temporary_home
from benchmarks.processes import SYNAPSE, Cost, run_command
from benchmarks.rounds import interleave
from benchmarks.rows import Effort, Figure, Row, at_most

TITLE = "The command line"

_NOTHING = "python -c pass"
_MOST = {"synapse send": 1.5, "synapse reply": 1.5, "synapse --help": 5.0, "synapse list": 5.0}


def run(effort: Effort) -> list[Row]:
    with temporary_home() as home, home.host() as host:
        host.keep_busy()
        within = {**home.env, "SYNAPSE_AGENT_ID": host.agent_id, "SYNAPSE_SOCKET": host.socket}

        def reply() -> Cost:
            # A reply needs a request; making it is not part of the measured process.
            host.send("what is the state?", response_expected=True)
            return run_command([SYNAPSE, "reply", "all is well"], within)

        contenders: dict[str, Callable[[], Cost]] = {
            _NOTHING: partial(run_command, [sys.executable, "-c", "pass"], home.env),
            "synapse send": partial(run_command, _send(host), home.env),
            "synapse reply": reply,
            "synapse --help": partial(run_command, [SYNAPSE, "--help"], home.env),
            "synapse list": partial(run_command, [SYNAPSE, "list"], home.env),
        }
        # The first time compiles what no other process has compiled yet.
        interleave(1, contenders)
        costs = interleave(effort.commands, contenders)
    return _rows(costs)


def _send(host: Host) -> list[str]:
    return [SYNAPSE, "send", host.agent_id, "please look at the parser again"]


def _rows(costs: dict[str, list[Cost]]) -> list[Row]:
    walls = {name: Figure(name, [cost.wall for cost in found], "ms", 1000) for name, found in costs.items()}
    used = {
        name: Figure(f"{name}, processor", [cost.processor for cost in found], "ms", 1000)
        for name, found in costs.items()
    }
    rows = [at_most(most, walls[name], walls[_NOTHING]) for name, most in _MOST.items()]
    return rows + [at_most(most, used[name], used[_NOTHING]) for name, most in _MOST.items() if most < 2]
