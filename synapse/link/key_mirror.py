"""Mirrors the API keys and browser sessions of all gateways: made on one, honoured and revoked on all.

    keys.json, sessions.json, fleet/revoked.json here ─► SYN_KEYS, as MACHINE.k-ID, MACHINE.s-ID, MACHINE.r-ID
    SYN_KEYS of the others ─► fleet/mirror/…, which gateways and hosts read with each request; see `auth.mirror`

An id that several machines publish counts on none but its own: one of them may have forged it, or is a copy of the
other. The log, the status and `synapse fleet doctor` say so.

Only hashes travel, never a secret. It is for machines with the role gateway: the server lets no other one read or write
the bucket.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from synapse.auth.api_keys import KEYS, KEYS_FILE, ApiKey, KeyFile
from synapse.auth.mirror import REVOCATIONS, Mirrored, MirrorFile, Revocation, Revocations, mark_fresh
from synapse.auth.record_file import INVALID_RECORD, RecordFile, Records, texts_in
from synapse.auth.sessions import SESSIONS, SESSIONS_FILE, Session, SessionFile
from synapse.core.address import on_machine
from synapse.core.errors import StoreFailed
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import Bus, BusError, NotAllowed
from synapse.fleet.names import is_machine_name

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often to look whether a file of this machine has changed; that costs microseconds."""
FRESH_SECONDS: Final = 60.0
FORBIDDEN_SECONDS: Final = 30.0
"""How long to wait before the keys are watched again where the server forbids it."""
GATHER_SECONDS: Final = 0.05
KEEP_REVOCATIONS: Final = timedelta(days=90)
"""How long a revocation is published: its key is long gone by then, on all machines that were here meanwhile."""
KEY: Final = "k-"
SESSION: Final = "s-"
REVOKED: Final = "r-"
HERE: Final = "gateway"
"""The key that every gateway has, so that others find it as one."""

R = TypeVar("R")
Rows = dict[str, dict[str, Any]]
Shared = Mapping[str, tuple[str, ...]]
"""The machines that publish each key or session, `k-ID` or `s-ID`, of those that several publish."""


class KeyMirror:
    """Publishes this machine's credentials and mirrors those of others, while `run` runs."""

    def __init__(self, home: Path, bus: Bus, me: str, *, clock: Clock, note: Callable[[str], None]) -> None:
        """`note` takes sentences that an operator should see."""
        self._home = home
        self._bus = bus
        self._me = me
        self._clock = clock
        self._note_for_people = note
        self._own = _OwnFiles(home)
        self._published: Rows = {}
        self._others: dict[str, dict[str, Any]] = {}
        """What other machines have published, by `MACHINE.KEY`."""
        self._shared: Shared = {}
        self._is_complete = False
        self._changed = asyncio.Event()
        self.problem = ""
        """Why keys are not mirrored, in words for people; empty while they are."""

    async def run(self) -> None:
        """Publishes and mirrors until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._write())
            group.create_task(self._publish())

    def status(self) -> dict[str, Any]:
        """Returns how many credentials other machines have published, and which of them several publish."""
        kinds = [key.partition(".")[2][:2] for key in self._others]
        shared = [
            {
                "kind": "key" if record.startswith(KEY) else "session",
                "id": record[len(KEY) :],
                "machines": list(machines),
            }
            for record, machines in sorted(self._shared.items())
        ]
        return {
            "keys": kinds.count(KEY),
            "sessions": kinds.count(SESSION),
            "problem": self.problem,
            "shared": shared,
        }

    async def _watch(self) -> None:
        while True:
            try:
                async with aclosing(self._bus.watch(names.KEYS)) as changes:
                    async for key, value in changes:
                        self._note(key, value)
            except NotAllowed as error:
                # The role was taken from this machine. Mirrored keys end with the hour, as without a connection.
                self.problem = str(error)
                log.warning("keys_not_mirrored", extra={"error": self.problem})
            # It may get the role again; what was published and deleted meanwhile is not told then.
            self._is_complete = False
            self._others.clear()
            self._published.clear()
            await pause(FORBIDDEN_SECONDS)

    def _note(self, key: str, value: bytes | None) -> None:
        machine, _, record = key.partition(".")
        if not key:
            self._is_complete = True
        elif machine == self._me and value is None:
            self._published.pop(record, None)  # lost with the engine: it is published again
        elif machine == self._me:
            self._published.setdefault(record, {})
        elif value is None:
            self._others.pop(key, None)
        elif is_machine_name(machine) and (fields := _decoded(value)) is not None:
            self._others[key] = fields
        self._changed.set()

    async def _write(self) -> None:
        """Writes the mirror when something has changed, and marks it as fresh while the engine answers."""
        written: tuple[dict[str, dict[str, Any]], frozenset[str]] | None = None
        while True:
            if self._is_complete and self._bus.connected:
                try:
                    found = dict(self._others), frozenset(self._published)
                    if written != found:
                        self._tell_shared(await asyncio.to_thread(self._write_files, *found))
                        written = found
                    # A connection is no proof: an engine whose bucket has no leader delivers no revocation either.
                    here = await self._bus.get(names.KEYS, f"{self._me}.{HERE}")
                    if here is not None or HERE not in self._published:
                        await asyncio.to_thread(mark_fresh, self._home)
                    self.problem = ""
                except (StoreFailed, BusError) as error:
                    self.problem = str(error)
                    log.warning("keys_not_mirrored", extra={"error": self.problem})
            try:
                async with asyncio.timeout(FRESH_SECONDS):
                    await self._changed.wait()
                await pause(GATHER_SECONDS)
            except TimeoutError:
                pass
            self._changed.clear()

    def _write_files(self, others: Mapping[str, dict[str, Any]], own: Collection[str]) -> Shared:
        """Writes the mirror; returns what several machines publish. `own` is published here. Raises StoreFailed."""
        keys, sessions, revoked = list[Mirrored[ApiKey]](), list[Mirrored[Session]](), list[Revocation]()
        machines: dict[str, list[str]] = {record: [self._me] for record in own}
        for key, fields in others.items():
            machine, _, record = key.partition(".")
            try:
                if record.startswith(KEY):
                    keys.append(Mirrored(machine, _decode(KEYS, record, _with_machines(machine, fields))))
                elif record.startswith(SESSION):
                    sessions.append(Mirrored(machine, _decode(SESSIONS, record, fields)))
                elif record.startswith(REVOKED):
                    revoked.append(_decode(REVOCATIONS, record, fields))
            except INVALID_RECORD as error:
                log.info("credential_not_understood", extra={"key": key, "error": str(error)})
            else:
                machines.setdefault(record, []).append(machine)
        shared = {
            record: tuple(sorted(publishers))
            for record, publishers in machines.items()
            if len(publishers) > 1 and record.startswith((KEY, SESSION))
        }
        # Revocations first: a credential must not count for a moment because its revocation comes later.
        Revocations(self._home).add_mirrored(revoked, self._clock.now() - KEEP_REVOCATIONS)
        MirrorFile(self._home, KEYS_FILE, KEYS, self._clock).write(
            one for one in keys if f"{KEY}{one.record.key_id}" not in shared
        )
        MirrorFile(self._home, SESSIONS_FILE, SESSIONS, self._clock).write(
            one for one in sessions if f"{SESSION}{one.record.session_id}" not in shared
        )
        gone = {one.record_id for one in revoked}
        KeyFile(self._home, self._clock).forget(gone)
        SessionFile(self._home, self._clock).forget(gone)
        return shared

    def _tell_shared(self, shared: Shared) -> None:
        """Tells of the credentials that several machines publish, and did not before."""
        for record, machines in shared.items():
            if self._shared.get(record) != machines:
                log.warning("credential_published_twice", extra={"credential": record, "machines": machines})
        for machines in sorted({*shared.values()} - {*self._shared.values()}):
            self._note_for_people(
                f"{' and '.join(machines)} publish the same keys or sessions, so no other gateway honours them: "
                "`synapse fleet doctor` says what to do"
            )
        self._shared = shared

    async def _publish(self) -> None:
        while True:
            try:
                wanted = await asyncio.to_thread(self._own.rows, self._clock.now() - KEEP_REVOCATIONS)
                if wanted != self._published and self._bus.connected and self._is_complete:
                    await self._put(wanted)
            except (StoreFailed, BusError) as error:
                if self.problem != str(error):
                    self.problem = str(error)
                    log.warning("keys_not_published", extra={"error": self.problem})
            await pause(LOOK_SECONDS)

    async def _put(self, wanted: Rows) -> None:
        """Raises BusError."""
        # Revocations first: they are why people wait.
        for record, fields in sorted(wanted.items(), key=lambda one: not one[0].startswith(REVOKED)):
            if self._published.get(record) != fields:
                await self._bus.put(names.KEYS, f"{self._me}.{record}", json.dumps(fields).encode())
                self._published[record] = fields
        for record in tuple(self._published.keys() - wanted.keys()):
            await self._bus.delete(names.KEYS, f"{self._me}.{record}")
            self._published.pop(record, None)


def take_over_revocation(home: Path, key: str, value: bytes) -> None:
    """Keeps an entry of a machine that is removed as one of this machine, if it is a revocation. Raises StoreFailed."""
    record = key.partition(".")[2]
    fields = _decoded(value) if record.startswith(REVOKED) else None
    if fields is None:
        return
    try:
        revocation = _decode(REVOCATIONS, record, fields)
    except INVALID_RECORD as error:
        log.info("credential_not_understood", extra={"key": key, "error": str(error)})
        return
    Revocations(home).take_over(revocation)


class _OwnFiles:
    """The credentials of this machine, as they are published."""

    def __init__(self, home: Path) -> None:
        self._files: tuple[tuple[str, RecordFile[Any], Records[Any]], ...] = (
            (KEY, RecordFile(home / KEYS_FILE, KEYS), KEYS),
            (SESSION, RecordFile(home / SESSIONS_FILE, SESSIONS), SESSIONS),
        )
        self._revocations = Revocations(home).own

    def rows(self, since: datetime) -> Rows:
        """Returns the records to publish; revocations only since a time. Raises StoreFailed."""
        rows: Rows = {HERE: {}}
        for prefix, file, records in self._files:
            rows |= {f"{prefix}{key}": records.encode(record) for key, record in file.current().items()}
        for key, revocation in self._revocations.current().items():
            if revocation.at >= since:
                rows[f"{REVOKED}{key}"] = REVOCATIONS.encode(revocation)
        return rows


def _decode(records: Records[R], record: str, fields: Mapping[str, Any]) -> R:
    """Returns the record of an entry `k-ID`, `s-ID` or `r-ID`. Raises INVALID_RECORD, also if it has another id."""
    decoded = records.decode(fields)
    if records.id_of(decoded) != record[len(KEY) :]:
        raise ValueError("its id is not that of its entry")
    return decoded


def _with_machines(machine: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a key of another machine with the full names of the agents that it may use. Raises TypeError.

    A bare name means an agent of the key's own machine, and never one of the same name on this machine.
    """
    if fields.get("agents") is None:
        return dict(fields)
    agents = texts_in(fields["agents"])
    here = [name if "@" in name else on_machine(name, machine) for name in agents]
    return {**fields, "agents": here}


def _decoded(value: bytes) -> dict[str, Any] | None:
    try:
        fields: Any = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else None
