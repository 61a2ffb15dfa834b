"""API keys of a gateway: their text, their rights, and the file that stores them.

sk_<id>_<secret>          the id finds the key; the secret has 256 random bits
<home>/keys.json          the keys, with the SHA-256 of the whole text; see `auth.record_file`
<home>/keys-used/<id>     an empty file; its time is that of the key's last use

In a fleet, the keys of other gateways count too; see `auth.mirror`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from synapse.auth.mirror import Mirrored, MirrorFile, Revocations, actions_here, is_in_fleet
from synapse.auth.record_file import (
    ID_LENGTH,
    RecordFile,
    Records,
    UseMarks,
    digest_of,
    has_digest,
    id_in_record,
    moment_in,
    text_in,
    texts_in,
)
from synapse.config.fleet import FleetRules
from synapse.core.address import on_machine
from synapse.core.caller import ACTIONS, READ, Caller, for_good
from synapse.core.errors import InvalidRequest, KeyNotFound, NameTaken
from synapse.core.types import Clock

PREFIX: Final = "sk_"
KEYS_FILE: Final = "keys.json"
USED_FOLDER: Final = "keys-used"

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
        return has_digest(text, self.digest)

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
        self._file = RecordFile(home / KEYS_FILE, KEYS)
        self._used = UseMarks(home / USED_FOLDER, clock)
        self._clock = clock
        self._mint = mint
        self._fleet = FleetKeys(home, clock) if is_in_fleet(home) else None

    def find(self, key_id: str) -> ApiKey | None:
        """Returns the key of this id, of this machine or another, from the current files.

        Raises StoreCorrupt, StoreFailed.
        """
        key = self._file.current().get(key_id)
        return key if self._fleet is None else self._fleet.checked(key_id, key)

    def is_good_for_webhooks(self, set_by: str) -> bool:
        """Whether the key that set a webhook is valid: `ID`, or `ID@MACHINE` if a gateway of that machine set it.

        The key of another machine is valid until it is known to be revoked or expired, however long there has been no
        connection to the fleet; one that a gateway there has seen may be too new to be known here.

        Raises StoreCorrupt, StoreFailed.
        """
        key_id, _, machine = set_by.partition("@")
        key = self._file.current().get(key_id)
        if key is not None and key.is_expired(self._clock.now()):
            return False
        if self._fleet is not None:
            is_known = key is not None or bool(machine) or self._fleet.has(key_id)
            return is_known and not self._fleet.is_known_to_be_gone(key_id)
        return key is not None or bool(machine)

    def expired_since(self, moment: datetime) -> set[str]:
        """Returns the ids of the keys, of this machine or another, that have expired since then.

        Raises StoreCorrupt, StoreFailed.
        """
        known = [*self._file.current().values()]
        if self._fleet is not None:
            known += [one.record for one in self._fleet.file.all().values()]
        now = self._clock.now()
        return {key.key_id for key in known if key.is_expired(now) and not key.is_expired(moment)}

    def mirrored(self) -> tuple[Mirrored[ApiKey], ...]:
        """Returns the keys of other machines that count here, oldest first. Raises StoreCorrupt, StoreFailed."""
        return () if self._fleet is None else self._fleet.all()

    def all(self) -> tuple[ApiKey, ...]:
        """Returns all keys, oldest first. Raises StoreCorrupt, StoreFailed."""
        return tuple(sorted(self._file.current().values(), key=lambda key: (key.created_at, key.name)))

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
        with self._file.locked():
            known = self.all()
            if any(other.name == name for other in known):
                raise NameTaken(
                    f"a key '{name}' already exists",
                    hint=f"choose another name, or run `synapse keys revoke {name}` first",
                )
            self._file.write((*known, key))
        return key, text

    def revoke(self, name: str) -> ApiKey:
        """Removes a key; `NAME@MACHINE` revokes one of another machine.

        Raises KeyNotFound, StoreCorrupt, StoreFailed.
        """
        with self._file.locked():
            known = self.all()
            key = next((key for key in known if key.name == name), None)
            if key is not None:
                self._file.write(other for other in known if other is not key)
        if key is None:
            key = next((one.record for one in self.mirrored() if f"{one.record.name}@{one.machine}" == name), None)
        if key is None:
            raise KeyNotFound(name)
        if self._fleet is not None:
            self._fleet.revocations.add(key.key_id, self._clock)
        self._used.forget(key.key_id)
        return key

    def forget(self, key_ids: Collection[str]) -> None:
        """Removes keys of this machine that were revoked on another. Raises StoreCorrupt, StoreFailed."""
        with self._file.locked():
            known = self.all()
            kept = [key for key in known if key.key_id not in key_ids]
            if len(kept) < len(known):
                self._file.write(kept)

    def mark_used(self, key_id: str) -> Future[None] | None:
        """Records the time of the key's last use; see `UseMarks.mark`."""
        return self._used.mark(key_id)

    def last_used(self, key_id: str) -> datetime | None:
        return self._used.last(key_id)


class FleetKeys:
    """The keys of the other machines of the fleet."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._clock = clock
        self.file = MirrorFile(home, KEYS_FILE, KEYS, clock)
        self.revocations = Revocations(home)
        self._rules = FleetRules(home)

    def checked(self, key_id: str, own: ApiKey | None) -> ApiKey | None:
        """Returns this machine's own key, or that of another one, unless it was revoked anywhere."""
        mirrored = self.file.fresh().get(key_id) if own is None else None
        # The link writes revocations first, so they are read last.
        if self.revocations.has(key_id):
            return None
        if mirrored is None:
            return own
        # Names need not differ between machines, and an agent that accepts `key.ci` means the key of this one.
        key = self._limited(mirrored).record
        return replace(key, name=on_machine(key.name, mirrored.machine))

    def has(self, key_id: str) -> bool:
        """Whether a key of another machine is mirrored, however old the mirror is."""
        return key_id in self.file.all()

    def is_known_to_be_gone(self, key_id: str) -> bool:
        known = self.file.all().get(key_id)
        is_expired = known is not None and known.record.is_expired(self._clock.now())
        return is_expired or self.revocations.has(key_id)

    def all(self) -> tuple[Mirrored[ApiKey], ...]:
        found = [
            self._limited(one) for one in self.file.fresh().values() if not self.revocations.has(one.record.key_id)
        ]
        return tuple(sorted(found, key=lambda one: (one.record.created_at, one.record.name)))

    def _limited(self, one: Mirrored[ApiKey]) -> Mirrored[ApiKey]:
        """Returns a key of another machine with the rights that it has on this one."""
        allowed, key = self._rules.allowed(one.machine), one.record
        key = replace(key, actions=actions_here(key.actions, allowed))
        if READ not in allowed:
            # Another scope than its own is of others here, such as this machine's user.
            key = replace(key, scope="", all_tasks=False)
        return Mirrored(one.machine, key)


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


def _decode(row: Mapping[str, Any]) -> ApiKey:
    return ApiKey(
        key_id=id_in_record(row["id"]),
        name=checked_name(text_in(row["name"])),
        digest=text_in(row["sha256"]),
        created_at=moment_in(row["created"]),
        expires_at=None if row["expires"] is None else moment_in(row["expires"]),
        actions=None if row["actions"] is None else checked_actions(texts_in(row["actions"])),
        agents=None if row["agents"] is None else frozenset(texts_in(row["agents"])),
        scope=text_in(row["scope"]),
        # Only a plain `true` lets a key see all tasks.
        all_tasks=row["all_tasks"] is True,
    )


KEYS: Final = Records(
    list_name="keys",
    encode=_encode,
    decode=_decode,
    id_of=lambda key: key.key_id,
    what="API keys",
    hint="restore it from a copy, or move it away and create new keys",
)
