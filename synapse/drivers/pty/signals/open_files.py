"""Which files a program and its children have open: the surest way to tell whose transcript it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_MOST_PROCESSES: Final = 64


def can_tell() -> bool:
    """True where the system shows open files (Linux)."""
    return (_PROC / "self" / "fd").is_dir()


def open_files(pid: int) -> Iterator[Path]:
    """Yield what the process and its descendants have open; nothing where that cannot be told."""
    for process in _tree(pid):
        try:
            links = list((_PROC / str(process) / "fd").iterdir())
        except OSError:
            continue
        for link in links:
            try:
                yield link.readlink()
            except OSError:
                continue


def _tree(pid: int) -> list[int]:
    found = [pid]
    for process in found:
        if len(found) > _MOST_PROCESSES:
            break
        try:
            children = (_PROC / str(process) / "task" / str(process) / "children").read_text(encoding="ascii")
        except OSError:
            continue
        found += [int(child) for child in children.split()]
    return found
