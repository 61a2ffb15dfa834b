"""Credentials of the other gateways of a fleet, as this machine's link mirrors them, and what was revoked anywhere.

    <home>/fleet/mirror/keys.json, sessions.json   the records of other machines, each with its machine
    <home>/fleet/mirror/revoked.json               what other machines have revoked
    <home>/fleet/mirror/fresh                      an empty file; its time is when the link last had all of that
    <home>/fleet/revoked.json                      what was revoked on this machine; the link publishes it

A credential counts on all gateways: on other machines than its own for the ordinary actions, and for what
`synapse fleet allow` gives its machine there; see `FleetRules` of `config.fleet`. It is revoked by a record of its own,
on any machine: a missing record proves nothing while machines are away. Without a connection to the fleet, mirrored
credentials are good for STALE_AFTER.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from synapse.auth.record_file import RecordFile, Records, id_in_record, moment_in, text_in
from synapse.config.fleet import fleet_folder
from synapse.config.private_files import make_private
from synapse.core.caller import ORDINARY
from synapse.core.errors import StoreCorrupt, StoreFailed
from synapse.core.types import Clock

STALE_AFTER: Final = timedelta(hours=1)
MIRROR: Final = "mirror"
REVOKED: Final = "revoked.json"
FRESH: Final = "fresh"

R = TypeVar("R")


class Mirrored(NamedTuple, Generic[R]):
    """A record of another machine."""

    machine: str
    record: R


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A key or session that is not valid any more, by its id."""

    record_id: str
    at: datetime


def mirror_folder(home: Path) -> Path:
    return fleet_folder(home) / MIRROR


def is_in_fleet(home: Path) -> bool:
    """Whether this machine has files of a fleet, so that there may be credentials of other machines."""
    return fleet_folder(home).is_dir()


def actions_here(actions: frozenset[str] | None, allowed: frozenset[str]) -> frozenset[str]:
    """Returns what a credential of another machine, which is `allowed` that much here, may do on this one.

    One without limits (None) grants nothing that belongs to people; see `Caller.is_granted`.
    """
    return frozenset(ORDINARY) if actions is None else actions & (frozenset(ORDINARY) | allowed)


class MirrorFile(Generic[R]):
    """The records of one kind of all other machines. The link writes it, gateways and hosts read it."""

    def __init__(self, home: Path, name: str, records: Records[R], clock: Clock) -> None:
        self._folder = mirror_folder(home)
        self._file: RecordFile[Mirrored[R]] = RecordFile(self._folder / name, _mirrored(records))
        self._clock = clock

    def fresh(self) -> Mapping[str, Mirrored[R]]:
        """Returns the records by their ids; none when the link has had no connection for too long.

        Raises StoreCorrupt, StoreFailed.
        """
        try:
            at = (self._folder / FRESH).stat().st_mtime
        except OSError:
            return {}
        return self.all() if self._clock.now().timestamp() - at < STALE_AFTER.total_seconds() else {}

    def all(self) -> Mapping[str, Mirrored[R]]:
        """Returns the records by their ids, however old. Raises StoreCorrupt, StoreFailed."""
        return self._file.current()

    def write(self, records: Iterable[Mirrored[R]]) -> None:
        """Replaces the records. Raises StoreFailed."""
        _prepare(self._folder)
        with self._file.locked():
            self._file.write(records)


class Revocations:
    """What was revoked on this machine and on others."""

    def __init__(self, home: Path) -> None:
        self._folder = mirror_folder(home)
        # Skipping a record of this machine would bring its credential back, and the next write would lose the record.
        self.own = RecordFile(fleet_folder(home) / REVOKED, REVOCATIONS)
        self.mirrored = RecordFile(self._folder / REVOKED, replace(REVOCATIONS, skips_invalid=True))

    def has(self, record_id: str) -> bool:
        """Whether a key or session was revoked anywhere. Raises StoreCorrupt, StoreFailed."""
        return record_id in self.own.current() or record_id in self.mirrored.current()

    def add(self, record_id: str, clock: Clock) -> None:
        """Revokes a key or session of any machine. Raises StoreCorrupt, StoreFailed."""
        with self.own.locked():
            known = self.own.current()
            if record_id not in known:
                new = Revocation(record_id=record_id, at=clock.now().replace(microsecond=0))
                self.own.write((*known.values(), new))

    def take_over(self, revocation: Revocation) -> None:
        """Makes a revocation of a machine that is no more one of this machine. Raises StoreCorrupt, StoreFailed."""
        with self.own.locked():
            known = self.own.current()
            if revocation.record_id not in known:
                self.own.write((*known.values(), revocation))

    def add_mirrored(self, revocations: Iterable[Revocation], since: datetime) -> None:
        """Adds what other machines have revoked, and forgets what they revoked before a time. Raises StoreFailed.

        A revocation that they publish no more stays: it may have been deleted by somebody who wants its key back.
        """
        _prepare(self._folder)
        with self.mirrored.locked():
            try:
                known = dict(self.mirrored.current())
            except StoreCorrupt:
                known = {}  # what is published counts, as in a mirror that was removed
            kept = {key: one for key, one in known.items() if one.at >= since}
            self.mirrored.write((kept | {one.record_id: one for one in revocations}).values())


def mark_fresh(home: Path) -> None:
    """Records that the mirror has all that the fleet has now. Raises StoreFailed."""
    _prepare(mirror_folder(home))
    try:
        (mirror_folder(home) / FRESH).touch(mode=0o600)
    except OSError as error:
        raise StoreFailed(f"{mirror_folder(home)} cannot be written: {error.strerror}") from error


def _prepare(folder: Path) -> None:
    try:
        make_private(folder)
    except OSError as error:
        raise StoreFailed(f"{folder} cannot be made: {error.strerror}") from error


def _mirrored(records: Records[R]) -> Records[Mirrored[R]]:
    return Records(
        list_name=records.list_name,
        encode=lambda one: {**records.encode(one.record), "machine": one.machine},
        decode=lambda row: Mirrored(text_in(row["machine"]), records.decode(row)),
        id_of=lambda one: records.id_of(one.record),
        what=records.what,
        hint="remove it; the link writes it again",
        skips_invalid=True,
    )


def _encode(revocation: Revocation) -> dict[str, Any]:
    return {"id": revocation.record_id, "at": revocation.at.isoformat()}


def _decode(row: Mapping[str, Any]) -> Revocation:
    return Revocation(record_id=id_in_record(row["id"]), at=_revoked_at(row["at"]))


def _revoked_at(value: object) -> datetime:
    """Returns the time of a revocation. One that cannot be read must not bring a credential back: it is never old."""
    try:
        return moment_in(value)
    except (ValueError, TypeError, OverflowError):
        return datetime.max.replace(tzinfo=UTC)


REVOCATIONS: Final = Records(
    list_name="revoked",
    encode=_encode,
    decode=_decode,
    id_of=lambda revocation: revocation.record_id,
    what="revoked credentials",
    hint="restore it from a copy: without it, revoked credentials of other machines could be valid again",
)
