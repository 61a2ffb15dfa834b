"""Ways to run a program in a person's terminal: `synapse PROFILE`, and what others do without looking at the bytes."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

from benchmarks.hosts import Home, Host, answers, free_port
from benchmarks.processes import SYNAPSE, wait_until
from benchmarks.terminals import Terminal, in_terminal

OURS = "synapse"
C_PUMP = "a pump in C"
SCRIPT = "script -qfc"
PLAIN = "no wrapper"


@contextlib.contextmanager
def wrapped(home: Home, program: str) -> Generator[tuple[dict[str, Terminal], Host]]:
    """The Python program of this folder in several terminals, each wrapped in its own way, all at their prompt."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name(program))]
    port = free_port()
    home.write_profile("wrapped", program)
    ways = {
        OURS: [SYNAPSE, "wrapped", "--no-instructions", "--port", str(port)],
        PLAIN: command,
        **_peers(home.folder, command),
    }
    with contextlib.ExitStack() as stack:
        terminals = {name: stack.enter_context(in_terminal(argv, home.env, home.folder)) for name, argv in ways.items()}
        for terminal in terminals.values():
            terminal.read_until(b"> ")
        host = Host(terminals[OURS].pid, f"synapse-wrapped-{port}", home.socket_of("wrapped", port))
        _wait_for(host, terminals[OURS])
        yield terminals, host


def _wait_for(host: Host, terminal: Terminal) -> None:
    try:
        wait_until(lambda: answers(host), "the wrapping host answers")
        host.wait_ready()
    except TimeoutError as error:
        raise RuntimeError(f"{error}; its terminal shows {terminal.rest()!r}") from error


def _peers(folder: Path, command: list[str]) -> dict[str, list[str]]:
    """Those of them that this machine has."""
    peers: dict[str, list[str]] = {}
    compiler, script = shutil.which("cc"), shutil.which("script")
    if compiler:
        pump = folder / "pump"
        source = Path(__file__).with_name("pump.c")
        subprocess.run([compiler, "-O2", "-o", str(pump), str(source), "-lutil"], check=True)
        peers[C_PUMP] = [str(pump), *command]
    if script:
        peers[SCRIPT] = [script, "-qfc", shlex.join(command), "/dev/null"]
    return peers
