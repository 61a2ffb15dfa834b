"""Private JSON files of credentials, without their secrets, and when each of these was used last.

    <home>/keys.json, sessions.json      the records, with the SHA-256 of each secret
    <home>/keys-used/<id>, …             an empty file; its time is that of the last use

Only the SHA-256 of a secret is stored. A slow hash protects passwords that people choose; 256 random bits need none
(docs/decisions/0012).

A file is replaced as a whole under a lock, and read again as soon as it has changed: a running gateway honours a change
with the next request, and the check for one costs microseconds.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from synapse.config.private_files import make_folders, make_private
from synapse.core.errors import InvalidRequest, StoreCorrupt, StoreFailed
from synapse.core.types import Clock

log = logging.getLogger(__name__)

R = TypeVar("R")

INVALID_RECORD: Final = (ValueError, TypeError, KeyError, OverflowError, RecursionError, InvalidRequest)
"""What `Records.decode` raises for an invalid record."""
ID_LENGTH: Final = 12
USE_SECONDS: Final = 30.0
"""The last use of a credential is written at most this often."""
_VERSION: Final = 1
_ID: Final = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")


def digest_of(text: str) -> str:
    """Returns what is stored of a secret."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def has_digest(text: str, digest: str) -> bool:
    """Whether `text` is the secret of `digest`, compared in constant time."""
    return hmac.compare_digest(digest_of(text), digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records(Generic[R]):
    """How one kind of records is written. `decode` raises INVALID_RECORD."""

    list_name: str
    """The key of the list in the file."""
    encode: Callable[[R], dict[str, Any]]
    decode: Callable[[Mapping[str, Any]], R]
    id_of: Callable[[R], str]
    what: str
    """The kind in words, as in "a file of API keys"."""
    hint: str
    """What to do about a file that is not one."""
    skips_invalid: bool = False
    """Whether an invalid record is skipped, because other machines have written it; else the file is not valid."""


class RecordFile(Generic[R]):
    """One file of records."""

    def __init__(self, path: Path, records: Records[R]) -> None:
        self._path = path
        self._records = records
        self._last: tuple[tuple[int, int, int] | None, Mapping[str, R]] = (None, {})
        """The file that was read last, by inode, time and size, and its records."""

    def current(self) -> Mapping[str, R]:
        """Returns the records by their ids. Raises StoreCorrupt, StoreFailed."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreFailed(f"{self._path} cannot be read: {error.strerror}") from error
        found = (status.st_ino, status.st_mtime_ns, status.st_size)
        known, records = self._last
        if found != known:
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                # They could give themselves access.
                raise StoreFailed(
                    f"other users can write {self._path}", hint=f"make it private: chmod 600 {self._path}"
                )
            with _store_errors(self._path):
                content = self._path.read_bytes()
            records = {self._records.id_of(record): record for record in self._decode(content)}
            # In one step: webhooks ask from several threads.
            self._last = found, records
        return records

    def write(self, records: Iterable[R]) -> None:
        """Replaces the file; call it inside `locked`. Raises StoreFailed."""
        rows = [self._records.encode(record) for record in records]
        content = json.dumps({"version": _VERSION, self._records.list_name: rows}, indent=2) + "\n"
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with _store_errors(self._path):
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Excludes all other processes. The lock has a file of its own, because the records' file is replaced."""
        lock = self._path.with_name(f".{self._path.name}.lock")
        with _store_errors(lock):
            make_folders(self._path.parent)
            opened = os.open(lock, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(opened, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _decode(self, content: bytes) -> list[R]:
        try:
            document: Any = json.loads(content)
            if document["version"] != _VERSION:
                raise ValueError("it was written by another version")
            rows: list[Any] = document[self._records.list_name]
            if self._records.skips_invalid:
                return list(self._valid(rows))
            return [self._records.decode(row) for row in rows]
        except INVALID_RECORD as error:
            raise StoreCorrupt(
                f"{self._path} is not a file of {self._records.what}", hint=self._records.hint
            ) from error

    def _valid(self, rows: list[Any]) -> Generator[R]:
        for row in rows:
            try:
                yield self._records.decode(row)
            except INVALID_RECORD as error:
                log.warning("record_not_understood", extra={"file": self._path.name, "error": str(error)})


class UseMarks:
    """When each credential was used last, as the time of an empty file in `folder`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._marked: dict[str, float] = {}
        self._marking = ThreadPoolExecutor(1, folder.name)

    def mark(self, record_id: str) -> Future[None] | None:
        """Records a use, at most every USE_SECONDS. A thread writes it, and never raises."""
        now = self._clock.monotonic()
        if now - self._marked.get(record_id, -USE_SECONDS) < USE_SECONDS:
            return None
        self._marked[record_id] = now
        return self._marking.submit(self._write, record_id, self._clock.now().timestamp())

    def last(self, record_id: str) -> datetime | None:
        try:
            return datetime.fromtimestamp(int((self._folder / record_id).stat().st_mtime), UTC)
        except OSError:
            return None

    def forget(self, record_id: str) -> None:
        """Removes the mark of a credential that is gone. Raises StoreFailed."""
        self._marked.pop(record_id, None)
        with _store_errors(self._folder):
            (self._folder / record_id).unlink(missing_ok=True)

    def _write(self, record_id: str, seconds: float) -> None:
        # A full disk must not refuse a caller.
        with suppress(OSError):
            make_private(self._folder)
            path = self._folder / record_id
            path.touch(mode=0o600)
            os.utime(path, (seconds, seconds))


@contextmanager
def _store_errors(path: Path) -> Generator[None]:
    """Turns an OSError into a StoreFailed that names `path`."""
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"{path} cannot be used: {error.strerror}") from error


def text_in(value: object) -> str:
    """Returns a value of a record that must be a string. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def id_in_record(value: object) -> str:
    """Returns the id of a record, which is also the name of a file. Raises ValueError, TypeError."""
    record_id = text_in(value)
    if not _ID.fullmatch(record_id):
        raise ValueError("not the id of a key or session")
    return record_id


def moment_in(value: object) -> datetime:
    """Returns a value of a record that must be a time with its time zone. Raises ValueError, TypeError."""
    moment = datetime.fromisoformat(text_in(value))
    if moment.tzinfo is None:
        # Comparing it with a time that has one raises.
        raise ValueError("a time without time zone")
    return moment


def texts_in(value: object) -> list[str]:
    """Returns a value of a record that must be a list of strings. Raises TypeError."""
    if not isinstance(value, list):
        raise TypeError("not a list")
    return [text_in(item) for item in cast("list[object]", value)]
