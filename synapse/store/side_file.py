"""SQLite files beside the store, as the search index: made private, written as a whole, and known when replaced."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool = True) -> Generator[None]:
    """Runs statements on one state of the file, and of what is attached to it; all of them count, or none."""
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def create_private(path: Path) -> None:
    """Creates the file, for this user only, if it is missing."""
    # Not if it is there: closing a descriptor drops the locks that this process has on a database.
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def identity_at(path: Path) -> tuple[int, int] | None:
    """Returns which file is at this path; None if there is none. Another identity means that it was replaced."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
