"""Runs the relay (`fleet.relay`): gives it what happens, and carries out what it decides.

    bus, hosts, callers, the tail of the log ─► events ─► Relay.step ─► effects ─► database, bus, hosts, callers

One step at a time, in the event loop; every effect that takes a while is a job of its own, which ends with an event. A
process that is killed anywhere loses only jobs: after its next start the relay begins them anew from `link.db`. A
commit that fails ends the relay in the same way, and so does a job with a defect; `run` loads it again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, assert_never

from synapse.core.errors import OutcomeUnknown, StoreFailed, SynapseError
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.fleet.bus import Arrival, Bus, BusError, NobodyThere, NotConnected
from synapse.fleet.names import mail_subject, relay_subject, sender_machine
from synapse.fleet.relay import Relay
from synapse.fleet.relay_io import (
    DEFAULT_LIMITS,
    Acknowledge,
    Announce,
    Answer,
    Arrived,
    AskHost,
    Connected,
    Disconnected,
    Effect,
    Event,
    HostAnswered,
    HostCall,
    HostOutcome,
    HostUnknown,
    KeepMail,
    MailKept,
    Notify,
    OutboxLimits,
    OutboxLoad,
    OutboxRow,
    OutboxState,
    PeerAnswered,
    PeerSeen,
    Postpone,
    Recalled,
    Report,
    RequestPeer,
    Store,
    Stored,
    StoreMark,
    Submitted,
    TailRow,
    Tick,
    WakeAt,
    Way,
)
from synapse.fleet.wire import Incarnation, MessageKind, RelayedMessage, UnreadableBody, decode_relay
from synapse.link.database import LinkDatabase, WriteOrder

log = logging.getLogger(__name__)

RELAY_SECONDS: Final = 5.0
"""How long another machine may take to answer with a receipt."""
_FINAL: Final = (OutboxState.SETTLED, OutboxState.VOID, OutboxState.UNCERTAIN)
"""A message in one of these is not sent again under its id. One that was refused may be."""
RELOAD_SECONDS: Final = 2.0
"""How long to wait after a commit has failed before the file is read again."""
FORBIDDEN_SECONDS: Final = 30.0
"""How long to wait before listening again where the server forbids it."""
CHECK_SECONDS: Final = 3.0
"""How long messages wait after a connection until this machine knows whether its files are a backup."""
QUIET_SECONDS: Final = 0.1
MOST_MAILS: Final = 1000
MOST_BYTES: Final = 8 * 1024 * 1024
"""Mails that are gathered before they are handled: until none comes for QUIET_SECONDS, and so many at most."""


class LocalHosts(Protocol):
    """Asks the hosts of this machine for the relay; see `link.deliveries`."""

    async def ask(self, call: HostCall, /) -> HostOutcome:
        """Raises nothing: what cannot be known is HostUnknown."""
        ...


class ReadMark(Protocol):
    """Looks at the store as it is now; `seq` is that of the tail, whose row is digested."""

    async def __call__(self, seq: int, /) -> StoreMark:
        """Raises StoreFailed."""
        ...


class OutboxUnknown(OutcomeUnknown):
    """The outbox cannot be read after a failure: it may have taken the message, or not."""

    def __init__(self, message_id: str, why: str) -> None:
        SynapseError.__init__(
            self,
            f"it is not known whether the outbox has taken the message: {why}",
            hint=f"`synapse fleet outbox` shows it; or send it again with the message id '{message_id}': "
            "a message is never taken twice",
        )


class RelayShell:
    """The relay of this machine while `run` runs. Callers of the machine use `submit` and `recall`."""

    def __init__(  # noqa: PLR0913 - the parts that the relay works with
        self,
        machine: str,
        *,
        bus: Bus,
        database: LinkDatabase,
        hosts: LocalHosts,
        read_mark: ReadMark,
        clock: Clock,
        limits: OutboxLimits = DEFAULT_LIMITS,
        relay_seconds: float = RELAY_SECONDS,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self._machine = machine
        self._bus = bus
        self._database = database
        self._hosts = hosts
        self._read_mark = read_mark
        self._clock = clock
        self._limits = limits
        self._relay_seconds = relay_seconds
        self._check_seconds = check_seconds
        self._relay: Relay | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._order = WriteOrder()
        """Of the writes since the relay was loaded."""
        self._failure: asyncio.Future[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._has_checked_files = False
        """The relay has been told what others know of this machine since it was loaded."""
        self._token = 0
        self._arrivals: dict[int, Arrival] = {}
        self._callers: dict[int, asyncio.Future[OutboxRow | None]] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.loaded = asyncio.Event()
        """Set while the relay takes events."""
        self.tail_seq = 0
        """How far the log has been read for ends of tasks, as `link.db` has it."""
        self.outcomes: Counter[str] = Counter()
        """How many messages of this machine's outbox reached each state since the start."""
        self.received: Counter[str] = Counter()
        """How many messages of other machines had each outcome at the hosts since the start."""
        self.problem = ""
        """Why the relay does not run, in words for people; empty while it does."""
        self.on_announce: Callable[[Announce], None] = lambda _: None
        self.on_notify: Callable[[Notify], None] = lambda _: None
        self.on_loaded: Callable[[Incarnation], None] = lambda _: None
        self.tell_incarnations: Callable[[], Awaitable[None]] = _nothing
        """Calls `saw` for all machines that the fleet knows, also this one. Raises BusError."""
        self.read_own_log: Callable[[], Awaitable[None]] = _nothing
        """Compares the engine's copy of this machine's log with its files, and gives Outdated if they are a backup."""
        self.on_disconnected: Callable[[], None] = lambda: None

    @property
    def incarnation(self) -> Incarnation | None:
        """This machine's incarnation; None before the relay is loaded."""
        return self._relay.incarnation if self._relay is not None else None

    @property
    def outbox_load(self) -> OutboxLoad:
        """How full the outbox is; as if it were empty before the relay is loaded."""
        return self._relay.outbox_load if self._relay is not None else OutboxLoad(limits=self._limits)

    async def run(self) -> None:
        """Relays messages until it is cancelled."""
        while True:
            try:
                await self._run_once()
            except StoreFailed as error:
                log.error("relay_stopped", extra={"error": str(error)})  # noqa: TRY400 - the sentence says it all
                self.problem = str(error)
            except Exception as error:
                log.exception("relay_failed")
                self.problem = f"the relay has failed and starts again: {_first(error)!r}"
            finally:
                await self._end()
            await pause(RELOAD_SECONDS)

    # What callers of this machine and the other parts of the link say

    async def submit(  # noqa: PLR0913 - the fields of Submitted
        self, to: str, message_id: str, *, target: str, task_id: str, body: bytes, queue: bool, expires_in: float
    ) -> OutboxRow:
        """Puts a message into the outbox; returns its row once it is accepted, refused, or known to take longer.

        A message for which the outbox has no room is refused with QueueFull; one that it knows never is.

        Raises:
            StoreFailed: the outbox did not take the message, so it will not be sent.
            OutboxUnknown: the relay has failed, and the file cannot be read either.
        """
        known = await self._database.find_message(message_id)
        if known is not None and known.state in _FINAL:
            return known
        token, reported = self._new_caller()
        event = Submitted(
            token=token,
            to=to,
            message_id=message_id,
            target=target,
            task_id=task_id,
            body=body,
            queue=queue,
            expires_in=expires_in,
        )
        try:
            self._step(event)
            row = await self._reported(token, reported)
        except StoreFailed as error:
            # The relay has ended, perhaps for another message. What this one's outbox row says will happen.
            row = await self._find_after(error, message_id)
            if row is None or (row == known and row.state is OutboxState.REFUSED):
                raise
        if row is None:
            raise StoreFailed("the outbox did not take the message")
        return row

    async def _find_after(self, failure: StoreFailed, message_id: str) -> OutboxRow | None:
        """Reads a message after the relay has failed; no commit of before can follow. Raises OutboxUnknown."""
        try:
            return await self._database.find_message(message_id)
        except StoreFailed:
            raise OutboxUnknown(message_id, str(failure)) from failure

    async def recall(self, message_id: str) -> OutboxRow | None:
        """Cancels a message that is not accepted yet; returns its row after it, None if the outbox does not have it.

        Raises StoreFailed.
        """
        token, reported = self._new_caller()
        self._step(Recalled(token=token, message_id=message_id))
        return await self._reported(token, reported)

    def give(self, event: Event) -> None:
        """Gives the relay an event of another part of the link. Dropped while the relay does not run."""
        if self._relay is not None:
            self._step(event)

    async def store(self, event: Event) -> None:
        """Gives the relay an event; returns when everything that it wrote is durable. Raises StoreFailed."""
        order = self._order
        self._step(event)
        await self._database.commit((), order)

    @asynccontextmanager
    async def watching(self, message_id: str) -> AsyncGenerator[asyncio.Event]:
        """Yields an event that is set whenever the outbox row of the message changes, until the block ends."""
        changed = asyncio.Event()
        self._waiting.setdefault(message_id, set()).add(changed)
        try:
            yield changed
        finally:
            waiting = self._waiting[message_id]
            waiting.discard(changed)
            if not waiting:
                del self._waiting[message_id]

    # The relay's life

    async def _run_once(self) -> None:
        """Loads the relay and runs it until a commit or a job fails. Raises StoreFailed, or the error of the job."""
        rows = await self._database.read_rows()
        mark = await self._read_mark(rows.tail.seq)
        self.tail_seq = rows.tail.seq
        relay, effects = Relay.load(self._now(), self._machine, rows, mark, lambda: secrets.token_hex(8), self._limits)
        self._order = WriteOrder()
        # No event may come before the first Stores are committed.
        stores = [effect for effect in effects if isinstance(effect, Store)]
        for store in stores:
            self._note_writes(store)
            await self._database.commit(store.writes, self._order)
        self._failure = asyncio.get_running_loop().create_future()
        self._relay, self.problem = relay, ""
        self.loaded.set()
        self.on_loaded(relay.incarnation)
        for effect in effects:
            if not isinstance(effect, Store):
                self._do(effect)
        for store in stores:
            self._step(Stored(token=store.token))
        following = asyncio.ensure_future(self._follow_connection())
        try:
            await asyncio.wait({self._failure, following}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (self._failure, following):
                if ended.done():
                    ended.result()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _end(self) -> None:
        """Forgets the relay, as a crash would."""
        self._relay = None
        self._has_checked_files = False
        self.loaded.clear()
        if self._wake is not None:
            self._wake.cancel()
        for job in tuple(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        self._arrivals.clear()
        for caller in self._callers.values():
            if not caller.done():
                caller.set_exception(_not_running(self.problem))
        self._callers.clear()

    def _step(self, event: Event) -> None:
        relay = self._relay
        if relay is None:
            raise _not_running(self.problem)
        for effect in relay.step(self._now(), event):
            self._do(effect)

    def _do(self, effect: Effect) -> None:  # noqa: C901, PLR0912 - one case for each effect
        match effect:
            case Store():
                self._note_writes(effect)
                self._commit(effect)
            case RequestPeer():
                self._start(self._request(effect))
            case KeepMail():
                self._start(self._keep(effect))
            case AskHost():
                self._start(self._ask_host(effect))
            case Answer(token=token, body=body):
                self._start(self._answer(self._arrivals.pop(token, None), body))
            case Acknowledge(token=token):
                self._start(self._acknowledge(self._arrivals.pop(token, None)))
            case Postpone(token=token, seconds=seconds):
                self._start(self._postpone(self._arrivals.pop(token, None), seconds))
            case Report(token=token, row=row):
                caller = self._callers.pop(token, None)
                if caller is not None and not caller.done():
                    caller.set_result(row)
            case Announce():
                log.warning("new_incarnation", extra={"incarnation": effect.incarnation.text, "why": effect.why})
                self.on_announce(effect)
            case Notify():
                log.info("relay_notice", extra={"text": effect.text, "machine": effect.machine})
                self.on_notify(effect)
            case WakeAt(at=at):
                self._wake_at(at)
            case _:
                assert_never(effect)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    # Effects

    def _start(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        task.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        """Ends the relay if the job has failed: the relay would wait for it for ever."""
        if not job.cancelled() and (error := job.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _commit(self, effect: Store) -> None:
        # Queued at once, not in the job: a write that is queued after this one must be committed after it.
        self._start(self._committed(effect, self._database.commit(effect.writes, self._order)))

    async def _committed(self, effect: Store, done: asyncio.Future[None]) -> None:
        try:
            await done
        except StoreFailed as error:
            self._fail(error)
            return
        self.give(Stored(token=effect.token))
        for write in effect.writes:
            if isinstance(write, OutboxRow):
                for changed in self._waiting.get(write.message_id, ()):
                    changed.set()

    async def _request(self, effect: RequestPeer) -> None:
        subject = relay_subject(effect.machine, self._machine)
        reply, nobody = None, False
        try:
            reply = await self._bus.request(subject, effect.body, self._relay_seconds)
        except (NobodyThere, NotConnected) as error:
            # Without a connection nothing was sent; only NobodyThere says that the machine is away.
            nobody = isinstance(error, NobodyThere)
        except BusError as error:
            log.info("relay_request_failed", extra={"machine": effect.machine, "error": str(error)})
        self.give(PeerAnswered(token=effect.token, reply=reply, nobody=nobody))

    async def _keep(self, effect: KeepMail) -> None:
        kept = False
        try:
            subject = mail_subject(effect.machine, self._machine)
            await self._bus.keep(subject, effect.body, once=effect.once, ttl=effect.ttl)
            kept = True
        except BusError as error:
            log.warning("mail_not_kept", extra={"machine": effect.machine, "error": str(error)})
        self.give(MailKept(token=effect.token, kept=kept))

    async def _ask_host(self, effect: AskHost) -> None:
        try:
            outcome = await self._hosts.ask(effect.call)
        except Exception:
            # A defect must not stop the relay; the message is tried again.
            log.exception("host_call_failed", extra={"call": type(effect.call).__name__})
            outcome = HostUnknown()
        self.received[type(outcome).__name__] += 1
        self.give(HostAnswered(token=effect.token, outcome=outcome))

    async def _answer(self, arrival: Arrival | None, body: bytes) -> None:
        if arrival is not None and arrival.reply_to:
            await self._quietly(self._bus.publish(arrival.reply_to, body))

    async def _acknowledge(self, arrival: Arrival | None) -> None:
        if arrival is not None:
            await self._quietly(self._bus.acknowledge(arrival))

    async def _postpone(self, arrival: Arrival | None, seconds: float) -> None:
        if arrival is not None:
            await self._quietly(self._bus.postpone(arrival, seconds))

    async def _quietly(self, act: Coroutine[Any, Any, None]) -> None:
        """Does something on the bus whose loss the protocol bears."""
        try:
            await act
        except BusError as error:
            log.info("bus_refused", extra={"error": str(error)})

    def _wake_at(self, at: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake = asyncio.get_running_loop().call_later(max(0.0, at - self._now()), self.give, Tick())

    def _note_writes(self, effect: Store) -> None:
        for write in effect.writes:
            if isinstance(write, TailRow):
                self.tail_seq = write.seq
            elif isinstance(write, OutboxRow):
                self.outcomes[f"{write.kind}.{write.state.value}"] += 1

    # Listeners

    async def _follow_connection(self) -> None:
        """Listens while there is a connection."""
        listening: asyncio.Task[None] | None = None
        try:
            async for connected in self._bus.changes():
                if connected and listening is None:
                    listening = asyncio.create_task(self._keep_listening())
                    listening.add_done_callback(self._ended)
                elif not connected and listening is not None:
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
                    listening = None
                    self.on_disconnected()
                    self.give(Disconnected())
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def _keep_listening(self) -> None:
        """Listens again after the server has forbidden it: an operator may change that."""
        while True:
            try:
                await self._listen()
            except* BusError as errors:
                why = "; ".join(str(error) for error in errors.exceptions)
                log.error("relay_deaf", extra={"why": why})  # noqa: TRY400 - the reason is what counts
                self.on_notify(Notify(text=f"this machine hears no messages: {why}"))
            await pause(FORBIDDEN_SECONDS)

    async def _listen(self) -> None:
        """Hears messages once the relay knows what the fleet knows of this machine: its files may be a backup.

        If the server does not tell in time, it hears them nevertheless: direct messages need no JetStream.
        """
        async with asyncio.TaskGroup() as group:
            checking = group.create_task(self._check_files())
            # A running relay was not restored from a backup: it need not wait for streams that have no leader.
            if not self._has_checked_files:
                done, _ = await asyncio.wait({checking}, timeout=self._check_seconds)
                if not done:
                    log.warning("files_not_checked")
                    late = "the fleet's server does not tell what it knows of this machine"
                    self.on_notify(Notify(text=f"{late}; messages are taken nevertheless"))
            self.give(Connected())
            relayed = self._bus.arrivals(relay_subject(self._machine, "*"))
            group.create_task(self._hear(relayed))
            group.create_task(self._hear_mails(self._bus.mails(self._machine)))

    async def _check_files(self) -> None:
        await self._tell_incarnations()
        await self.read_own_log()
        self._has_checked_files = True

    async def _tell_incarnations(self) -> None:
        while True:
            try:
                await self.tell_incarnations()
            except BusError as error:
                log.info("incarnations_not_read", extra={"error": str(error)})
                await pause(RELOAD_SECONDS)
            else:
                return

    async def _hear(self, arrivals: AsyncIterator[Arrival]) -> None:
        async for arrival in arrivals:
            self._arrived(arrival, Way.RELAY)

    async def _hear_mails(self, mails: AsyncIterator[Arrival]) -> None:
        """Takes the mails that came while this machine was away: first the cancels, so that none of them is too late.

        A machine that comes back finds both a message and its cancel.
        """
        async for waiting in gathered(mails):
            for mail in sorted(waiting, key=lambda one: not _is_void(one)):
                self._arrived(mail, Way.MAIL)

    def _arrived(self, arrival: Arrival, way: Way) -> None:
        self._token += 1
        self._arrivals[self._token] = arrival
        self.give(Arrived(token=self._token, way=way, machine=sender_machine(arrival.subject), body=arrival.body))

    def saw(self, machine: str, incarnation: Incarnation) -> None:
        """Tells the relay which incarnation a machine shows."""
        self.give(PeerSeen(machine=machine, incarnation=incarnation))

    def _new_caller(self) -> tuple[int, asyncio.Future[OutboxRow | None]]:
        self._token += 1
        reported: asyncio.Future[OutboxRow | None] = asyncio.get_running_loop().create_future()
        self._callers[self._token] = reported
        return self._token, reported

    async def _reported(self, token: int, reported: asyncio.Future[OutboxRow | None]) -> OutboxRow | None:
        try:
            return await reported
        finally:
            self._callers.pop(token, None)


async def gathered(mails: AsyncIterator[Arrival]) -> AsyncGenerator[list[Arrival], None]:
    """Yields the mails in lists: each ends when none has come for a moment, or when it is large enough."""
    coming: asyncio.Future[Arrival] = asyncio.ensure_future(_next_of(mails))
    try:
        while True:
            waiting = [await coming]
            size = len(waiting[0].body)
            while True:
                coming = asyncio.ensure_future(_next_of(mails))
                done, _ = await asyncio.wait({coming}, timeout=QUIET_SECONDS)
                if not done or len(waiting) >= MOST_MAILS or size >= MOST_BYTES:
                    break
                waiting.append(coming.result())
                size += len(waiting[-1].body)
            yield waiting
    except StopAsyncIteration:
        return
    finally:
        coming.cancel()


async def _next_of(mails: AsyncIterator[Arrival]) -> Arrival:
    return await anext(mails)


def _is_void(mail: Arrival) -> bool:
    try:
        body = decode_relay(mail.body)
    except UnreadableBody:
        return False
    return isinstance(body, RelayedMessage) and body.kind == MessageKind.VOID


def _first(error: BaseException) -> BaseException:
    """Returns the first error in a group, or the error itself."""
    while inner := getattr(error, "exceptions", ()):
        error = inner[0]
    return error


async def _nothing() -> None:
    """The default of `tell_incarnations`."""


def _not_running(why: str) -> StoreFailed:
    return StoreFailed(
        f"the outbox cannot be written: {why}" if why else "the link is starting",
        hint="`synapse fleet status` shows the link; try again in a moment",
    )
