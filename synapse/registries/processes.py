"""Is a process still the one that was meant? A pid alone may have been given to another process since.

`synapse send` imports this file, so it imports nothing that a bare interpreter has not loaded already.
"""

import os

UNKNOWN = 0
"""The start time of a process on a system that does not tell it."""


def own_namespace() -> int:
    """The PID namespace of this process; UNKNOWN on a system that has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return UNKNOWN


def start_time(pid: int) -> "int | None":
    """When `pid` started, in ticks since boot (field 22 of /proc/PID/stat), or None when no such process runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        if os.path.exists("/proc/self/stat"):
            return None
        return UNKNOWN if _takes_signals(pid) else None
    # The command's name stands in parentheses and may hold anything, so count from the last one.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_running(pid: int, started: int) -> bool:
    """Whether `pid` runs and is the process that started at `started` (UNKNOWN: any that has the pid)."""
    if pid <= 0:
        return False
    now = start_time(pid)
    return now is not None and (now == started or UNKNOWN in (started, now))


def is_gone(pid: int, started: int) -> bool:
    """Whether it is certain that the process has ended. False where this process may not look.

    It is certain when another process has the pid, or none has it. A pid that takes a signal, or forbids it, but has no
    files in /proc, may be hidden; a zombie is left to others to judge.
    """
    now = start_time(pid)
    if now is not None:
        return UNKNOWN not in (now, started) and now != started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def is_stopped(pid: int, started: int) -> bool:
    """Whether `pid` is the process that started at `started`, and stands still: Ctrl-Z, SIGSTOP.

    One that a debugger holds (`t`) goes on by itself. A system without /proc does not tell.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0] == b"T" and started in (UNKNOWN, int(fields[19]))


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal; False where the system does not tell."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    masks = [line for line in lines if line.startswith(b"SigCgt:")]
    return bool(masks) and bool(int(masks[0].split()[1], 16) >> (number - 1) & 1)


def controlling_terminal(pid: int) -> int:
    """The device number of the process's controlling terminal; 0 when it has none, or the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[4])


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
