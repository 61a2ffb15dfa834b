"""Shows the terminals of agents to any number of viewers of a gateway, over one connection to each agent's host.

    host ─► one connection ─► OutputRing ─► a sender for each viewer, within its credit
                          └─► the latest snapshot, for all who need one

Memory does not grow with viewers: output is kept once, and a viewer who reads nothing costs nothing. The host gets the
credit of the fastest viewer, so that a flood stops there and not here; a slower one gets a snapshot instead of what it
missed. The keyboard: of the viewers who want to type the first has it, until another takes it or it leaves; the host
decides between this gateway and people who are attached. The size is that of the viewer who types.

    connecting ─► shown ─► lost: the host ended ─► connecting, as long as there are viewers

A relay outlives its last viewer for a while, so that a browser that reconnects goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from synapse.attach.frames import Exited, Resize, Role, Size, Take
from synapse.attach.output_ring import OutputRing
from synapse.attach.terminal_frames import (
    HOST_TERMINAL,
    MAX_IN_FLIGHT,
    MAX_OUTPUT,
    MIN_COLUMNS,
    Credit,
    Failed,
    FromViewer,
    Input,
    Lost,
    Open,
    Output,
    Snapshot,
    ToTerminalViewer,
    decode_to_viewer,
    encode_from_viewer,
    split,
)
from synapse.core.errors import (
    AgentNotFound,
    AgentNotResponding,
    InvalidRequest,
    LinkDown,
    MachineAway,
    SynapseError,
)
from synapse.core.registry import Channel
from synapse.core.waiting import pause

log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 2.0
"""A host that takes nothing for this long counts as gone: keys must not pile up for it."""
_RETURNING: Final = (AgentNotFound, AgentNotResponding, LinkDown, MachineAway)
"""After these errors an agent that was shown before may return."""

Connect = Callable[[str], Awaitable[Channel]]
"""Connects to the terminal of an agent by its name. Raises a SynapseError."""
Say = Callable[[ToTerminalViewer], Awaitable[None]]
"""Sends a frame to a viewer; waits while the viewer is slow. Raises ConnectionError."""


class TerminalRelays:
    """The relays of a gateway, one for each agent that somebody views."""

    def __init__(
        self,
        connect: Connect,
        *,
        linger: float = LINGER_SECONDS,
        retry: float = RETRY_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._connect = connect
        self._linger = linger
        self._retry = retry
        self._patience = patience
        self._relays: dict[str, TerminalRelay] = {}

    def find(self, agent: str) -> TerminalRelay:
        """Returns the relay of an agent, whether it has viewers or not."""
        relay = self._relays.get(agent)
        if relay is None:
            relay = self._relays[agent] = TerminalRelay(
                agent, self._connect, linger=self._linger, retry=self._retry, patience=self._patience
            )
            relay.start(lambda: self._relays.pop(agent, None))
        return relay

    async def close(self) -> None:
        """Ends all relays."""
        for relay in tuple(self._relays.values()):
            await relay.close()


class TerminalRelay:
    """The terminal of one agent. Call it in the loop's thread."""

    def __init__(self, agent: str, connect: Connect, *, linger: float, retry: float, patience: float) -> None:
        self._agent = agent
        self._connect = connect
        self._linger = linger
        self._retry = retry
        self._patience = patience
        self._viewers: list[RelayViewer] = []
        self._owner: RelayViewer | None = None
        """The viewer who types, if the host lets this gateway type."""
        self._host_lets_type = False
        self._host: Channel | None = None
        self._job: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        """Hangs up on a host that has stopped."""
        self._on_end: Callable[[], object] = lambda: None
        self._is_lost = False
        self._error: SynapseError | None = None
        """Why the terminal cannot be shown."""
        self._linger_timer: asyncio.TimerHandle | None = None
        self._snapshot: Snapshot | None = None
        self._is_snapshot_asked = False
        self._credit_told = 0
        self.ring: OutputRing | None = None
        """The output; None before the first snapshot of a host."""
        self.run = ""
        self.size = (MIN_COLUMNS, 24)

    def start(self, on_end: Callable[[], object]) -> None:
        """Begins to connect; calls `on_end` when the relay ends, before it can get another viewer."""
        self._on_end = on_end
        self._job = asyncio.ensure_future(self._follow_host())
        # A page may leave before its viewer has joined.
        self._linger_timer = asyncio.get_running_loop().call_later(self._linger, self._end)

    async def close(self) -> None:
        """Ends the connection to the host."""
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._end()
        await asyncio.gather(*(job for job in (self._job, self._closing) if job is not None), return_exceptions=True)

    async def join(self, viewer: RelayViewer) -> None:
        """Adds a viewer, who gets the keyboard if nobody has it."""
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
        self._viewers.append(viewer)
        if self._is_lost:
            viewer.tell(Lost())
        if self._error is not None:
            viewer.tell(Failed(self._error))
        await self.claim(viewer)

    async def leave(self, viewer: RelayViewer) -> None:
        """Removes a viewer; its keyboard goes to the next who wants to type."""
        self._viewers.remove(viewer)
        if not self._viewers and self._job is not None and not self._job.done():
            self._linger_timer = asyncio.get_running_loop().call_later(self._linger, self._end)
        await self.claim(viewer)

    async def claim(self, viewer: RelayViewer) -> None:
        """Decides anew who types, after what the viewer wants has changed."""
        may_type = [one for one in self._viewers if one.wants_to_type]
        before = self._owner
        if self._owner not in may_type:
            self._owner = may_type[0] if may_type else None
        if self._owner is not before:
            await self._tell_wishes()
        self._tell_roles(viewer, before, self._owner)

    async def take_keyboard(self, viewer: RelayViewer) -> None:
        """Gives the viewer the keyboard, if it wants to type."""
        before = self._owner
        if viewer.wants_to_type:
            self._owner = viewer
            await self._tell_wishes()
            if not self._host_lets_type:
                await self._tell_host(Take())
        self._tell_roles(viewer, before)

    async def type_keys(self, viewer: RelayViewer, data: bytes) -> None:
        """Types keys of the viewer who has the keyboard; tells others that they have not."""
        if self.types(viewer):
            await self._tell_host(Input(data))
        else:
            self._tell_roles(viewer)

    async def resize(self, viewer: RelayViewer) -> None:
        """Gives the terminal the size of the viewer, if it types."""
        if viewer is self._owner:
            await self._tell_host(Resize(*viewer.size))

    async def pass_credit(self) -> None:
        """Lets the host send as much as the fastest viewer has shown."""
        credit = max((viewer.credited for viewer in self._viewers), default=0)
        if credit - self._credit_told >= MAX_OUTPUT:
            self._credit_told = credit
            await self._tell_host(Credit(credit))

    def types(self, viewer: RelayViewer) -> bool:
        """Returns whether the keys of the viewer reach the program."""
        return viewer is self._owner and self._host_lets_type and self._host is not None

    async def take_snapshot(self) -> Snapshot | None:
        """Returns a snapshot after which the output is kept; None if one has to come first: then viewers are woken."""
        found = self._snapshot
        if found is not None and (found.columns, found.rows) == self.size:
            return found
        if not self._is_snapshot_asked:
            self._is_snapshot_asked = True
            await self._tell_host(self._wishes(after=None))
        return None

    def _end(self) -> None:
        self._on_end()
        if self._job is not None:
            self._job.cancel()

    async def _follow_host(self) -> None:
        while True:
            try:
                self._host = await self._connect(self._agent)
            except _RETURNING as error:
                if self.ring is None and not isinstance(error, AgentNotResponding):
                    self._fail(error)
                    return
            except SynapseError as error:
                self._fail(error)
                return
            else:
                await self._converse(self._host)
            if not self._is_lost:
                self._is_lost = True
                self._tell_all(Lost())
            await pause(self._retry)

    async def _converse(self, host: Channel) -> None:
        """Reads what the host says until it hangs up."""
        self._is_snapshot_asked = self._host_lets_type = False
        after = self.ring.end if self.ring is not None else None
        self._credit_told = after or 0
        await self._tell_host(self._wishes(after=after))
        try:
            while (data := await host.receive()) is not None:
                said = decode_to_viewer(split(data))
                if said is not None:
                    self._handle(said)
        except InvalidRequest as error:
            log.warning("terminal_frame_not_understood", extra={"agent": self._agent, "error": str(error)})
        finally:
            await self._hang_up()
            self._tell_roles(*self._viewers)

    async def _hang_up(self) -> None:
        host, self._host, self._host_lets_type = self._host, None, False
        if host is not None:
            await _close(host)

    def _handle(self, said: Snapshot | Output | Size | Role | Exited) -> None:
        match said:
            case Output(offset, data):
                self._append(offset, data)
            case Snapshot():
                self._begin(said)
            case Size(columns, rows):
                self.size = columns, rows
                if self._is_lost:
                    self._is_lost = False
                    # A host that goes on in the same run may have nothing else to say.
                    self._tell_all(said)
                self._wake()
            case Role(types):
                self._host_lets_type = types
                self._tell_roles(self._owner)
            case Exited():
                self._tell_all(said)

    def _append(self, offset: int, data: bytes) -> None:
        if self.ring is None:
            return
        if offset != self.ring.end:
            # Output is missing, because this gateway was behind; the host has sent a snapshot of that offset.
            self.ring.restart(offset)
            self._wake()
        self.ring.append(data)
        if self._snapshot is not None and self._snapshot.offset < self.ring.start:
            self._snapshot = None

    def _begin(self, snapshot: Snapshot) -> None:
        self._is_snapshot_asked = False
        self._snapshot = snapshot
        self.size = snapshot.columns, snapshot.rows
        if self.ring is None or snapshot.run != self.run:
            self.run = snapshot.run
            self.ring = OutputRing(snapshot.offset)
            self._credit_told = snapshot.offset
            for viewer in self._viewers:
                viewer.forget_position()
        self._wake()

    def _wishes(self, *, after: int | None) -> Open:
        """Returns what all viewers together want of the host."""
        columns, rows = self._owner.size if self._owner is not None else self.size
        return Open(
            agent=self._agent, after=after, run=self.run, columns=columns, rows=rows, types=self._owner is not None
        )

    async def _tell_wishes(self) -> None:
        await self._tell_host(self._wishes(after=self.ring.end if self.ring is not None else 0))

    async def _tell_host(self, said: FromViewer) -> None:
        host = self._host
        if host is None:
            return
        try:
            async with asyncio.timeout(self._patience):
                await host.send(encode_from_viewer(HOST_TERMINAL, said))
        except TimeoutError:
            # One that has stopped must not hold up the other terminals of a page, nor a page that leaves.
            if self._host is host:
                self._host, self._host_lets_type = None, False
                self._tell_roles(*self._viewers)
                self._closing = asyncio.ensure_future(_close(host))
        except ConnectionError:
            pass  # a host that is gone is noticed where its frames are read

    def _tell_roles(self, *viewers: RelayViewer | None) -> None:
        for viewer in viewers:
            if viewer is not None:
                viewer.tell(Role(types=self.types(viewer)))

    def _tell_all(self, said: ToTerminalViewer) -> None:
        for viewer in self._viewers:
            viewer.tell(said)

    def _fail(self, error: SynapseError) -> None:
        self._error = error
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._on_end()
        self._tell_all(Failed(error))

    def _wake(self) -> None:
        for viewer in self._viewers:
            viewer.wake()


class RelayViewer:
    """One viewer of one terminal: where it is in the output, and what it wants."""

    def __init__(self, relay: TerminalRelay, say: Say, wanted: Open) -> None:
        self._relay = relay
        self._say = say
        self._frames: dict[type[ToTerminalViewer], ToTerminalViewer] = {}
        """The last one of each kind, in the order in which they came."""
        self._changed = asyncio.Event()
        self._changed.set()
        self._ring: OutputRing | None = None
        self._wanted_offset, self._wanted_run = wanted.after, wanted.run
        self._position: int | None = None
        """The offset of the next byte to send; None if a snapshot has to come first."""
        self._shown_size = (0, 0)
        self.credited = 0
        self.wants_to_type = wanted.types
        self.size = _fitting(wanted.columns, wanted.rows)

    async def show(self) -> None:
        """Sends the terminal until it cannot be shown, or this is cancelled. Raises ConnectionError."""
        try:
            await self._relay.join(self)
            while True:
                await self._changed.wait()
                self._changed.clear()
                for frame in self._take_frames():
                    await self._say(frame)
                    if isinstance(frame, Failed):
                        return
                await self._send_output()
        finally:
            self._follow(None)
            await self._relay.leave(self)

    async def receive(self, said: Open | Input | Resize | Credit | Take) -> None:
        """Does what the viewer asks."""
        match said:
            case Input(data):
                await self._relay.type_keys(self, data)
            case Credit(offset):
                if self._position is not None and self.credited < offset <= self._position:
                    self.credited = offset
                    self.wake()
                    await self._relay.pass_credit()
            case Resize(columns, rows):
                self.size = _fitting(columns, rows)
                await self._relay.resize(self)
            case Take():
                await self._relay.take_keyboard(self)
            case Open():
                self.size, self.wants_to_type = _fitting(said.columns, said.rows), said.types
                await self._relay.claim(self)
                await self._relay.resize(self)
                if said.after is None:
                    self.forget_position()
                    self.wake()

    def tell(self, said: ToTerminalViewer) -> None:
        """Sends a frame soon; it replaces one of its kind that was not sent yet."""
        self._frames.pop(type(said), None)
        self._frames[type(said)] = said
        self._changed.set()

    def wake(self) -> None:
        """Looks for something to send."""
        self._changed.set()

    def forget_position(self) -> None:
        """Makes the viewer begin with a snapshot: what it has is of another run, or it asks for one."""
        self._position = None

    def _take_frames(self) -> Iterator[ToTerminalViewer]:
        while self._frames:
            yield self._frames.pop(next(iter(self._frames)))

    async def _send_output(self) -> None:
        """Sends what there is, as far as the credit goes."""
        while (ring := self._relay.ring) is not None and not self._frames:
            self._follow(ring)
            await self._resume(ring)
            if self._position is None or self._shown_size != self._relay.size:
                if not await self._send_snapshot():
                    return
                continue
            room = min(self.credited + MAX_IN_FLIGHT - self._position, MAX_OUTPUT)
            if room <= 0:
                return
            data = ring.read(self._position, room)
            if data is None:
                self._position = None
            elif data:
                begin = self._position
                self._position += len(data)
                await self._say(Output(begin, data))
            else:
                return
        if self._frames:
            self._changed.set()

    async def _resume(self, ring: OutputRing) -> None:
        """Goes on at the offset that the viewer has named, if its output is kept."""
        wanted, self._wanted_offset = self._wanted_offset, None
        if wanted is not None and self._wanted_run == self._relay.run and ring.holds(wanted):
            self._position = self.credited = wanted
            self._shown_size = self._relay.size
            await self._say(Size(*self._shown_size))

    async def _send_snapshot(self) -> bool:
        """Sends a snapshot; False if none is there yet."""
        snapshot = await self._relay.take_snapshot()
        if snapshot is None:
            return False
        self._position = self.credited = snapshot.offset
        self._shown_size = snapshot.columns, snapshot.rows
        await self._say(snapshot)
        await self._relay.pass_credit()
        return True

    def _follow(self, ring: OutputRing | None) -> None:
        """Is woken by the output of `ring`, and of no other."""
        if ring is self._ring:
            return
        if self._ring is not None:
            self._ring.forget(self.wake)
        if ring is not None:
            ring.notify(self.wake)
        self._ring = ring


async def _close(host: Channel) -> None:
    with contextlib.suppress(ConnectionError):
        await host.close()


def _fitting(columns: int, rows: int) -> tuple[int, int]:
    return max(columns, MIN_COLUMNS), rows
