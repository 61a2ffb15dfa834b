"""The limit of open files: raised for hosts and gateways, where each connection is one, and not for their programs."""

from __future__ import annotations

import resource
import sys
from typing import Final

FILES_WANTED: Final = 65_536

Limit = tuple[int, int]
"""The soft and the hard limit."""


def raise_file_limit() -> Limit:
    """Raise this process's soft limit towards its hard one, and return the limit as it was.

    A host does this after its program was started, so that the program has the limit that its user gave it: programs
    that close every possible file, or that use select(), are slow or wrong with a large one.
    """
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return before


def set_file_limit(limit: Limit) -> None:
    """Give this process the limit that it began with."""
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def give_file_limit(pid: int, limit: Limit) -> None:
    """Give a child that has just been started the limit that this process began with, where the system can do that."""
    if sys.platform != "linux":
        return
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    except (OSError, ValueError):
        return  # it has ended already


def open_file_limit() -> int:
    """How many files this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft
