"""The WebSockets `/attach` and `/terminal` of a proxy socket: those of an agent's host, on another machine.

    synapse attach, a gateway ─► WebSocket ─► RemoteAttach, RemoteTerminal ─► Streams.open ─► the other machine
    the other machine's link ─► serve_terminal ─► the WebSocket of the host

A gateway reconnects `/terminal` by itself, with the offset that it has. `synapse attach` does not, so `RemoteAttach`
opens another stream after a loss, repeats the viewer's hello, and the host paints its whole screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from synapse.attach.frames import Hello, Resize, Take, decode_to_host, encode
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import AgentNotResponding, LinkDown, MachineAway, PersonRequired
from synapse.core.registry import HostClient
from synapse.core.waiting import pause
from synapse.fleet.stream import Reason
from synapse.link.streams import StreamChannel, StreamKind, Streams, relay

if TYPE_CHECKING:
    # They load libraries that few links need.
    from synapse.attach.server import ViewerChannel
    from synapse.server.websocket import WebSocketHandler

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
_RETURNING: Final = (AgentNotResponding, LinkDown, MachineAway)
"""After these errors the agent may return; after others it is not worth trying."""
_POLICY: Final = 1008
"""The code of a WebSocket that is closed because of a rule (RFC 6455 §7.4.1)."""
# CAN ends a sequence that was cut off.
_NOTE: Final = "\x18\x1b7\x1b[999;1H\x1b[0;7m {} \x1b[0m\x1b[K\x1b8"

OpenStream = Callable[[StreamKind, str], Awaitable[StreamChannel]]
"""Opens a stream to the agent; see `Streams.open`, also for the second argument."""


def proxy_websockets(streams: Streams, machine: str, agent: str) -> Mapping[str, WebSocketHandler]:
    """Returns the WebSockets of the proxy socket of an agent on another machine."""
    connect = partial(streams.open, machine, agent)
    return {"/attach": RemoteAttach(connect, machine), "/terminal": RemoteTerminal(connect)}


async def serve_terminal(  # noqa: PLR0913 - the fields of the request, and what it needs
    streams: Streams,
    hosts: HostClient,
    agent: AgentEntry,
    kind: StreamKind,
    *,
    from_machine: str,
    stream_id: str,
    holds: Callable[[], bool],
) -> None:
    """Serves an agent of this machine to a machine that asks for it and may attach; `holds` says whether it still may.

    Raises what `HostClient.open_terminal` and `Streams.serve` raise.
    """
    match kind:
        case StreamKind.ATTACH:
            host = await hosts.open_terminal(agent)
        case StreamKind.TERMINAL:
            host = await hosts.follow_terminal(agent)
        case _:
            assert_never(kind)
    await streams.serve(from_machine, stream_id, host, holds=holds)
    log.info("terminal_served", extra={"agent": agent.agent_id, "machine": from_machine, "kind": kind.value})


class RemoteTerminal:
    """`/terminal`: the frames of `attach.terminal_frames`, passed on as they are. Implements WebSocketHandler."""

    def __init__(self, connect: OpenStream) -> None:
        self._connect = connect

    async def __call__(self, channel: ViewerChannel, caller: Caller) -> None:
        """Serves one connection. Raises PersonRequired, and what `Streams.open` raises."""
        _check_person(caller)
        remote = await self._connect(StreamKind.TERMINAL, "")
        try:
            await channel.accept()
            await relay(channel, remote)
        finally:
            await remote.close()


class RemoteAttach:
    """`/attach`: the frames of `attach.frames`. Implements WebSocketHandler."""

    def __init__(self, connect: OpenStream, machine: str, *, retry_seconds: float = RETRY_SECONDS) -> None:
        self._connect = connect
        self._machine = machine
        self._retry_seconds = retry_seconds

    async def __call__(self, channel: ViewerChannel, caller: Caller) -> None:
        """Serves one viewer until it leaves, or the other machine ends it. Raises as RemoteTerminal does."""
        _check_person(caller)
        viewer = _Viewer(channel, await self._connect(StreamKind.ATTACH, ""))
        try:
            await channel.accept()
            await self._serve(viewer)
        finally:
            await viewer.remote.close()

    async def _serve(self, viewer: _Viewer) -> None:
        """Shows the terminal until the viewer leaves."""
        reading = asyncio.ensure_future(viewer.pass_keys())
        showing = asyncio.ensure_future(self._show(viewer))
        try:
            await asyncio.wait((reading, showing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job in (reading, showing):
                job.cancel()
            outcomes = await asyncio.gather(reading, showing, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
                raise outcome

    async def _show(self, viewer: _Viewer) -> None:
        """Shows the terminal over one stream after another, until one ends in order."""
        while True:
            await viewer.show()
            ended = viewer.remote.ended
            if ended is None or not ended.is_loss:
                await viewer.leave(ended)
                return
            log.info("terminal_lost", extra={"machine": self._machine, "why": ended.value})
            await viewer.note(f"no connection to {self._machine}: trying again")
            await viewer.go_on(await self._reconnect(viewer.remote.stream_id))

    async def _reconnect(self, lost: str) -> StreamChannel:
        """Tries until a stream is open, or this is cancelled because the viewer has left."""
        while True:
            try:
                return await self._connect(StreamKind.ATTACH, lost)
            except _RETURNING:
                await pause(self._retry_seconds)


class _Viewer:
    """A person's `synapse attach`, and the stream that shows it the terminal."""

    def __init__(self, channel: ViewerChannel, remote: StreamChannel) -> None:
        self.remote = remote
        self._channel = channel
        self._hello: Hello | None = None

    async def pass_keys(self) -> None:
        """Passes on what the viewer sends, until it leaves. Keys that are typed without a connection are dropped."""
        while (data := await self._channel.receive()) is not None:
            if isinstance(data, str):
                self._remember(data)
            with contextlib.suppress(ConnectionError):
                await self.remote.send(data)

    async def show(self) -> None:
        """Passes on what the host sends, until the stream ends. Raises ConnectionError when the viewer has left."""
        while (data := await self.remote.receive()) is not None:
            await self._channel.send(data)

    async def leave(self, reason: Reason | None) -> None:
        """Closes the connection to the viewer, and says why if it was not the host that ended it."""
        if reason is not None and reason is not Reason.LEFT:
            await self._channel.close(_POLICY, reason.sentence)

    async def note(self, text: str) -> None:
        """Shows a sentence in the bottom row, until the host paints over it."""
        await self._channel.send(_NOTE.format(text).encode())

    async def go_on(self, remote: StreamChannel) -> None:
        """Goes on with another stream: the host answers the hello with its whole screen."""
        self.remote = remote
        if self._hello is not None:
            with contextlib.suppress(ConnectionError):
                await remote.send(encode(self._hello))

    def _remember(self, text: str) -> None:
        match decode_to_host(text):
            case Hello() as hello:
                # Another person who has taken the keyboard since keeps it.
                self._hello = replace(hello, take=False)
            case Resize(columns, rows) if self._hello is not None:
                self._hello = replace(self._hello, columns=columns, rows=rows)
            case Resize() | Take() | None:
                return


def _check_person(caller: Caller) -> None:
    if not caller.may_decide:
        raise PersonRequired("only a person may attach to a terminal on another machine", hint=caller.objection)
