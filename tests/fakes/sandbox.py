"""A real sandbox for commands, as coding agents have: the kernel forbids to connect, and pids may be hidden."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

# A seccomp filter in classic BPF, as Codex has one: connect() and send() fail with EPERM. What is run inherits it.
_FORBID_CONNECT = """
import ctypes, os, struct, sys
CONNECT, SENDTO = {"x86_64": (42, 44), "aarch64": (203, 206)}[os.uname().machine]
LOAD, JUMP_EQUAL, RETURN, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
tests = [(JUMP_EQUAL, 1, 0, CONNECT), (JUMP_EQUAL, 0, 1, SENDTO)]
rows = [(LOAD, 0, 0, 0), *tests, (RETURN, 0, 0, ERRNO | 1), (RETURN, 0, 0, ALLOW)]
program = b"".join(struct.pack("HBBI", *row) for row in rows)
held = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rows", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2
libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
if libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(Filter(len(rows), ctypes.cast(held, ctypes.c_void_p))), 0, 0):
    sys.exit("this kernel has no seccomp")
os.execvp(sys.argv[1], sys.argv[1:])
"""


def without_connections(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` where nothing can be connected to, nor sent on a socket."""
    return [sys.executable, "-I", "-S", "-c", _FORBID_CONNECT, *command]


def with_own_pids(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` where other processes cannot be seen."""
    return ["unshare", "--pid", "--fork", "--mount-proc", *command]


def can_hide_pids() -> bool:
    """Whether this user may make namespaces here."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(with_own_pids(["true"]), check=False, capture_output=True).returncode == 0
