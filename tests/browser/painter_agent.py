"""An agent whose program paints what it is told; see `painter.py`."""

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
title = "Painter"
command = {command}

[times]
quiet = 0.02
settle = 0.03

[prompt]
pattern = '^> (?P<text>.*)$'
at_cursor = true

[answer]
echo = '^> '
"""


@contextmanager
def painter(machine: World, name: str) -> Generator[None]:
    """Runs the agent until the end of the block."""
    profile = machine.home / "config" / "synapse" / "profiles" / "painter.toml"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text(PROFILE.format(command=json.dumps([sys.executable, "-I", str(PAINTER)])), encoding="utf-8")
    env = environ(machine.home) | {"XDG_CONFIG_HOME": str(machine.home / "config")}
    start = [*COMMAND, "start", "painter", "--name", name, "--no-instructions"]
    subprocess.run(start, env=env, cwd=machine.home, check=True, capture_output=True, timeout=PATIENCE)
    try:
        yield
    finally:
        machine.run("stop", name, "--force")
