"""Which machines of the fleet are here, and what runs on them.

    SYN_PRESENCE      expires after 30 s: every machine writes its own key every 10 s, and when an agent's state changes
    SYN_INCARNATION   stays: the machine's incarnation, and when it was last connected, written every minute

A machine is present if it has a key in SYN_PRESENCE, away if only the other bucket knows it. Each process of a link has
a random `instance`. A link that finds another instance under its own name stops: two machines have the same key, as
after a disk was copied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from synapse.core.errors import Conflict, MachineAway, MachineNotFound
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.fleet.asks import AskFailed, Greet, Greeted, decode_answer, encode_ask
from synapse.fleet.bus import NO_CONNECTION, Bus, BusError, NobodyThere, NoReply, NotConnected
from synapse.fleet.names import INCARNATIONS, KEYS, PRESENCE, ask_subject, is_machine_name
from synapse.fleet.wire import NO_INCARNATION, Incarnation, UnreadableBody
from synapse.link.key_mirror import take_over_revocation
from synapse.link.members import Members

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 10.0
CHANGE_SECONDS: Final = 1.0
"""The least time between two beats, however often states change."""
LASTING_SECONDS: Final = 60.0
"""How often the time in SYN_INCARNATION is written."""
FRESH_SECONDS: Final = 2.0
"""How long what was read of all machines is used again."""
KEPT_SECONDS: Final = 30.0
"""How long it is used while the server answers no bucket, as a cluster does until it has elected a leader: so long as a
key in SYN_PRESENCE of a machine that has died."""
GREET_SECONDS: Final = 2.0
READ_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 1.0
"""How long a caller waits for what is only told beside the rest; a bucket without a leader does not answer."""

T = TypeVar("T")


class Present(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a machine says of itself in SYN_PRESENCE."""

    instance: str
    since: str
    """When its link connected, by its own clock."""
    beat: str = ""
    """When it wrote this, by its own clock."""
    version: str = ""
    incarnation: Incarnation = NO_INCARNATION
    agents: tuple[dict[str, Any], ...] = ()
    """As in `asks.AgentsListed`."""
    is_gateway: bool = False
    ships_log: bool = True


class Lasting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a machine leaves in SYN_INCARNATION."""

    incarnation: Incarnation
    seen: str = ""
    """When it was last connected, by its own clock."""
    version: str = ""
    ships_log: bool = True


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the fleet as this one sees it."""

    name: str
    present: Present | None
    lasting: Lasting | None

    @property
    def since(self) -> str:
        """Since when it is present, or away."""
        if self.present is not None:
            return self.present.since
        return self.lasting.seen if self.lasting is not None else ""

    @property
    def last_seen(self) -> str:
        """When it was there for certain, though it may have a key in SYN_PRESENCE that has not expired yet."""
        # Both are of its own clock, in one format.
        beat = max(self.present.since, self.present.beat) if self.present is not None else ""
        return max(beat, self.lasting.seen if self.lasting is not None else "")

    @property
    def version(self) -> str:
        told = self.present or self.lasting
        return told.version if told is not None else ""

    @property
    def incarnation(self) -> Incarnation:
        told = self.present or self.lasting
        return told.incarnation if told is not None else NO_INCARNATION

    @property
    def ships_log(self) -> bool:
        """Whether gateways get its log."""
        told = self.present or self.lasting
        return told is None or told.ships_log

    def shown(self) -> dict[str, Any]:
        """Returns the machine as the link's API shows it."""
        return {
            "name": self.name,
            "present": self.present is not None,
            "since": self.since,
            "version": self.version,
            "is_gateway": self.present is not None and self.present.is_gateway,
            "ships_log": self.ships_log,
        }


ReadAgents = Callable[[], Awaitable[tuple[dict[str, Any], ...]]]
OnSeen = Callable[[str, Incarnation], None]


class PresencePublisher:
    """Writes this machine's keys while `run` runs."""

    def __init__(  # noqa: PLR0913 - what it says of this machine, and to whom
        self,
        machine: str,
        me: Greeted,
        *,
        bus: Bus,
        clock: Clock,
        read_agents: ReadAgents,
        incarnation: Callable[[], Incarnation | None],
        is_gateway: Callable[[], bool],
        ships_log: bool = True,
    ) -> None:
        self._machine = machine
        self._me = me
        self._bus = bus
        self._clock = clock
        self._read_agents = read_agents
        self._incarnation = incarnation
        self._is_gateway = is_gateway
        self._ships_log = ships_log
        self._changed = asyncio.Event()
        self._connected_at = ""
        self._has_written = False
        self._lasting_at = float("-inf")

    def changed(self) -> None:
        """Makes the next beat come soon: an agent has come, gone or changed its state."""
        self._changed.set()

    async def require_alone(self) -> None:
        """Raises Conflict if another link answers to this machine's name."""
        try:
            body = encode_ask(Greet(instance=self._me.instance))
            answer = decode_answer(
                await self._bus.request(ask_subject(self._machine, self._machine), body, GREET_SECONDS)
            )
        except NobodyThere:
            return
        except (BusError, UnreadableBody):
            return  # nobody knows; the beats find out
        if isinstance(answer, AskFailed) or (isinstance(answer, Greeted) and answer.instance == self._me.instance):
            return
        raise self._twin(answer.version if isinstance(answer, Greeted) else "")

    async def run(self) -> None:
        """Writes the keys until it is cancelled. Raises Conflict when another link runs under this machine's name."""
        following = asyncio.create_task(self._follow_connection())
        try:
            while True:
                is_written = await self._try_to_beat()
                await pause(CHANGE_SECONDS)
                if is_written or not self._bus.connected:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(BEAT_SECONDS - CHANGE_SECONDS):
                            await self._changed.wait()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _try_to_beat(self) -> bool:
        """Returns whether the keys were written; not before this machine has an incarnation."""
        try:
            await self._beat()
        except BusError as error:
            log.debug("presence_not_written", extra={"error": str(error)})
            self._forget_connection()
        return self._has_written

    async def _follow_connection(self) -> None:
        """Lets the next beat come soon after each new connection: a server that was restarted has lost the keys."""
        async with aclosing(self._bus.changes()) as changes:
            await anext(changes)  # how it is now
            async for connected in changes:
                self._forget_connection()
                if connected:
                    self.changed()

    def _forget_connection(self) -> None:
        self._has_written, self._connected_at = False, ""

    async def leave(self) -> None:
        """Removes the presence at once: this machine goes away in order."""
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(GREET_SECONDS):
                if self._has_written:
                    await self._write_lasting()
                    await self._bus.delete(PRESENCE, self._machine)

    async def _beat(self) -> None:
        self._changed.clear()
        if not self._bus.connected:
            self._forget_connection()
            return
        incarnation = self._incarnation()
        if incarnation is None:
            return
        is_first = not self._has_written
        if not is_first:
            await self._look_for_twin()
        self._connected_at = self._connected_at or instant(self._clock)
        mine = Present(
            instance=self._me.instance,
            since=self._connected_at,
            beat=instant(self._clock),
            version=self._me.version,
            incarnation=incarnation,
            agents=await self._read_agents(),
            is_gateway=self._is_gateway(),
            ships_log=self._ships_log,
        )
        await self._bus.put(PRESENCE, self._machine, _encode(mine))
        self._has_written = True
        loop = asyncio.get_running_loop()
        # The first time after a connection was lost too: others have just read since when this machine was away.
        if is_first or loop.time() - self._lasting_at >= LASTING_SECONDS:
            self._lasting_at = loop.time()
            await self._write_lasting()

    async def write_incarnation(self) -> None:
        """Writes a new incarnation at once."""
        with suppress(BusError):
            await self._write_lasting()
        self.changed()

    async def _write_lasting(self) -> None:
        incarnation = self._incarnation()
        if incarnation is not None:
            mine = Lasting(
                incarnation=incarnation,
                seen=instant(self._clock),
                version=self._me.version,
                ships_log=self._ships_log,
            )
            await self._bus.put(INCARNATIONS, self._machine, _encode(mine))

    async def _look_for_twin(self) -> None:
        found = _present(await self._bus.get(PRESENCE, self._machine))
        if found is not None and found.instance != self._me.instance:
            raise self._twin(found.version)

    def _twin(self, version: str) -> Conflict:
        about = f" (version {version})" if version else ""
        return Conflict(
            f"another link{about} runs under the name {self._machine}, so this one has stopped",
            hint="the disk of a machine was copied? On the copy: `synapse fleet leave`; if it is a gateway, delete "
            "`keys.json` and `sessions.json` in its state folder; and join under another name",
        )


class Machines:
    """Reads which machines are here. Non-gateways read only what they need; see `all` for lists."""

    def __init__(self, me: str, bus: Bus, on_seen: OnSeen) -> None:
        self._me = me
        self._bus = bus
        self._on_seen = on_seen
        self._all: tuple[float, tuple[Machine, ...]] = (float("-inf"), ())
        self._reading: asyncio.Lock = asyncio.Lock()
        self._told: dict[str, tuple[Incarnation, bool]] = {}
        """The incarnation of each machine, and whether it was present, when the relay was last told of it."""
        self._beats: dict[str, str] = {}
        """The last beat of each machine that was read: SYN_INCARNATION is written less often."""

    async def find(self, name: str) -> Machine:
        """Returns one machine. Raises MachineNotFound or BusError."""
        machine = await self._read(name) if is_machine_name(name) else None
        if machine is None or (machine.present is None and machine.lasting is None):
            raise no_machine(name)
        return machine

    async def was_removed(self, name: str) -> bool:
        """Decides whether a machine was removed from the fleet; not if the engine has only lost what it knew of it.

        One that sleeps cannot write that again. Raises BusError.
        """
        try:
            await self.find(name)
        except MachineNotFound:
            return await self._bus.is_deleted(INCARNATIONS, name)
        return False

    async def away(self, name: str) -> MachineAway:
        """Returns the error for a machine that is not connected, with the time since when."""
        since = ""
        with suppress(BusError, MachineNotFound, TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                since = (await self.find(name)).last_seen
        return MachineAway(name, since)

    async def all(self) -> tuple[Machine, ...]:
        """Returns all other machines of the fleet, sorted. Raises BusError."""
        loop = asyncio.get_running_loop()
        async with self._reading:
            at, machines = self._all
            if loop.time() - at < FRESH_SECONDS:
                return machines
            try:
                lasting, present = await asyncio.gather(
                    _read_bucket(self._bus, INCARNATIONS), _read_bucket(self._bus, PRESENCE)
                )
            except NoReply:
                if loop.time() - at < KEPT_SECONDS:
                    return machines
                raise
            machines = tuple(
                self._seen(name, _present(present.get(name)), _lasting(lasting.get(name)))
                for name in sorted({*lasting, *present} - {self._me})
                if is_machine_name(name)
            )
            machines = tuple(one for one in machines if one.present is not None or one.lasting is not None)
            self._all = (loop.time(), machines)
            return machines

    async def tell_incarnations(self) -> None:
        """Tells the relay the incarnations of all machines, also of this one. Raises BusError."""
        for name, value in (await _read_bucket(self._bus, INCARNATIONS)).items():
            lasting = _lasting(value) if is_machine_name(name) else None
            if lasting is not None and lasting.incarnation != NO_INCARNATION:
                self._on_seen(name, lasting.incarnation)

    async def _read(self, name: str) -> Machine:
        present = _present(await self._bus.get(PRESENCE, name))
        lasting = _lasting(await self._bus.get(INCARNATIONS, name))
        return self._seen(name, present, lasting)

    def _seen(self, name: str, present: Present | None, lasting: Lasting | None) -> Machine:
        if present is not None:
            self._beats[name] = present.beat
        elif lasting is not None:
            lasting = msgspec.structs.replace(lasting, seen=max(lasting.seen, self._beats.get(name, "")))
        machine = Machine(name=name, present=present, lasting=lasting)
        self._tell(machine)
        return machine

    def _tell(self, machine: Machine) -> None:
        """Tells the relay about a machine that has appeared, or has another incarnation; not about every look."""
        now = (machine.incarnation, machine.present is not None)
        before, self._told[machine.name] = self._told.get(machine.name, (NO_INCARNATION, False)), now
        has_changed = now[0] != before[0] or (now[1] and not before[1])
        if has_changed and machine.incarnation != NO_INCARNATION and machine.name != self._me:
            self._on_seen(machine.name, machine.incarnation)


async def forget_removed(bus: Bus, members: Callable[[], Members], home: Path) -> None:
    """Deletes the entries and the mail of machines that were removed; for the machine that runs the fleet's server.

    Others then find no such machine, end their waits for it, and honour no key or session that was made there. What was
    revoked there stays so, by this machine. Nothing is delivered that it has left, nor to another one that gets its
    name. Raises BusError, StoreFailed, InvalidSettings.
    """
    for bucket in (PRESENCE, INCARNATIONS, KEYS):
        known = await _read_bucket(bus, bucket)
        # The members are read last: a machine that joins meanwhile keeps its entries.
        now = members().machines
        for entry, value in known.items():
            # Those of KEYS are `MACHINE.KEYID`.
            if entry.partition(".")[0] not in now:
                if bucket == KEYS:
                    await asyncio.to_thread(take_over_revocation, home, entry, value)
                await bus.delete(bucket, entry)
    await bus.discard_mails(lambda: members().machines)
    for name in members().removed:
        # A server that was wiped has lost the entry, or that it was deleted: `was_removed` needs to find that.
        if not await bus.is_deleted(INCARNATIONS, name) and name in members().removed:
            await bus.delete(INCARNATIONS, name)


async def _read_bucket(bus: Bus, bucket: str) -> dict[str, bytes]:
    """Returns all keys and values of a bucket, by one consumer. Raises BusError.

    A request for each key would cost the server fifteen times as much, and after its restart all machines ask at once.
    """
    found: dict[str, bytes] = {}
    if not bus.connected:
        # `watch` would wait for a connection, and with it everybody who asks for the status.
        raise NotConnected(NO_CONNECTION + bus.problem)
    try:
        async with asyncio.timeout(READ_SECONDS), aclosing(bus.watch(bucket)) as changes:
            async for name, value in changes:
                if not name:
                    break
                if value is not None:
                    found[name] = value
    except TimeoutError:
        raise NoReply(f"the server does not answer with the bucket {bucket}") from None
    return found


def no_machine(name: str) -> MachineNotFound:
    """Returns the error for a name that no machine of the fleet has."""
    return MachineNotFound(
        f"the fleet has no machine '{name}', or it has never been connected",
        hint="`synapse fleet status` shows the machines",
    )


def instant(clock: Clock) -> str:
    """Returns the time for people of all machines, in UTC and to the second."""
    return clock.now().isoformat(timespec="seconds").replace("+00:00", "Z")


def _present(value: bytes | None) -> Present | None:
    return _decoded(value, Present)


def _lasting(value: bytes | None) -> Lasting | None:
    return _decoded(value, Lasting)


def _decoded(value: bytes | None, shape: type[T]) -> T | None:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # Of a version that nobody knows yet: its machine counts as away until it is updated.
        log.warning("presence_unreadable", extra={"error": str(error)})
        return None


_encode: Final = msgspec.json.Encoder().encode
