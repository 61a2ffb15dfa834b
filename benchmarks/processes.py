"""What processes cost, as Linux counts it, and how to start and end them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SYNAPSE = str(Path(sys.executable).with_name("synapse"))
SAID = "said.log"
_LOOK_AGAIN_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds that a whole process took: on the clock, and of the processor."""

    wall: float
    processor: float


def run_command(argv: Sequence[str], env: Mapping[str, str]) -> Cost:
    """Run a command to its end, unseen.

    posix_spawn and wait4, because subprocess would add its own milliseconds to both sides of a ratio.
    """
    unseen = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    begun = time.perf_counter()
    pid = os.posix_spawn(argv[0], list(argv), env, file_actions=unseen)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - begun
    if status:
        raise RuntimeError(f"{' '.join(argv)} ended with status {os.waitstatus_to_exitcode(status)}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


@contextlib.contextmanager
def running(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> Generator[subprocess.Popen[bytes]]:
    """A process in a session of its own, ended afterwards. What it says is in the file SAID of `folder`."""
    with (folder / SAID).open("ab") as said:
        process = subprocess.Popen(
            argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], seconds: float = 10.0) -> None:
    """End a process, gently first."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def processor_seconds(pid: int) -> float:
    """What all threads of a process have used so far, in nanosecond steps (/proc has ticks of 10 ms)."""
    # The number of a process's CPU clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid: int) -> float:
    """The megabytes that a process has in memory now."""
    return _field(pid, "status", "VmRSS")


def private_memory(pid: int) -> float:
    """The megabytes in memory that a process shares with no other one."""
    return _field(pid, "smaps_rollup", "Private_Clean") + _field(pid, "smaps_rollup", "Private_Dirty")


def peak_memory(pid: int) -> float:
    """The most megabytes that a process had in memory in its life."""
    return _field(pid, "status", "VmHWM")


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Look again and again until `holds`; raises TimeoutError that says what did not come."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain: {what}")
        time.sleep(_LOOK_AGAIN_SECONDS)


def _field(pid: int, file: str, name: str) -> float:
    for line in Path(f"/proc/{pid}/{file}").read_text(encoding="ascii").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) / 1024
    raise LookupError(name)
