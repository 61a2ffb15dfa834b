"""Migrates stores in processes that are killed on the way; see test_migration.py.

    python killed_migration.py OLD FOLDER

For N = 1, 2, … it copies OLD to FOLDER/N and migrates the copy in a process that is killed before its Nth statement,
until one process finishes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

from synapse.store import file as store_file
from synapse.store.file import open_file

MOST_STATEMENTS = 500


def killed(path: Path, number: int) -> bool:
    """Migrates in a forked process, and returns whether that was killed. Forking is safe: there is one thread."""
    child = os.fork()
    if child == 0:
        migrate(path, number)
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def migrate(path: Path, number: int) -> None:
    left = number
    connect = store_file.connect

    def strike(_statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(path: Path, *, lock_timeout: float) -> sqlite3.Connection:
        connection = connect(path, lock_timeout=lock_timeout)
        connection.execute("PRAGMA cache_size = 1")  # so that what is not committed is in the files, too
        connection.set_trace_callback(strike)
        return connection

    store_file.connect = watched
    open_file(path, lock_timeout=10, is_alive=lambda _holder: False).close()


def main(old: Path, folder: Path) -> None:
    for number in range(1, MOST_STATEMENTS):
        place = folder / str(number)
        place.mkdir(parents=True)
        for file in old.parent.glob(f"{old.name}*"):
            shutil.copy(file, place / file.name)
        if not killed(place / old.name, number):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
