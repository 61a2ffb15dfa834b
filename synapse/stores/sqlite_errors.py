"""What SQLite's errors mean for the person who has to do something about them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from synapse.core.errors import InvalidRequest, StoreCorrupt, StoreFailed, StoreFull, StoreLocked, SynapseError

_PRIMARY_CODE = 0xFF


def store_error(error: Exception, path: Path) -> SynapseError:
    """Return our error for one that came out of sqlite3 or the file system."""
    match error:
        case SynapseError():
            return error
        case sqlite3.Error():
            return _from_sqlite(error, path)
        case OSError():
            return StoreFailed(
                f"{path}: {error.strerror or error}", hint="the state folder must be yours and writable (SYNAPSE_HOME)"
            )
        case _:
            # A name with half a surrogate pair, a number beyond 64 bits: nothing that SQLite can hold.
            return InvalidRequest(f"this cannot be stored: {error}")


def locked(path: Path) -> StoreLocked:
    return StoreLocked(
        f"another process holds the lock of {path}",
        hint=f"a stopped host may hold it: `fuser {path}.lock` names it; continue or end that process",
    )


def corrupt(path: Path, what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} is damaged: {what}",
        hint="stop all agents and move it away with what belongs to it "
        f"(`mkdir {path}.damaged && mv {path} {path}-wal {path}-shm {path}.damaged`); a new one is made at the next "
        f"start. `sqlite3 {path}.damaged/{path.name} .recover` shows what can be saved",
    )


def _from_sqlite(error: sqlite3.Error, path: Path) -> StoreFailed:
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return locked(path)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return corrupt(path, str(error))
        case sqlite3.SQLITE_FULL:
            return StoreFull(f"no space left for {path}", hint=f"free some space: `df -h {path.parent}`")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreFailed(
                f"{path}: {error}", hint=f"the file and its folder must be yours: `ls -ld {path.parent}`"
            )
        case sqlite3.SQLITE_IOERR:
            # A quota that is used up is told so: only a disk without space has an error of its own.
            return StoreFailed(
                f"{path}: {error}",
                hint=f"is there space, and quota? `df -h {path.parent}`; `synapse doctor` checks the store",
            )
        case _:
            return StoreFailed(f"{path}: {error}", hint="`synapse doctor` checks the store")
