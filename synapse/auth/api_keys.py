"""API keys of a gateway: their text, their rights, and the file that stores them.

    sk_<id>_<secret>          the id finds the key; the secret has 256 random bits
    <home>/keys.json          the keys, without their secrets
    <home>/keys-used/<id>     an empty file; its time is that of the key's last use

Only the SHA-256 of the whole text is stored. A slow hash protects passwords that people choose; 256 random bits need
none (docs/decisions/0012).

The file is private, and replaced as a whole under a lock. It is read again as soon as it has changed, so a running
gateway honours a new or revoked key with the next request; the check for a change costs microseconds.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

from synapse.config.private_files import make_folders, make_private
from synapse.core.caller import ACTIONS, Caller, for_good
from synapse.core.errors import InvalidRequest, KeyNotFound, NameTaken, StoreCorrupt, StoreFailed
from synapse.core.types import Clock

PREFIX: Final = "sk_"
ID_LENGTH: Final = 12
KEYS_FILE: Final = "keys.json"
USED_FOLDER: Final = "keys-used"
USE_SECONDS: Final = 30.0
"""The last use of a key is written at most this often."""

_VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DURATION: Final = re.compile(r"(\d{1,5})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is stored: without its secret."""

    key_id: str
    name: str
    digest: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    actions: frozenset[str] | None = None
    """What it may do, of ACTIONS; None means everything."""
    agents: frozenset[str] | None = None
    scope: str = ""
    """The scope of the tasks that it sees and creates; empty means one of its own."""
    all_tasks: bool = False

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def matches(self, text: str) -> bool:
        """Whether `text` is this key, compared in constant time."""
        return hmac.compare_digest(digest_of(text), self.digest)

    def caller(self, holds: Callable[[], bool] = for_good) -> Caller:
        """Returns the caller of its requests; `holds` tells later whether the key is still valid."""
        return Caller(
            scope=self.scope or f"key:{self.key_id}",
            sees_all=self.all_tasks,
            actions=self.actions,
            agents=self.agents,
            name=self.name,
            key_id=self.key_id,
            holds=holds,
        )


def compose(key_id: str, secret: str) -> str:
    """Returns the text of a key."""
    return f"{PREFIX}{key_id}_{secret}"


def id_in(text: str) -> str:
    """Returns the id in the text of a key, or an empty string if `text` is not one."""
    key_id, separator, _ = text.removeprefix(PREFIX).partition("_")
    return key_id if text.startswith(PREFIX) and separator and len(key_id) == ID_LENGTH else ""


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def checked_name(name: str) -> str:
    """Returns `name`. Raises InvalidRequest if a key cannot have it."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be the name of a key", hint="use at most 64 letters, digits, '.', '_' and '-'"
        )
    return name


def checked_actions(actions: Iterable[str]) -> frozenset[str]:
    """Returns the set of `actions`. Raises InvalidRequest if it is empty, or names an unknown action."""
    wanted = frozenset(actions)
    unknown = ", ".join(sorted(wanted - set(ACTIONS)))
    if unknown or not wanted:
        raise InvalidRequest(f"no such action: {unknown or '(none given)'}", hint="actions: " + ", ".join(ACTIONS))
    return wanted


def read_expiry(text: str, now: datetime) -> datetime:
    """Reads `30d`, `12h`, `2027-01-01` or a time of RFC 3339; a date means its first moment in UTC.

    Raises InvalidRequest when it is none of them, or in the past.
    """
    try:
        if duration := _DURATION.fullmatch(text.strip()):
            end = now + timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        else:
            end = datetime.fromisoformat(text.strip())
            end = end.replace(tzinfo=now.tzinfo) if end.tzinfo is None else end.astimezone(now.tzinfo)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{text!r} is not a time", hint="write 30d, 12h, or a date such as 2030-01-01") from error
    if end <= now:
        raise InvalidRequest(f"{text!r} is in the past", hint="choose a later time, or omit `--expires`")
    return end


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The rights of a new key."""

    actions: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    expires_at: datetime | None = None
    scope: str = ""
    all_tasks: bool = False


class KeyFile:
    """Creates, finds and revokes the keys of one home folder. Implements `auth.authenticators.KeySource`."""

    def __init__(self, home: Path, clock: Clock, *, mint: Callable[[int], str] = secrets.token_hex) -> None:
        self._path = home / KEYS_FILE
        self._used = home / USED_FOLDER
        self._clock = clock
        self._mint = mint
        self._last: tuple[tuple[int, int, int] | None, Mapping[str, ApiKey]] = (None, {})
        """The file that was read last, by inode, time and size, and its keys."""
        self._marked: dict[str, float] = {}
        self._marking = ThreadPoolExecutor(1, "keys-used")

    def find(self, key_id: str) -> ApiKey | None:
        """Returns the key of this id from the current file. Raises StoreCorrupt, StoreFailed."""
        return self._current().get(key_id)

    def all(self) -> tuple[ApiKey, ...]:
        """Returns all keys, oldest first. Raises StoreCorrupt, StoreFailed."""
        return tuple(sorted(self._current().values(), key=lambda key: (key.created_at, key.name)))

    def create(self, name: str, grant: Grant) -> tuple[ApiKey, str]:
        """Creates a key and returns it with its text, which is stored nowhere.

        Raises:
            InvalidRequest: the name is not valid.
            NameTaken: another key has this name.
            StoreCorrupt, StoreFailed: the file cannot be used.
        """
        text = compose(key_id := self._mint(ID_LENGTH // 2), self._mint(32))
        key = ApiKey(
            key_id=key_id,
            name=checked_name(name),
            digest=digest_of(text),
            created_at=self._clock.now().replace(microsecond=0),
            expires_at=grant.expires_at,
            actions=grant.actions,
            agents=grant.agents,
            scope=grant.scope,
            all_tasks=grant.all_tasks,
        )
        with self._locked():
            known = self.all()
            if any(other.name == name for other in known):
                raise NameTaken(
                    f"a key '{name}' already exists",
                    hint=f"choose another name, or run `synapse keys revoke {name}` first",
                )
            self._write((*known, key))
        return key, text

    def revoke(self, name: str) -> ApiKey:
        """Removes a key. Raises KeyNotFound, StoreCorrupt, StoreFailed."""
        with self._locked():
            known = self.all()
            key = next((key for key in known if key.name == name), None)
            if key is None:
                raise KeyNotFound(name)
            self._write(other for other in known if other is not key)
        with _store_errors(self._used):
            (self._used / key.key_id).unlink(missing_ok=True)
        return key

    def mark_used(self, key_id: str) -> Future[None] | None:
        """Records the time of the key's last use, at most every USE_SECONDS. A thread writes it, and never raises."""
        now = self._clock.monotonic()
        if now - self._marked.get(key_id, -USE_SECONDS) < USE_SECONDS:
            return None
        self._marked[key_id] = now
        return self._marking.submit(self._write_use, key_id, self._clock.now().timestamp())

    def _write_use(self, key_id: str, seconds: float) -> None:
        # A full disk must not refuse a caller.
        with suppress(OSError):
            make_private(self._used)
            path = self._used / key_id
            path.touch(mode=0o600)
            os.utime(path, (seconds, seconds))

    def last_used(self, key_id: str) -> datetime | None:
        try:
            return datetime.fromtimestamp(int((self._used / key_id).stat().st_mtime), UTC)
        except OSError:
            return None

    def _current(self) -> Mapping[str, ApiKey]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreFailed(f"{self._path} cannot be read: {error.strerror}") from error
        found = (status.st_ino, status.st_mtime_ns, status.st_size)
        known, keys = self._last
        if found != known:
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                # They could give themselves access.
                raise StoreFailed(
                    f"other users can write {self._path}", hint=f"make it private: chmod 600 {self._path}"
                )
            with _store_errors(self._path):
                content = self._path.read_bytes()
            keys = {key.key_id: key for key in _decode_file(content, self._path)}
            # In one step: webhooks ask from several threads.
            self._last = found, keys
        return keys

    def _write(self, keys: Iterable[ApiKey]) -> None:
        content = json.dumps({"version": _VERSION, "keys": [_encode(key) for key in keys]}, indent=2) + "\n"
        draft = self._path.with_name(f".{KEYS_FILE}.{os.getpid()}")
        with _store_errors(self._path):
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Excludes all other processes. The lock has a file of its own, because the keys' file is replaced."""
        lock = self._path.with_name(f".{KEYS_FILE}.lock")
        with _store_errors(lock):
            make_folders(self._path.parent)
            opened = os.open(lock, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(opened, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def _store_errors(path: Path) -> Generator[None]:
    """Turns an OSError into a StoreFailed that names `path`."""
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"{path} cannot be used: {error.strerror}") from error


def _encode(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "name": key.name,
        "sha256": key.digest,
        "created": key.created_at.isoformat(),
        "expires": key.expires_at.isoformat() if key.expires_at else None,
        "actions": None if key.actions is None else sorted(key.actions),
        "agents": None if key.agents is None else sorted(key.agents),
        "scope": key.scope,
        "all_tasks": key.all_tasks,
    }


def _decode_file(content: bytes, path: Path) -> list[ApiKey]:
    try:
        document: Any = json.loads(content)
        if document["version"] != _VERSION:
            raise ValueError("it was written by another version")  # noqa: TRY301 - one error for any invalid file
        return [_decode(row) for row in document["keys"]]
    except (ValueError, TypeError, KeyError, RecursionError, InvalidRequest) as error:
        raise StoreCorrupt(
            f"{path} is not a file of API keys", hint="restore it from a copy, or move it away and create new keys"
        ) from error


def _decode(row: Mapping[str, Any]) -> ApiKey:
    return ApiKey(
        key_id=_text(row["id"]),
        name=checked_name(_text(row["name"])),
        digest=_text(row["sha256"]),
        created_at=datetime.fromisoformat(row["created"]),
        expires_at=None if row["expires"] is None else datetime.fromisoformat(row["expires"]),
        actions=None if row["actions"] is None else checked_actions(_texts(row["actions"])),
        agents=None if row["agents"] is None else frozenset(_texts(row["agents"])),
        scope=_text(row["scope"]),
        # Only a plain `true` lets a key see all tasks.
        all_tasks=row["all_tasks"] is True,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return [_text(item) for item in cast("list[object]", value)]
