"""Asks agent hosts over their Unix sockets: commands, states, replies, terminals.

Connections for commands and states are kept and used again. Not for `synapse send`, which asks once and affords no
event loop (see `client.http`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from synapse.client.events import EventDecoder
from synapse.client.http import ANSWER_SECONDS, MAX_ANSWER_BYTES, READ_SIZE, ChunkDecoder, NoAnswer, header, status_of
from synapse.core.address import resolve
from synapse.core.agent import EXITED, AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import (
    AccessDenied,
    AgentFailed,
    AgentNotFound,
    AgentNotResponding,
    OutcomeUnknown,
    SynapseError,
    TaskNotFound,
    UnsupportedOperation,
    from_wire,
)
from synapse.core.json_text import decode_object, object_in
from synapse.core.registry import RETURN_SECONDS, AgentReply, Channel, Registry
from synapse.core.requests import CommandResult, HostCommand, Sender, SendMessage
from synapse.core.types import Clock
from synapse.dialects.synapse import commands

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

IDLE_SECONDS: Final = 2.0
"""A connection that was idle for longer is not used again: the host hangs up on idle ones, and must not do so while
something is on its way."""
CONNECTIONS_KEPT: Final = 16
STATUS_SECONDS: Final = 2.0
POLL_SECONDS: Final = 1.0
"""How often a host of an earlier version, which has no stream of states, is asked for its state."""
SILENCE_SECONDS: Final = 45.0
"""A stream says at least every 15 seconds that it is alive."""
_RETRY_SECONDS: Final = 0.1
_TERMINAL: Final = "ws://localhost/attach"
_LOOPBACK: Final = "127.0.0.1"
_NOT_FOUND: Final = 404
_GONE: Final = "its host has ended, or cannot be reached"
_HEAD: Final = b"%b %b HTTP/1.1\r\nHost: localhost%b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def open_host_client(registry: Registry, clock: Clock, on_silence: Callable[[], None]) -> UnixHostClient:
    """Return the client for the hosts of this machine; `on_silence` is called when a host does not answer."""
    return UnixHostClient(registry, clock, on_silence=on_silence)


class HostAnswer(NamedTuple):
    """What a host answered, whatever its status."""

    status: int
    body: bytes


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float


class UnixHostClient:
    """Implements `core.registry.HostClient`. One request at a time on each connection; a few idle ones are kept."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        on_silence: Callable[[], None] = lambda: None,
        return_seconds: float = RETURN_SECONDS,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._on_silence = on_silence
        self._return_seconds = return_seconds
        self._idle: dict[str, list[_Connection]] = {}

    def close(self) -> None:
        """Close all idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.writer.close()
        self._idle.clear()

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Let the agent's host do `request` on behalf of `caller`; see `HostClient.command`."""
        try:
            body = commands.encode_command(request, caller)
            answer = await self.ask(agent.socket, "POST", commands.PATH, body)
            if answer.status >= 400:
                raise commands.decode_failure(answer.body)
            return commands.decode_result(answer.body)
        except (NoAnswer, ValueError) as silence:
            self._on_silence()
            if isinstance(silence, NoAnswer) and not silence.sent:
                raise _not_responding(agent) from silence
            message_id = request.message.message_id if isinstance(request, SendMessage) else ""
            raise OutcomeUnknown(agent.agent_id, agent.port, agent.agent_type, message_id) from silence

    async def status(self, agent: AgentEntry) -> AgentStatus:
        """Return what the agent does now. Raises AgentNotResponding."""
        try:
            answer = await self.ask(agent.socket, "GET", commands.STATUS, seconds=STATUS_SECONDS)
            return commands.decode_agent_status(answer.body)
        except (NoAnswer, ValueError) as silence:
            raise _not_responding(agent) from silence

    async def follow_status(self, agent: AgentEntry) -> AsyncGenerator[AgentStatus, None]:
        """Yield what the agent does now, then each change of its state; see `HostClient.follow_status`."""
        last = ""
        deadline = self._clock.monotonic() + self._return_seconds
        while True:
            with suppress(NoAnswer):
                async with aclosing(self._statuses(agent)) as statuses:
                    async for status in statuses:
                        deadline = self._clock.monotonic() + self._return_seconds
                        if status.state != last:
                            last = status.state
                            yield status
            if last != EXITED:
                last = EXITED
                deadline = self._clock.monotonic() + self._return_seconds
                yield AgentStatus(state=EXITED, why=_GONE, source="host", since=self._clock.now())
            if self._clock.monotonic() >= deadline:
                return
            await _pause(_RETRY_SECONDS)

    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        """Bring `reply` to the host of the agent that waits for it; see `HostClient.deliver_reply`."""
        agent = await self._waiting_agent(to)
        try:
            # A connection of its own: one that was kept may be just about to be closed, and nothing is sent twice.
            connection = await _connected_anyhow(agent)
            body = commands.encode_reply(reply)
            request = _HEAD % (b"POST", commands.REPLY.encode(), b":%d" % agent.port, len(body)) + body
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer, _ = await _exchange(connection, request)
            finally:
                connection.writer.close()
        except (NoAnswer, TimeoutError) as silence:
            raise _not_responding(agent) from silence
        if answer.status == _NOT_FOUND:
            raise TaskNotFound(reply.in_reply_to)
        if answer.status >= 400:
            raise AgentFailed(f"{agent.agent_id} refused the reply: {commands.decode_failure(answer.body)}")

    async def open_terminal(self, agent: AgentEntry) -> Channel:
        """Connect to the agent's terminal; see `HostClient.open_terminal`."""
        # Few processes ever need it, and it takes as long to load as half of the rest.
        from websockets.asyncio.client import unix_connect  # noqa: PLC0415 - see above
        from websockets.exceptions import InvalidHandshake, InvalidStatus  # noqa: PLC0415 - see above

        try:
            connection = await unix_connect(
                agent.socket, _TERMINAL, max_size=None, compression=None, open_timeout=ANSWER_SECONDS, proxy=None
            )
        except InvalidStatus as refused:
            raise terminal_refusal(refused.response.status_code, bytes(refused.response.body or b"")) from refused
        except (OSError, InvalidHandshake) as error:
            raise _not_responding(agent) from error
        return _TerminalChannel(connection)

    async def ask(
        self, socket: str, method: str, path: str, body: bytes = b"", *, seconds: float = ANSWER_SECONDS
    ) -> HostAnswer:
        """Ask the host that listens at `socket`, and wait at most so many seconds for its answer.

        Raises:
            NoAnswer: it cannot be reached, went away, or was too slow; nothing is asked a second time.
        """
        request = _HEAD % (method.encode(), path.encode(), b"", len(body)) + body
        try:
            async with asyncio.timeout(seconds):
                connection = self._kept(socket) or await self._connected(socket)
                answer, stays = await _exchange(connection, request)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {seconds:g} seconds", sent=True, timed_out=True) from error
        if stays:
            self._keep(socket, connection)
        else:
            connection.writer.close()
        return answer

    def _kept(self, socket: str) -> _Connection | None:
        """An idle connection that can be used, or None. Others are closed on the way."""
        connections = self._idle.get(socket, [])
        newest = self._clock.monotonic() - IDLE_SECONDS
        while connections:
            kept = connections.pop()
            if kept.idle_since >= newest and not kept.reader.at_eof() and not kept.writer.is_closing():
                return kept
            kept.writer.close()
        self._idle.pop(socket, None)
        return None

    async def _connected(self, socket: str) -> _Connection:
        try:
            reader, writer = await asyncio.open_unix_connection(socket)
        except OSError as error:
            raise NoAnswer(str(error), sent=False) from error
        return _Connection(reader, writer, self._clock.monotonic())

    def _keep(self, socket: str, connection: _Connection) -> None:
        connections = self._idle.setdefault(socket, [])
        if len(connections) < CONNECTIONS_KEPT:
            connections.append(connection._replace(idle_since=self._clock.monotonic()))
        else:
            connection.writer.close()

    async def _waiting_agent(self, to: Sender) -> AgentEntry:
        """The agent that asked, also at another port; its former one may be another agent's by now."""
        agents = list(await self._registry.agents())
        if not to.inbox:
            return resolve(to.sender_id, agents)
        for agent in agents:
            if agent.inbox == to.inbox:
                return agent
        raise AgentNotFound(to.sender_id)

    async def _statuses(self, agent: AgentEntry) -> AsyncGenerator[AgentStatus, None]:
        """Yield what the host tells, until it ends or closes the stream. Raises NoAnswer when it is not there."""
        connection = await self._connected(agent.socket)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection.writer.write(_HEAD % (b"GET", commands.STATUS_STREAM.encode(), b"", 0))
                head = await connection.reader.readuntil(b"\r\n\r\n")
            status = status_of(head)
            if status < 400:
                async with aclosing(_streamed(connection.reader, head)) as statuses:
                    async for told in statuses:
                        yield told
        except TimeoutError as silence:
            raise _not_responding(agent) from silence
        except (OSError, EOFError, ValueError) as error:
            raise NoAnswer(str(error), sent=True) from error
        finally:
            connection.writer.close()
        if status == _NOT_FOUND:
            while True:
                yield await self._polled(agent)
                await _pause(POLL_SECONDS)
        if status >= 400:
            raise AgentFailed(f"{agent.agent_id} refuses to tell what it does (status {status})")

    async def _polled(self, agent: AgentEntry) -> AgentStatus:
        """Raises NoAnswer when the host has gone, and AgentNotResponding when it is silent."""
        try:
            answer = await self.ask(agent.socket, "GET", commands.STATUS, seconds=ANSWER_SECONDS)
            return commands.decode_agent_status(answer.body)
        except NoAnswer as silence:
            if silence.timed_out:
                raise _not_responding(agent) from silence
            raise
        except ValueError as error:
            raise NoAnswer(str(error), sent=True) from error


def terminal_refusal(status: int, body: bytes) -> SynapseError:
    """The error that tells why a host refused a connection to its agent's terminal."""
    if status == _NOT_FOUND:
        return UnsupportedOperation(
            "this agent has no terminal to attach to", hint="`synapse status` says what it does"
        )
    otherwise = f"it answered with status {status}"
    try:
        told = from_wire(object_in(decode_object(body), "error"), otherwise)
    except ValueError:
        # A body that is not JSON is the host's sentence.
        told = SynapseError(body.decode(errors="replace").strip() or otherwise)
    return AccessDenied(f"the agent's host refuses: {told}", hint=told.hint)


class _TerminalChannel:
    """Implements `core.registry.Channel` over a WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - loaded by whoever made the connection

        self._connection = connection
        self._closed = ConnectionClosed

    async def send(self, data: bytes | str) -> None:
        try:
            await self._connection.send(data)
        except self._closed as error:
            raise ConnectionError("the agent's host has closed the connection") from error

    async def receive(self) -> bytes | str | None:
        try:
            return await self._connection.recv()
        except self._closed:
            return None

    async def close(self) -> None:
        await self._connection.close()


def _not_responding(agent: AgentEntry) -> AgentNotResponding:
    return AgentNotResponding(agent.agent_id, agent.port, agent.agent_type)


async def _connected_anyhow(agent: AgentEntry) -> _Connection:
    """Connect to the host's Unix socket, else to its TCP port: a sandbox may hide the socket's folder."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(agent.socket)
    except OSError as error:
        if not agent.port:
            raise NoAnswer(str(error), sent=False) from error
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(_LOOPBACK, agent.port)
        except OSError as second:
            raise NoAnswer(str(second), sent=False) from second
    return _Connection(reader, writer, 0.0)


async def _exchange(connection: _Connection, request: bytes) -> tuple[HostAnswer, bool]:
    """Send a request; return the answer, and whether the connection can be used again.

    Raises NoAnswer. The connection is closed unless there is an answer.
    """
    try:
        connection.writer.write(request)
        await connection.writer.drain()
        head = await connection.reader.readuntil(b"\r\n\r\n")
        status = status_of(head)
        body = await connection.reader.readexactly(_length(head))
    except BaseException as error:
        connection.writer.close()
        if isinstance(error, OSError | EOFError | ValueError) and not isinstance(error, TimeoutError):
            raise NoAnswer(f"it hung up: {error}", sent=True) from error
        raise
    return HostAnswer(status, body), header(head, b"connection").lower() != b"close"


def _length(head: bytes) -> int:
    length = header(head, b"content-length")
    if not length.isdigit() or int(length) > MAX_ANSWER_BYTES:
        raise ValueError("its answer has no length, or is too long")
    return int(length)


async def _streamed(reader: asyncio.StreamReader, head: bytes) -> AsyncGenerator[AgentStatus, None]:
    """Yield the states of a stream until it ends; an `error` event is how a host that stops ends it."""
    chunks = ChunkDecoder() if header(head, b"transfer-encoding").lower() == b"chunked" else None
    decoder = EventDecoder()
    while True:
        async with asyncio.timeout(SILENCE_SECONDS):
            data = await reader.read(READ_SIZE)
        if not data:
            return
        for event in decoder.receive(chunks.receive(data) if chunks is not None else data):
            if event.name == "error":
                return
            yield commands.decode_agent_status(event.data.encode())
        if chunks is not None and chunks.ended:
            return


async def _pause(seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
