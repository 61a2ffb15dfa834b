"""Keeps the replica of the other machines' logs current, on a machine with a gateway. The only writer of replica.db.

    connected ─► every machine: ask for what is missing ─► current
    a batch arrives live ─► it fits: written          it does not: ask the machine for the range, else other gateways

All writes go through one thread's turn at a time. A gateway reads the file, and wakes by its doorbell.

Another machine's log is taken only from that machine itself, as its subject proves, or from a machine with the role
gateway: only those can write a key to SYN_KEYS, so that is where they are listed. Requests for logs go on the subject
of commands: logs hold everything, so the server lets only gateways ask for them.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from synapse.core.caller import GATEWAY_SCOPE
from synapse.core.errors import StoreFailed
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.fleet.bus import Arrival, Bus, BusError
from synapse.fleet.log import (
    MOST_BYTES,
    MOST_ROWS,
    PIECE,
    START,
    Batch,
    LogRow,
    PieceAnswer,
    PieceRequest,
    RangeAnswer,
    RangeRequest,
    Replica,
    ReplicaHead,
    Taken,
    batches_of_range,
    decode_batch,
    decode_log,
    encode_batch,
    encode_log,
    whole_row,
)
from synapse.fleet.names import INCARNATIONS, KEYS, LOGS, command_subject, is_machine_name, sender_machine
from synapse.fleet.wire import Incarnation, UnreadableBody
from synapse.store.file import migrations, store_error
from synapse.store.replica import ReplicaFile

log = logging.getLogger(__name__)

ASK_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 3.0
"""A log counts as complete when its machine has nothing more, and no batch came for this long."""
RECHECK_SECONDS: Final = 60.0
"""How often all machines are listed, and asked for what is missing of their logs."""
PRUNE_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = 2.0
MOST_ROW_BYTES: Final = 64 * 1024 * 1024
"""A larger row is not fetched: no host takes messages of such a size, and the row is in memory until it is written."""

T = TypeVar("T")
_NO_ROWS: Final[Mapping[int, LogRow]] = {}


class _Gap(NamedTuple):
    """Why a part of a machine's log could not be taken, and since when that is so, by this machine's clock."""

    why: str
    since: datetime


class _Retry(NamedTuple):
    at: float
    wait: float


class ReplicaKeeper:
    """Takes the batches of all other machines while `run` runs."""

    def __init__(self, path: Path, bus: Bus, me: str, *, clock: Clock, keep_days: float = 0) -> None:
        """`keep_days` is how long finished tasks are kept; 0 keeps them for ever."""
        self._path = path
        self._bus = bus
        self._me = me
        self._clock = clock
        self._keep_days = keep_days
        self._schema = migrations()[-1][0]
        self._file: ReplicaFile | None = None
        self._replica = Replica()
        self._writing = asyncio.Lock()
        self._repairs: dict[str, asyncio.Task[None]] = {}
        self._repeated: set[str] = set()
        """The machines that must be asked once more, because something came while they were asked."""
        self._gaps: dict[str, _Gap] = {}
        """The machines whose log has a gap that could not be filled yet."""
        self._retries: dict[str, _Retry] = {}
        """When to ask again for what could not be had of a machine's log."""
        self._heard_at: dict[str, float] = {}
        self._pruned_at = -PRUNE_SECONDS
        self.problem = ""
        """Why the replica is not written, in words for people; empty while it is."""
        self.events = 0
        """How many events were written since the start."""
        self.repairs: Counter[str] = Counter()
        """How often a range of a machine's log was asked for since the start, because a batch was missing."""

    async def run(self) -> None:
        """Keeps the replica current until it is cancelled. A file that fails is opened again."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    await self._open()
                    self.problem = ""
                    group.create_task(self._listen())
                    group.create_task(self._follow_connection())
                    group.create_task(self._keep_house())
            except* (StoreFailed, OSError, sqlite3.Error) as failures:
                self.problem = "; ".join(str(store_error(one, self._path)) for one in _leaves(failures))
                log.warning("replica_not_written", extra={"error": self.problem})
            finally:
                await self._close()
            await pause(RETRY_SECONDS)

    def status(self) -> dict[str, Any]:
        """Returns how far the log of each machine is here."""
        if self._file is None:
            return {"problem": self.problem, "machines": []}
        newest = {one.machine: one for one in self._file.logs()}
        machines = [
            {
                "machine": one.machine,
                "incarnation": one.incarnation.text,
                "seq": one.mark.seq,
                "changed_at": _instant(one.changed_at),
                **self._gap_of(one.machine),
                "repairs": self.repairs[one.machine],
            }
            for one in newest.values()
        ]
        return {"problem": self.problem, "events": self.events, "machines": machines}

    def _gap_of(self, machine: str) -> dict[str, str]:
        gap = self._gaps.get(machine)
        if gap is None:
            return {"incomplete": "", "incomplete_since": ""}
        return {"incomplete": gap.why, "incomplete_since": _instant(gap.since)}

    async def take(self, batch: Batch) -> bool:
        """Writes a batch if it follows what is here; else asks for what is missing. Returns whether it was written.

        Raises StoreFailed, OSError or sqlite3.Error.
        """
        if any(row.is_large for row in batch.rows):
            # In the background: the batches of other machines must not wait for its pieces.
            self._repair(batch.machine)
            return False
        async with self._writing:
            decision = self._replica.take(batch)
            if not isinstance(decision, Taken):
                log.info("log_has_gap", extra={"machine": batch.machine, "decision": type(decision).__name__})
                # Further batches after the same gap do not ask again.
                self.repairs[batch.machine] += self._repair(batch.machine)
                return False
            self._heard_at[batch.machine] = self._clock.monotonic()
            return await self._write(decision)

    async def answer(self, request: RangeRequest | PieceRequest) -> bytes:
        """Answers another gateway's request about the log of a third machine."""
        if self._file is None:
            return encode_log(RangeAnswer() if isinstance(request, RangeRequest) else PieceAnswer(gone=True))
        if isinstance(request, PieceRequest):
            return encode_log(await self._do(lambda file: _piece(file, request)))
        return encode_log(await self._do(lambda file: _batches(file, request, self._schema)))

    async def _open(self) -> None:
        file = await asyncio.to_thread(ReplicaFile.open, self._path)
        self._file, self._replica = file, Replica(file.heads())

    async def _close(self) -> None:
        self._repeated.clear()
        repairs = tuple(self._repairs.values())
        for repair in repairs:
            repair.cancel()
        await asyncio.gather(*repairs, return_exceptions=True)
        self._repairs.clear()
        file, self._file = self._file, None
        if file is not None:
            async with self._writing:
                await asyncio.to_thread(file.close)

    async def _listen(self) -> None:
        async with aclosing(self._bus.arrivals(LOGS)) as arrivals:
            async for arrival in arrivals:
                if (batch := self._batch_in(arrival)) is not None:
                    await self.take(batch)

    def _batch_in(self, arrival: Arrival) -> Batch | None:
        machine = sender_machine(arrival.subject)
        if machine == self._me:
            return None
        try:
            batch = decode_batch(arrival.body)
        except UnreadableBody as error:
            self._note(machine, f"a batch of its log cannot be read: {error}")
            return None
        # The subject proves the machine, and not what the batch says.
        return batch if batch.machine == machine else None

    async def _follow_connection(self) -> None:
        async with aclosing(self._bus.changes()) as changes:
            async for connected in changes:
                if connected:
                    self._retries.clear()
                    await self._repair_all()

    async def _repair_all(self) -> None:
        try:
            machines = set(await self._bus.keys(INCARNATIONS))
        except BusError as error:
            log.info("machines_not_listed", extra={"error": str(error)})
            machines = set[str]()
        known = {head.machine for head in self._file.heads()} if self._file is not None else set[str]()
        for machine in sorted(machines | known):
            if machine != self._me and is_machine_name(machine):
                self._repair(machine)

    def _repair(self, machine: str) -> bool:
        """Asks for what is missing of a machine's log, in the background; once at a time.

        Returns whether the machine is asked for this call, and not only for one before it.
        """
        if machine == self._me or machine in self._repeated:
            return False
        if machine in self._repairs:
            self._repeated.add(machine)
            return True
        repair = self._repairs[machine] = asyncio.ensure_future(self._catch_up(machine))
        repair.add_done_callback(lambda _: self._repaired(machine))
        return True

    def _repaired(self, machine: str) -> None:
        """Asks the machine once more if something came while it was asked, up to the end of the task."""
        self._repairs.pop(machine, None)
        if machine in self._repeated:
            self._repeated.discard(machine)
            self._repair(machine)

    async def _catch_up(self, machine: str) -> None:
        try:
            why = await self._take_range(machine, machine)
            if why:
                for other in await self._gateways(machine):
                    if not await self._take_range(machine, other):
                        break
        except (StoreFailed, OSError, sqlite3.Error) as error:
            why = str(store_error(error, self._path))
        self._note(machine, why)
        self._plan_retry(machine, why)

    def _plan_retry(self, machine: str, why: str) -> None:
        """Lets a machine be asked again, later each time, and in the end with all others.

        After an outage of the engine, the other machine may be connected a moment later than this one.
        """
        if not why:
            self._retries.pop(machine, None)
            return
        known = self._retries.get(machine)
        wait = known.wait * 2 if known else QUIET_SECONDS
        at = self._clock.monotonic() + wait if wait < RECHECK_SECONDS else inf
        self._retries[machine] = _Retry(at, wait)

    async def _take_range(self, machine: str, source: str, *, to_its_end: bool = False) -> str:
        """Takes all that `source` has of a machine's log after the head here; returns why not, or an empty string.

        With `to_its_end`, it also returns why the machine has rows that it has not shipped yet.
        """
        while True:
            try:
                answer = await self._ask_range(machine, source)
                batches = [decode_batch(one) for one in answer.batches]
            except BusError as error:
                return str(error) or "the machine does not answer"
            except UnreadableBody as error:
                return f"the machine ships no log, or one that this version cannot read: {error}"
            if source == machine:
                await self._hear(machine, answer.incarnation)
            if answer.restart:
                await self._restart(machine)
            elif not await self._take_batches(machine, source, batches) and batches:
                return "its batches do not follow each other"
            elif not answer.more or not batches:
                return "it has not shipped all of its log yet" if to_its_end and not answer.whole else ""

    async def _ask_range(self, machine: str, source: str) -> RangeAnswer:
        """Raises BusError or UnreadableBody."""
        request = encode_log(self._replica.ask(machine))
        answer = decode_log(await self._bus.request(command_subject(source, self._me), request, ASK_SECONDS))
        if not isinstance(answer, RangeAnswer):
            raise UnreadableBody("it answered something else")
        return answer

    async def _take_batches(self, machine: str, source: str, batches: Iterable[Batch]) -> bool:
        """Writes batches of a range; returns whether all of them were written, and there were any."""
        is_any = False
        for batch in batches:
            # Before the lock is taken, which the logs of all machines share.
            fetched = await self._fetch_all(batch, source) if batch.machine == machine else None
            if fetched is None:
                return False
            async with self._writing:
                decision = self._replica.take(batch)
                if not isinstance(decision, Taken) or not await self._write(decision, fetched):
                    return False
            self._heard_at[machine] = self._clock.monotonic()
            is_any = True
        return is_any

    async def _hear(self, machine: str, incarnation: Incarnation) -> None:
        """Begins the log of a new incarnation, also if it is still empty: the old one has ended."""
        async with self._writing:
            if (begun := self._replica.hear(machine, incarnation)) is not None:
                await self._write(begun)

    async def _restart(self, machine: str) -> None:
        async with self._writing:
            head = self._replica.restart(machine)
            await self._in_thread(lambda file: file.restart(head, self._clock.now()))

    async def _write(self, taken: Taken, fetched: Mapping[int, LogRow] = _NO_ROWS) -> bool:
        """Writes what was taken, with its large rows; the caller holds the lock. Returns whether it was written."""
        rows = list[LogRow]()
        for row in taken.rows:
            whole = fetched.get(row.seq) if row.is_large else row
            if whole is None:
                await self._reload()  # another batch was taken while the rows of this one were fetched
                return False
            rows.append(whole)
        now = self._clock.now()
        try:
            gateways = await self._senders_for_callers(rows)
        except BusError as error:
            await self._reload()
            self._note(taken.head.machine, f"it is not known which machines are gateways: {error}")
            return False
        try:
            self.events += await self._in_thread(
                lambda file: file.take(replace(taken, rows=tuple(rows)), now, gateways)
            )
        except (ValueError, OverflowError, TypeError, sqlite3.IntegrityError) as error:
            # Such rows come from no store of ours. They must not keep the logs of other machines from being written.
            await self._reload()
            self._note(taken.head.machine, f"its log cannot be written: {error}")
            return False
        except BaseException:
            await self._reload()
            raise
        return True

    async def _senders_for_callers(self, rows: Sequence[LogRow]) -> frozenset[str]:
        """Returns the gateways, which alone send messages for callers of theirs; none if the rows name no such caller.

        The server lets only gateways write into the bucket of keys. Raises BusError.
        """
        if not any(GATEWAY_SCOPE.encode() in row.data for row in rows):
            return frozenset()
        return frozenset(key.partition(".")[0] for key in await self._bus.keys(KEYS)) | {self._me}

    async def _fetch_all(self, batch: Batch, source: str) -> dict[int, LogRow] | None:
        """Returns the large rows of a batch by their seqs, if the batch will be taken; None if that fails."""
        # A replica of its own, so that nothing is taken yet.
        decision = Replica([self._replica.head(batch.machine)]).take(batch)
        fetched: dict[int, LogRow] = {}
        if isinstance(decision, Taken):
            for row in decision.large:
                whole = await self._fetch(decision.head, row, source)
                if whole is None:
                    self._note(batch.machine, f"the large row {row.seq} could not be fetched")
                    return None
                fetched[row.seq] = whole
        return fetched

    async def _fetch(self, head: ReplicaHead, row: LogRow, source: str) -> LogRow | None:
        """Returns a large row with its data, fetched in pieces; None if that fails. A pruned row has no data."""
        if row.size > MOST_ROW_BYTES:
            log.warning("large_row_refused", extra={"machine": head.machine, "bytes": row.size})
            return None
        pieces: list[bytes] = []
        for offset in range(0, row.size, PIECE):
            request = PieceRequest(machine=head.machine, incarnation=head.incarnation, seq=row.seq, offset=offset)
            try:
                answer = decode_log(
                    await self._bus.request(command_subject(source, self._me), encode_log(request), ASK_SECONDS)
                )
            except (BusError, UnreadableBody) as error:
                log.info("large_row_not_fetched", extra={"machine": head.machine, "error": str(error)})
                return None
            if not isinstance(answer, PieceAnswer) or answer.gone:
                return LogRow(row.seq, b"") if isinstance(answer, PieceAnswer) else None
            pieces.append(answer.data)
        return whole_row(row, pieces)

    async def _reload(self) -> None:
        """Takes the heads from the file again: it does not have what the replica has decided to take."""
        if self._file is not None:
            self._replica = Replica(self._file.heads())

    async def _gateways(self, machine: str) -> list[str]:
        """Returns the other machines that keep replicas."""
        try:
            found = {key.partition(".")[0] for key in await self._bus.keys(KEYS)}
        except BusError:
            return []
        return sorted(found - {self._me, machine})

    async def _keep_house(self) -> None:
        """Closes the logs of ended incarnations, prunes, and asks all machines again."""
        rechecked = self._clock.monotonic()
        while True:
            await pause(QUIET_SECONDS)
            await self._close_logs()
            now = self._clock.monotonic()
            for machine in [one for one, retry in self._retries.items() if now >= retry.at]:
                self._repair(machine)
            if now - rechecked >= RECHECK_SECONDS and self._bus.connected:
                rechecked = now
                # Also those that seem complete: a batch may have come before the subscription, and nothing after it.
                await self._repair_all()
            if self._keep_days and now - self._pruned_at >= PRUNE_SECONDS:
                self._pruned_at = now
                await self._prune()

    async def _prune(self) -> None:
        now = self._clock.now()
        before = now - timedelta(days=self._keep_days)
        while await self._do(lambda file: file.prune(before, now)):
            pass

    async def _close_logs(self) -> None:
        for ended in self._file.logs_to_close() if self._file is not None else ():
            quiet = self._clock.monotonic() - self._heard_at.get(ended.machine, 0.0)
            if quiet < QUIET_SECONDS or ended.machine in self._repairs:
                continue
            # The new log may not be complete yet, also at its machine while the engine is away: its tasks are not lost.
            if await self._take_range(ended.machine, ended.machine, to_its_end=True):
                continue
            if self._clock.monotonic() - self._heard_at.get(ended.machine, 0.0) >= QUIET_SECONDS:
                lost = await self._do(partial(ReplicaFile.close_log, log=ended, now=self._clock.now()))
                log.warning("incarnation_ended", extra={"machine": ended.machine, "lost_tasks": lost})

    def _note(self, machine: str, why: str) -> None:
        known = self._gaps.get(machine)
        if not why:
            self._gaps.pop(machine, None)
        elif known is None or known.why != why:
            log.info("log_incomplete", extra={"machine": machine, "why": why})
            self._gaps[machine] = _Gap(why, self._clock.now() if known is None else known.since)

    async def _do(self, act: Callable[[ReplicaFile], T]) -> T:
        async with self._writing:
            return await self._in_thread(act)

    async def _in_thread(self, act: Callable[[ReplicaFile], T]) -> T:
        """Uses the file in a thread, to its end also when this is cancelled. The caller holds the lock."""
        file = self._file
        if file is None:
            raise StoreFailed("the replica is not open")
        return await asyncio.shield(asyncio.to_thread(act, file))


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def _leaves(failures: BaseExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for one in failures.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found


def _batches(file: ReplicaFile, request: RangeRequest, schema: int) -> RangeAnswer:
    """Returns the batches of a log that is replicated here; none if another incarnation is."""
    newest = next((head for head in file.heads() if head.machine == request.machine), None)
    if newest is None or newest.incarnation.counter < request.incarnation.counter:
        return RangeAnswer()
    after = request.after if newest.incarnation == request.incarnation else START
    head = ReplicaHead(machine=request.machine, incarnation=newest.incarnation, mark=after)
    marks, rows, complete = file.read_log(
        head, most_marks=MOST_ROWS, most_rows=MOST_ROWS * 2, most_bytes=MOST_BYTES * 2
    )
    batches = batches_of_range(head, schema, marks, rows, complete=complete)
    more = bool(batches) and batches[-1].last != newest.mark
    bodies = tuple(encode_batch(batch) for batch in batches)
    return RangeAnswer(incarnation=newest.incarnation, batches=bodies, more=more)


def _piece(file: ReplicaFile, request: PieceRequest) -> PieceAnswer:
    head = ReplicaHead(machine=request.machine, incarnation=request.incarnation)
    data = file.row_data(head, request.seq)
    if data is None:
        return PieceAnswer(gone=True)
    return PieceAnswer(data=data[request.offset : request.offset + PIECE])
