"""Ships this machine's log to the replicas of gateways: runs the `Shipper` over the engine and link.db.

The relay's shell tells it of the connection (`read_engine`, `lose_engine`): the engine's copy of the log is read after
this machine's incarnation, and before any message is heard.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final, assert_never

from synapse.core.errors import StoreFailed
from synapse.core.waiting import pause
from synapse.fleet.bus import Bus, BusError
from synapse.fleet.log import (
    AnswerRange,
    BatchKept,
    ChainStored,
    EngineLost,
    EngineRead,
    IncarnationTaken,
    KeepBatch,
    LogEffect,
    LogEvent,
    LogGrew,
    PieceRequest,
    RangeAnswer,
    RangeAsked,
    RangeRequest,
    ReadEngine,
    ReadRows,
    ReportOutdated,
    RowsRead,
    Shipper,
    StoreChain,
    encode_log,
)
from synapse.fleet.names import log_subject
from synapse.fleet.relay_io import Outdated
from synapse.fleet.wire import Incarnation
from synapse.link.database import LinkDatabase
from synapse.link.store_log import StoreLog

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
RANGE_SECONDS: Final = 8.0


class LogShipping:
    """Ships the log while `run` runs. The other parts of the link tell it what happens."""

    def __init__(
        self,
        machine: str,
        schema: int,
        *,
        bus: Bus,
        database: LinkDatabase,
        store_log: StoreLog,
        on_outdated: Callable[[Outdated], None],
    ) -> None:
        self._machine = machine
        self._schema = schema
        self._bus = bus
        self._database = database
        self._log = store_log
        self._on_outdated = on_outdated
        self._shipper: Shipper | None = None
        self._incarnation: Incarnation | None = None
        self._tailed = 0
        self._last_number: int | None = None
        self._session = secrets.token_hex(8)
        """Makes the ids of batches unlike those of earlier processes: the engine drops a repeated one."""
        self._token = 0
        self._ranges: dict[int, asyncio.Future[RangeAnswer]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._is_connected = False
        self._reading: asyncio.Task[None] | None = None
        self._engine_read = asyncio.Event()
        self._failure: asyncio.Future[None] | None = None

    @property
    def lag(self) -> int:
        """How many seqs of the log are not in a stored batch yet."""
        return max(0, self._tailed - self._shipper.shipped.seq) if self._shipper is not None else 0

    def loaded(self, incarnation: Incarnation) -> None:
        """Takes the incarnation with which the relay begins."""
        self._incarnation = incarnation
        self._ready.set()
        if self._shipper is not None:
            self._step(IncarnationTaken(incarnation=incarnation))

    def grew(self, seq: int) -> None:
        """Takes the position up to which the relay has read the log."""
        self._tailed = seq
        if self._shipper is not None:
            self._step(LogGrew(seq=seq))

    async def read_engine(self) -> None:
        """Takes a new connection; returns when the shipper knows the end of this machine's log in the engine."""
        self.lose_engine()
        self._is_connected = True
        if self._shipper is not None:
            self._read_engine(0.0)
        await self._engine_read.wait()

    def lose_engine(self) -> None:
        """Takes the loss of the connection."""
        self._is_connected = False
        self._engine_read.clear()
        if self._reading is not None:
            self._reading.cancel()
        self._step(EngineLost())

    async def run(self) -> None:
        """Ships until it is cancelled."""
        await self._ready.wait()
        while True:
            try:
                await self._run_once()
            except StoreFailed as error:
                log.warning("log_not_shipped", extra={"error": str(error)})
            finally:
                self._shipper = None
                for job in tuple(self._jobs):
                    job.cancel()
            await pause(RETRY_SECONDS)

    async def _run_once(self) -> None:
        """Ships until a mark cannot be stored or a job fails. Raises StoreFailed, or the error of the job."""
        self._failure = asyncio.get_running_loop().create_future()
        chain = await self._database.read_chain()
        if self._incarnation is None:
            return
        self._shipper = Shipper(self._machine, self._incarnation, self._schema, chain)
        self._step(LogGrew(seq=self._tailed))
        if self._is_connected:
            self._read_engine(0.0)
        await self._failure

    async def answer(self, request: RangeRequest | PieceRequest) -> bytes:
        """Answers a replica's request for a part of this machine's log. Raises StoreFailed or TimeoutError."""
        if isinstance(request, PieceRequest):
            return encode_log(await self._log.piece(request.seq, request.offset))
        end = await self._log.last_seq()
        if self._shipper is None:
            return encode_log(RangeAnswer())
        self._token += 1
        token = self._token
        self._ranges[token] = asyncio.get_running_loop().create_future()
        try:
            self._step(RangeAsked(token=token, request=request, end=end))
            async with asyncio.timeout(RANGE_SECONDS):
                return encode_log(await self._ranges[token])
        finally:
            del self._ranges[token]

    def _step(self, event: LogEvent) -> None:
        if self._shipper is None:
            return
        for effect in self._shipper.step(event):
            self._do(effect)

    def _do(self, effect: LogEffect) -> None:
        match effect:
            case ReadRows():
                self._start(self._read_rows(effect))
            case StoreChain():
                self._start(self._store(effect))
            case KeepBatch():
                self._start(self._keep(effect, self._last_number))
            case ReadEngine():
                self._read_engine(RETRY_SECONDS)
            case AnswerRange(token=token, answer=answer):
                waiting = self._ranges.get(token)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
            case ReportOutdated(why=why, counter=counter):
                self._on_outdated(Outdated(why=why, counter=counter))
            case _:
                assert_never(effect)

    def _start(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, job: asyncio.Task[None]) -> None:
        """Ends the shipping if the job has failed: the shipper would wait for it for ever."""
        if not job.cancelled() and (error := job.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _read_rows(self, effect: ReadRows) -> None:
        while True:
            try:
                rows, complete = await self._log.rows(
                    effect.after, effect.up_to, most_rows=effect.most_rows, most_bytes=effect.most_bytes
                )
            except StoreFailed as error:
                log.warning("log_not_shipped", extra={"error": str(error)})
                await pause(RETRY_SECONDS)
            else:
                break
        self._step(RowsRead(token=effect.token, rows=rows, complete=complete))

    async def _store(self, effect: StoreChain) -> None:
        try:
            await self._database.commit(effect.writes)
        except StoreFailed as error:
            self._fail(error)
            return
        self._step(ChainStored(token=effect.token))

    async def _keep(self, effect: KeepBatch, expected: int | None) -> None:
        """Publishes a batch after the message `expected`, which was the last one when the batch was made."""
        kept = False
        self._token += 1
        once = f"{self._machine}.{self._session}.{self._token}"
        try:
            number = await self._bus.keep(log_subject(self._machine), effect.body, once=once, expected_last=expected)
            kept = True
            if self._last_number == expected:  # else the engine was read again meanwhile
                self._last_number = number
        except BusError as error:
            log.info("batch_not_kept", extra={"error": str(error)})
        self._step(BatchKept(token=effect.token, kept=kept))

    def _read_engine(self, after: float) -> None:
        """Starts to read the end of the log in the engine. One at a time: the last number is that of the last read."""
        if self._reading is not None:
            self._reading.cancel()
        if self._is_connected:
            self._reading = self._start(self._read_last(after))

    async def _read_last(self, after: float) -> None:
        await pause(after)
        while True:
            try:
                last = await self._bus.last_kept(log_subject(self._machine))
            except BusError as error:
                log.info("engine_log_not_read", extra={"error": str(error)})
                await pause(RETRY_SECONDS)
            else:
                break
        self._last_number = last[0] if last is not None else 0
        self._step(EngineRead(last=last[1] if last is not None else None))
        self._engine_read.set()
