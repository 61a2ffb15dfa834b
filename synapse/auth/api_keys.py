"""API keys: what one looks like, what is kept of it, and whom it speaks for. Pure.

    sk_<id>_<secret>      the id finds the key; the secret has 256 random bits

Only the SHA-256 of the whole text is kept. A slow hash would protect words that people choose; nobody can try through
256 random bits (docs/decisions/0012).

The file of API keys: private, replaced as a whole under a lock, and read again as soon as it has changed.

    <home>/keys.json          what is kept of each key
    <home>/keys-used/<id>     an empty file whose time is that of the key's last use

A running gateway so honours a new or revoked key with the next request; looking whether the file changed costs
microseconds.
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
from contextlib import contextmanager
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

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DURATION: Final = re.compile(r"(\d{1,5})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What is kept of a key: not the key."""

    key_id: str
    name: str
    digest: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    actions: frozenset[str] | None = None
    """What it may do, of ACTIONS; None is everything."""
    agents: frozenset[str] | None = None
    scope: str = ""
    """Whose tasks it sees and makes; empty is its own."""
    all_tasks: bool = False

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def fits(self, text: str) -> bool:
        """Whether this is the key; takes as long for a wrong one as for the right one."""
        return hmac.compare_digest(digest_of(text), self.digest)

    def caller(self, holds: Callable[[], bool] = for_good) -> Caller:
        """On whose behalf its requests run; `holds` tells later whether they still may."""
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
    """The text of a key."""
    return f"{PREFIX}{key_id}_{secret}"


def id_in(text: str) -> str:
    """The id in what may be the text of a key, or an empty string."""
    key_id, separator, _ = text.removeprefix(PREFIX).partition("_")
    return key_id if text.startswith(PREFIX) and separator and len(key_id) == ID_LENGTH else ""


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def checked_name(name: str) -> str:
    """Raises InvalidRequest for what cannot be the name of a key."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be the name of a key", hint="use letters, digits, '.', '_' and '-', 64 at most"
        )
    return name


def checked_actions(actions: Iterable[str]) -> frozenset[str]:
    """Raises InvalidRequest for an action that there is not."""
    wanted = frozenset(actions)
    unknown = ", ".join(sorted(wanted - set(ACTIONS)))
    if unknown or not wanted:
        raise InvalidRequest(f"no such action: {unknown or '(none given)'}", hint="there are " + ", ".join(ACTIONS))
    return wanted


def read_expiry(text: str, now: datetime) -> datetime:
    """When `30d`, `12h`, `2027-01-01` or a time of RFC 3339 is; a date means its first moment in UTC.

    Raises InvalidRequest when it is none of them, or past.
    """
    try:
        end = _moment(text.strip(), now)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{text!r} is no time", hint="write 30d, 12h, or a date such as 2030-01-01") from error
    if end <= now:
        raise InvalidRequest(f"{text!r} is past already", hint="choose a later time, or leave `--expires` out")
    return end


def _moment(text: str, now: datetime) -> datetime:
    if duration := _DURATION.fullmatch(text):
        return now + timedelta(**{_UNITS[duration[2]]: int(duration[1])})
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=now.tzinfo) if moment.tzinfo is None else moment.astimezone(now.tzinfo)


FILE: Final = "keys.json"
USED_FOLDER: Final = "keys-used"
USE_SECONDS: Final = 30.0
"""The last use is written down this often at most."""
_VERSION: Final = 1
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a new key shall be allowed."""

    actions: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    expires_at: datetime | None = None
    scope: str = ""
    all_tasks: bool = False


class KeyFile:
    """The keys of one home folder. Implements `transports.authenticators.KeySource`."""

    def __init__(self, home: Path, clock: Clock, *, mint: Callable[[int], str] = secrets.token_hex) -> None:
        self._path = home / FILE
        self._used = home / USED_FOLDER
        self._clock = clock
        self._mint = mint
        self._seen: tuple[int, int, int] | None = None
        self._keys: Mapping[str, ApiKey] = {}
        self._marked: dict[str, float] = {}

    def find(self, key_id: str) -> ApiKey | None:
        """The key of that id, as the file is now. Raises StoreCorrupt, StoreFailed."""
        return self._current().get(key_id)

    def all(self) -> tuple[ApiKey, ...]:
        """All, oldest first. Raises StoreCorrupt, StoreFailed."""
        return tuple(sorted(self._current().values(), key=lambda key: (key.created_at, key.name)))

    def create(self, name: str, grant: Grant) -> tuple[ApiKey, str]:
        """Make a key; the text that is returned with it is kept nowhere.

        Raises:
            InvalidRequest: that cannot be a name.
            NameTaken: another key has it.
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
                    f"there is a key '{name}' already",
                    hint=f"choose another name, or `synapse keys revoke {name}` first",
                )
            self._write((*known, key))
        return key, text

    def revoke(self, name: str) -> ApiKey:
        """Take a key away. Raises KeyNotFound, StoreCorrupt, StoreFailed."""
        with self._locked():
            known = self.all()
            key = next((key for key in known if key.name == name), None)
            if key is None:
                raise KeyNotFound(name)
            self._write(other for other in known if other is not key)
        with _told(self._used):
            (self._used / key.key_id).unlink(missing_ok=True)
        return key

    def mark_used(self, key_id: str) -> None:
        """Write down that the key is used now; sometimes, and never at the cost of the request."""
        now = self._clock.monotonic()
        if now - self._marked.get(key_id, -USE_SECONDS) < USE_SECONDS:
            return
        self._marked[key_id] = now
        try:
            make_private(self._used)
            path = self._used / key_id
            path.touch(mode=0o600)
            seconds = self._clock.now().timestamp()
            os.utime(path, (seconds, seconds))
        except OSError:
            return  # a full disk is no reason to refuse a caller

    def last_used(self, key_id: str) -> datetime | None:
        try:
            return datetime.fromtimestamp(int((self._used / key_id).stat().st_mtime), UTC)
        except OSError:
            return None

    def _current(self) -> Mapping[str, ApiKey]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._keys = None, {}
            return self._keys
        except OSError as error:
            raise StoreFailed(f"{self._path} cannot be read: {error.strerror}") from error
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            _check_owner(self._path, status)
            with _told(self._path):
                content = self._path.read_bytes()
            self._keys = {key.key_id: key for key in _decoded(content, self._path)}
            self._seen = seen
        return self._keys

    def _write(self, keys: Iterable[ApiKey]) -> None:
        content = json.dumps({"version": _VERSION, "keys": [_encoded(key) for key in keys]}, indent=2) + "\n"
        draft = self._path.with_name(f".{FILE}.{os.getpid()}")
        with _told(self._path):
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Alone, among all processes. The lock has a file of its own: the other one is replaced."""
        lock = self._path.with_name(f".{FILE}.lock")
        with _told(lock):
            make_folders(self._path.parent)
            opened = os.open(lock, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(opened, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def _told(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"{path} cannot be used: {error.strerror}") from error


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Whoever can write this file can let themselves in."""
    if status.st_uid != os.getuid() or status.st_mode & _OTHERS_WRITE:
        raise StoreFailed(f"others can write {path}", hint=f"make it yours alone: chmod 600 {path}")


def _encoded(key: ApiKey) -> dict[str, Any]:
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


def _decoded(content: bytes, path: Path) -> list[ApiKey]:
    try:
        return [_key(row) for row in _rows(json.loads(content))]
    except (ValueError, TypeError, KeyError, RecursionError, InvalidRequest) as error:
        raise StoreCorrupt(
            f"{path} is no file of API keys", hint="put it back from a copy, or move it away and make new keys"
        ) from error


def _rows(document: Any) -> list[Any]:
    if document["version"] != _VERSION:
        raise ValueError("it was written by another version")
    rows: list[Any] = document["keys"]
    return rows


def _key(row: Mapping[str, Any]) -> ApiKey:
    return ApiKey(
        key_id=_text(row["id"]),
        name=checked_name(_text(row["name"])),
        digest=_text(row["sha256"]),
        created_at=datetime.fromisoformat(row["created"]),
        expires_at=None if row["expires"] is None else datetime.fromisoformat(row["expires"]),
        actions=None if row["actions"] is None else checked_actions(_texts(row["actions"])),
        agents=None if row["agents"] is None else frozenset(_texts(row["agents"])),
        scope=_text(row["scope"]),
        # Only a plain `true` widens what a key sees.
        all_tasks=row["all_tasks"] is True,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return [_text(item) for item in cast("list[object]", value)]
