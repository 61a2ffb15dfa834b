"""Shifts the clock of one machine: all processes of Synapse that start on it afterwards read the time of its own.

Python runs `sitecustomize` at the start of each of them. It replaces SystemClock's wall clock, which is the only place
where the product reads one; a test may move it at any time.
"""

from __future__ import annotations

import os

from tests.fleet.world import Machine

_FOLDER, _FILE = "clock", "seconds"
_HOOK = """
from datetime import UTC, datetime, timedelta
from pathlib import Path
from synapse.config.process import SystemClock

def now(_):
    return datetime.now(UTC) + timedelta(seconds=float((Path(__file__).parent / "seconds").read_text("ascii")))

SystemClock.now = now
"""


def give_own_clock(machine: Machine, seconds: float = 0.0) -> None:
    """Lets the processes of a machine that start from now on read its own clock."""
    folder = machine.folder / _FOLDER
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_HOOK, encoding="utf-8")
    set_clock(machine, seconds)
    paths = [str(folder), *machine.environment.get("PYTHONPATH", "").split(os.pathsep)]
    machine.environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def set_clock(machine: Machine, seconds: float) -> None:
    """Sets how far the machine's clock is ahead of this computer's; negative for behind."""
    path = machine.folder / _FOLDER / _FILE
    written = path.with_suffix(".new")
    written.write_text(str(seconds), encoding="ascii")
    written.replace(path)
