"""Agents on a pseudo-terminal whose programs belong to the tests; `painter.py` paints what it is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.world import World
from tests.conformance.real_hosts import COMMAND, PATIENCE, environ

PAINTER = Path(__file__).with_name("painter.py")
PROFILE = """
title = "Program of a test"
command = {command}

[times]
quiet = 0.02
settle = 0.03
{times}

[prompt]
pattern = '^> (?P<text>.*)$'
at_cursor = true

[answer]
echo = '^> '
"""


@contextmanager
def painter(machine: World, name: str) -> Generator[None]:
    """Runs the painter until the end of the block."""
    with program(machine, name, PAINTER):
        yield


@contextmanager
def program(machine: World, name: str, file: Path, times: str = "") -> Generator[None]:
    """Runs an agent around a Python file until the end of the block; `times` are lines of its profile."""
    profile = machine.home / "config" / "synapse" / "profiles" / f"{file.stem}.toml"
    profile.parent.mkdir(parents=True, exist_ok=True)
    command = json.dumps([sys.executable, "-I", str(file)])
    profile.write_text(PROFILE.format(command=command, times=times), encoding="utf-8")
    env = environ(machine.home) | {"XDG_CONFIG_HOME": str(machine.home / "config")}
    start = [*COMMAND, "start", file.stem, "--name", name, "--no-instructions"]
    subprocess.run(start, env=env, cwd=machine.home, check=True, capture_output=True, timeout=PATIENCE)
    try:
        yield
    finally:
        machine.run("stop", name, "--force")
