"""The WebSocket `/dashboard/terminals`: one connection shows any number of terminals, and types into them.

    frames in ─► one after another ─► RelayViewer of the terminal ─► TerminalRelay of the agent ─► its host
    frames out ◄─ one sender for each terminal

Whoever opens one can read and type what the agent's own person can: the action `attach` is required.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Final, assert_never

from synapse.attach.frames import Resize, Take
from synapse.attach.relay import RelayViewer, TerminalRelays
from synapse.attach.terminal_frames import (
    Close,
    Credit,
    Failed,
    FromViewer,
    Input,
    Open,
    Ping,
    Pong,
    ToTerminalViewer,
    decode_from_viewer,
    encode_to_viewer,
    split,
)
from synapse.auth.policy import check_action, may_use
from synapse.core.caller import ATTACH, Caller
from synapse.core.errors import (
    AgentNotFound,
    InternalFailure,
    InvalidRequest,
    QueueFull,
    RateLimited,
    SynapseError,
    UnsupportedOperation,
)
from synapse.core.registry import Channel, HostClient
from synapse.core.waiting import pause
from synapse.gateway.directory import GatewayDirectory
from synapse.server.websocket import WebSocketChannel

log = logging.getLogger(__name__)

PATH: Final = "/dashboard/terminals"
SUBPROTOCOL: Final = "synapse.terminals"
MAX_TERMINALS: Final = 32
"""How many terminals one connection may show at a time."""
MAX_FRAMES_A_SECOND: Final = 2000
"""A connection that sends more is read more slowly."""
READMIT_SECONDS: Final = 60.0
"""How often a page that sends frames is admitted again: who types uses the session, and it must not end meanwhile."""


def terminal_relays(directory: GatewayDirectory, hosts: HostClient) -> TerminalRelays:
    """Returns the relays to the agents of a gateway."""

    async def connect(name: str) -> Channel:
        await directory.refresh()
        agent = directory.find(name)
        if agent is None:
            raise AgentNotFound(name)
        if agent.open_terminal is not None:
            return await agent.open_terminal(agent.entry)
        if not agent.entry.socket:
            raise UnsupportedOperation("this agent has no terminal", hint="it runs in the gateway, or elsewhere")
        return await hosts.follow_terminal(agent.entry)

    return TerminalRelays(connect)


class TerminalsSocket:
    """Implements WebSocketHandler."""

    def __init__(
        self,
        relays: TerminalRelays,
        *,
        acquire_slot: Callable[[Caller], AbstractContextManager[object]] = lambda _caller: nullcontext(),
        frames_a_second: int = MAX_FRAMES_A_SECOND,
        readmit_seconds: float = READMIT_SECONDS,
    ) -> None:
        self._relays = relays
        self._acquire_slot = acquire_slot
        self._frames_a_second = frames_a_second
        self._readmit_seconds = readmit_seconds

    async def __call__(self, channel: WebSocketChannel, caller: Caller) -> None:
        """Serves one connection until the page leaves.

        Raises:
            Forbidden: the caller may not attach.
            AccessDenied: its credentials are no longer valid.
            TooManyStreams: the caller has too many open streams; a connection counts as one, whatever it shows.
        """
        check_action(ATTACH, caller)
        with self._acquire_slot(caller):
            await channel.accept(SUBPROTOCOL)
            page = _Page(channel, caller, self._relays)
            try:
                await self._read(channel, page)
            finally:
                await page.close()

    async def _read(self, channel: WebSocketChannel, page: _Page) -> None:
        loop = asyncio.get_running_loop()
        begun, count = loop.time(), 0
        admitted = begun
        while (data := await channel.receive()) is not None:
            if channel.readmit is not None and loop.time() - admitted >= self._readmit_seconds:
                admitted = loop.time()
                with suppress(RateLimited):
                    await channel.readmit()
            if loop.time() - begun >= 1.0:
                begun, count = loop.time(), 0
            count += 1
            if count > self._frames_a_second:
                await pause(max(begun + 1.0 - loop.time(), 0.0))
            await page.receive(data)


class _Page:
    """One connection, and the terminals that it shows."""

    def __init__(self, channel: WebSocketChannel, caller: Caller, relays: TerminalRelays) -> None:
        self._channel = channel
        self._caller = caller
        self._relays = relays
        self._terminals: dict[int, tuple[RelayViewer, asyncio.Task[None]]] = {}

    async def receive(self, data: bytes | str) -> None:
        """Does what a frame says; answers with an error frame when that fails."""
        number = 0
        try:
            frame = split(data)
            number = frame.terminal
            await self._handle(number, decode_from_viewer(frame))
        except SynapseError as error:
            await self._say(number, Failed(error))

    async def close(self) -> None:
        """Ends all terminals."""
        await self._end(*self._terminals)

    async def _handle(self, number: int, said: FromViewer) -> None:
        shown = self._terminals.get(number)
        match said:
            case Ping():
                await self._say(number, Pong())
            case Close():
                await self._end(number)
            case Open() if shown is None:
                self._open(number, said)
            case Open() | Input() | Resize() | Credit() | Take():
                if shown is not None:
                    await shown[0].receive(said)
                elif not isinstance(said, Credit):
                    raise InvalidRequest(f"terminal {number} is not open")
            case _:
                assert_never(said)

    def _open(self, number: int, wanted: Open) -> None:
        if len(self._terminals) >= MAX_TERMINALS:
            raise QueueFull(f"this connection shows {MAX_TERMINALS} terminals already", hint="close one first")
        if not may_use(self._caller, wanted.agent):
            raise AgentNotFound(wanted.agent)
        viewer = RelayViewer(self._relays.find(wanted.agent), partial(self._say, number), wanted)
        log.info("terminal_opened", extra={"agent": wanted.agent, "caller": self._caller.name, "types": wanted.types})
        self._terminals[number] = viewer, asyncio.ensure_future(self._show(number, viewer))

    async def _show(self, number: int, viewer: RelayViewer) -> None:
        try:
            await viewer.show()
        except ConnectionError:
            return  # the page has left, and the reader notices it
        except Exception:
            # A defect in one terminal must not leave the others without an answer.
            log.exception("terminal_failed")
            await self._say(number, Failed(InternalFailure()))
        self._terminals.pop(number, None)

    async def _end(self, *numbers: int) -> None:
        jobs = [self._terminals.pop(number)[1] for number in numbers if number in self._terminals]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    async def _say(self, number: int, said: ToTerminalViewer) -> None:
        await self._channel.send(encode_to_viewer(number, said))
