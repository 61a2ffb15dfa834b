"""Sends requests to agent hosts over their Unix sockets: commands, states, replies, terminals.

It reuses connections for commands and states. `synapse send` does not use it: for a single request an event loop takes
too long to load (see `client.http`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    LinkDown,
    MachineAway,
    MachineNotFound,
    OutcomeUnknown,
    SynapseError,
    TaskNotFound,
    UnsupportedOperation,
    from_wire,
)
from synapse.core.json_text import decode_object, object_in
from synapse.core.message import Sender
from synapse.core.registry import RETURN_SECONDS, AgentReply, Channel, Registry
from synapse.core.requests import MOST_FINISHED, CommandResult, HostCommand, SendMessage
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.dialects.synapse import commands
from synapse.dialects.synapse.encode import status_fields

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

IDLE_SECONDS: Final = 2.0
"""A connection that was idle for longer is not reused: the host closes idle ones, and must not do so while a request is
on its way."""
MAX_IDLE_CONNECTIONS: Final = 16
STATUS_SECONDS: Final = 2.0
POLL_SECONDS: Final = 1.0
"""How often to ask a host of an earlier version, which has no stream of states, for its state."""
SILENCE_SECONDS: Final = 45.0
"""A stream without any bytes for this long is dead: hosts of earlier versions send a keep-alive every 15 seconds."""
WATCH_SILENCE_SECONDS: Final = 12.0
"""The same for whole statuses, which earlier versions do not stream: people see them, and must not see old ones."""
CLOSE_SECONDS: Final = 1.0
"""How long a host has to confirm the end of a connection to its terminal."""
_RETRY_SECONDS: Final = 0.1
_ATTACH: Final = "ws://localhost/attach"
_TERMINAL: Final = "ws://localhost/terminal"
_NOT_FOUND: Final = 404
_NOT_MODIFIED: Final = 304
_OF_THE_FLEET: Final = (LinkDown, MachineAway, MachineNotFound, AgentNotFound, AgentNotResponding)
"""What a proxy socket says of an agent on another machine."""
_GONE: Final = "its host has ended, or cannot be reached"
_HEAD: Final = b"%b %b HTTP/1.1\r\nHost: localhost%b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def open_host_client(registry: Registry, clock: Clock, on_silence: Callable[[], None]) -> UnixHostClient:
    """Returns the client for the hosts of this machine; it calls `on_silence` when a host does not answer."""
    return UnixHostClient(registry, clock, on_silence=on_silence)


class HostAnswer(NamedTuple):
    """The response of a host, of any status."""

    status: int
    body: bytes


class _Told(NamedTuple):
    """What a host told of itself: the status of its agent, and the JSON in which it came; empty when it has ended."""

    status: AgentStatus
    body: bytes = b""


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float


class UnixHostClient:
    """Implements `core.registry.HostClient`. Each connection carries one request at a time; idle ones are reused."""

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
        """Closes all idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.writer.close()
        self._idle.clear()

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        """Sends `request` to the agent's host on behalf of `caller`; see `HostClient.command`."""
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
        """Returns the agent's status. Raises AgentNotResponding."""
        try:
            answer = await self.ask(agent.socket, "GET", commands.STATUS, seconds=STATUS_SECONDS)
            return commands.decode_agent_status(answer.body)
        except (NoAnswer, ValueError) as silence:
            raise _not_responding(agent) from silence

    async def follow_status(self, agent: AgentEntry) -> AsyncGenerator[AgentStatus, None]:
        """Yields the agent's status, then one for each change of its state; see `HostClient.follow_status`."""
        last = ""
        async with aclosing(self._followed(agent, commands.STATUS_STREAM, commands.STATUS)) as statuses:
            async for told in statuses:
                if told.status.state != last:
                    last = told.status.state
                    yield told.status

    async def watch_status(
        self, agent: AgentEntry, *, finished: int = MOST_FINISHED
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the whole status of the agent's host, then each change of it; see `HostClient.watch_status`."""
        query = f"?finished={finished}"
        last: dict[str, Any] = {}
        paths = commands.STATUS_WATCH + query, commands.STATUS + query
        async with aclosing(self._followed(agent, *paths)) as statuses:
            async for told in statuses:
                status = decode_object(told.body) if told.body else status_fields(told.status)
                # A host of an earlier version is asked again and again.
                if status != last:
                    last = status
                    yield status

    async def screen(self, agent: AgentEntry, *, lines: int = 0, known: str = "") -> dict[str, Any] | None:
        """Returns what the agent's terminal shows; see `HostClient.screen`."""
        condition = f'If-None-Match: "{known}"'.encode("ascii") if known else b""
        try:
            answer = await self.ask(agent.socket, "GET", f"{commands.SCREEN}?lines={lines}", header=condition)
            if answer.status == _NOT_MODIFIED:
                return None
            if answer.status >= 400:
                raise commands.decode_failure(answer.body)
            return decode_object(answer.body)
        except (NoAnswer, ValueError) as silence:
            raise _not_responding(agent) from silence

    async def deliver_reply(self, to: Sender, reply: AgentReply) -> None:
        """Sends `reply` to the host of the agent that waits for it; see `HostClient.deliver_reply`."""
        agent = await self._waiting_agent(to)
        try:
            # A new connection: the host may be about to close an idle one, and a reply is never sent twice.
            connection = await _connect_unix_or_tcp(agent)
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
        """Connects to the agent's terminal; see `HostClient.open_terminal`."""
        return await self._open_socket(agent, _ATTACH)

    async def follow_terminal(self, agent: AgentEntry) -> Channel:
        """Connects to the agent's terminal by offset; see `HostClient.follow_terminal`."""
        return await self._open_socket(agent, _TERMINAL)

    async def ask(
        self,
        socket: str,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        seconds: float = ANSWER_SECONDS,
        header: bytes = b"",
    ) -> HostAnswer:
        """Sends a request to the host at `socket` and returns its response. The request is never repeated.

        Raises:
            NoAnswer: the host cannot be reached, closed the connection, or took longer than `seconds`.
        """
        more = b"\r\n" + header if header else b""
        request = _HEAD % (method.encode(), path.encode(), more, len(body)) + body
        try:
            async with asyncio.timeout(seconds):
                connection = self._take_idle(socket) or await self._connect(socket)
                answer, is_reusable = await _exchange(connection, request)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {seconds:g} seconds", sent=True, timed_out=True) from error
        if is_reusable and len(idle := self._idle.setdefault(socket, [])) < MAX_IDLE_CONNECTIONS:
            idle.append(connection._replace(idle_since=self._clock.monotonic()))
        else:
            connection.writer.close()
        return answer

    async def _open_socket(self, agent: AgentEntry, url: str) -> Channel:
        """Opens a WebSocket of the agent's host. Raises what `open_terminal` raises."""
        # Few processes need it, and it takes half as long to load as everything else together.
        from websockets.asyncio.client import unix_connect  # noqa: PLC0415 - see above
        from websockets.exceptions import InvalidHandshake, InvalidStatus  # noqa: PLC0415 - see above

        try:
            connection = await unix_connect(
                agent.socket,
                url,
                max_size=None,
                compression=None,
                open_timeout=ANSWER_SECONDS,
                close_timeout=CLOSE_SECONDS,
                proxy=None,
            )
        except InvalidStatus as refused:
            raise terminal_refusal(refused.response.status_code, bytes(refused.response.body or b"")) from refused
        except (OSError, InvalidHandshake) as error:
            raise _not_responding(agent) from error
        return _TerminalChannel(connection)

    def _take_idle(self, socket: str) -> _Connection | None:
        """Returns an idle connection that can be used, or None; closes those that cannot."""
        connections = self._idle.get(socket, [])
        oldest = self._clock.monotonic() - IDLE_SECONDS
        while connections:
            connection = connections.pop()
            is_open = not connection.reader.at_eof() and not connection.writer.is_closing()
            if is_open and connection.idle_since >= oldest:
                return connection
            connection.writer.close()
        self._idle.pop(socket, None)
        return None

    async def _connect(self, socket: str) -> _Connection:
        try:
            reader, writer = await asyncio.open_unix_connection(socket)
        except OSError as error:
            raise NoAnswer(str(error), sent=False) from error
        return _Connection(reader, writer, self._clock.monotonic())

    async def _waiting_agent(self, to: Sender) -> AgentEntry:
        """Returns the agent that asked, found by its inbox: another agent may use its former port by now."""
        agents = list(await self._registry.agents())
        if not to.inbox:
            return resolve(to.sender_id, agents)
        for agent in agents:
            if agent.inbox == to.inbox:
                return agent
        raise AgentNotFound(to.sender_id)

    async def _followed(self, agent: AgentEntry, path: str, polled: str) -> AsyncGenerator[_Told, None]:
        """Yields the events of a host's stream, and its end; goes on if the host returns in time."""
        has_ended = False
        deadline = self._clock.monotonic() + self._return_seconds
        while True:
            with suppress(NoAnswer):
                async with aclosing(self._statuses(agent, path, polled)) as statuses:
                    async for told in statuses:
                        has_ended = told.status.state == EXITED
                        deadline = self._clock.monotonic() + self._return_seconds
                        yield told
            if not has_ended:
                has_ended = True
                deadline = self._clock.monotonic() + self._return_seconds
                yield _Told(AgentStatus(state=EXITED, why=_GONE, source="host", since=self._clock.now()))
            if self._clock.monotonic() >= deadline:
                return
            await pause(_RETRY_SECONDS)

    async def _statuses(self, agent: AgentEntry, path: str, polled: str) -> AsyncGenerator[_Told, None]:
        """Yields the events of the host's stream until the stream ends. Raises NoAnswer when no host listens."""
        connection = await self._connect(agent.socket)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection.writer.write(_HEAD % (b"GET", path.encode(), b"", 0))
                head = await connection.reader.readuntil(b"\r\n\r\n")
            status = status_of(head)
            if status < 400:
                silence = WATCH_SILENCE_SECONDS if path.startswith(commands.STATUS_WATCH) else SILENCE_SECONDS
                async with aclosing(_read_statuses(connection.reader, head, silence)) as statuses:
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
                yield await self._poll_status(agent, polled)
                await pause(POLL_SECONDS)
        if status >= 400:
            raise AgentFailed(f"{agent.agent_id} refuses to report its state (status {status})")

    async def _poll_status(self, agent: AgentEntry, path: str) -> _Told:
        """Returns the status. Raises NoAnswer when the host has ended, AgentNotResponding when it is too slow."""
        try:
            answer = await self.ask(agent.socket, "GET", path, seconds=ANSWER_SECONDS)
            return _told(answer.body)
        except NoAnswer as silence:
            if silence.timed_out:
                raise _not_responding(agent) from silence
            raise
        except ValueError as error:
            raise NoAnswer(str(error), sent=True) from error


def _told(body: bytes) -> _Told:
    """Raises ValueError."""
    return _Told(commands.decode_agent_status(body), body)


def terminal_refusal(status: int, body: bytes) -> SynapseError:
    """Returns the error for a host, or a proxy socket of the link, that refused a connection to a terminal."""
    otherwise = f"it answered with status {status}"
    try:
        error = from_wire(object_in(decode_object(body), "error"), otherwise)
    except ValueError:
        # A body that is not JSON is the message itself.
        error = SynapseError(body.decode(errors="replace").strip() or otherwise)
    if isinstance(error, _OF_THE_FLEET):
        return error
    if status == _NOT_FOUND or isinstance(error, UnsupportedOperation):
        return UnsupportedOperation(
            "this agent has no terminal to attach to", hint="`synapse status` shows what the agent does"
        )
    return AccessDenied(f"the agent's host refuses: {error}", hint=error.hint)


class _TerminalChannel:
    """Implements `core.registry.Channel` over a WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - the connection has loaded it already

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


async def _connect_unix_or_tcp(agent: AgentEntry) -> _Connection:
    """Connects to the host's Unix socket, or else to its TCP port: a sandbox may hide the socket's folder."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(agent.socket)
    except OSError as error:
        if not agent.port:
            raise NoAnswer(str(error), sent=False) from error
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
        except OSError as second:
            raise NoAnswer(str(second), sent=False) from second
    return _Connection(reader, writer, 0.0)


async def _exchange(connection: _Connection, request: bytes) -> tuple[HostAnswer, bool]:
    """Sends a request; returns the response, and whether the connection can be reused.

    Raises NoAnswer. Closes the connection on any failure.
    """
    try:
        connection.writer.write(request)
        await connection.writer.drain()
        head = await connection.reader.readuntil(b"\r\n\r\n")
        status = status_of(head)
        # RFC 9110 §15.4.5: an answer with this status has no content.
        body = b"" if status == _NOT_MODIFIED else await connection.reader.readexactly(_content_length(head))
    except BaseException as error:
        connection.writer.close()
        if isinstance(error, OSError | EOFError | ValueError) and not isinstance(error, TimeoutError):
            raise NoAnswer(f"it closed the connection: {error}", sent=True) from error
        raise
    return HostAnswer(status, body), header(head, b"connection").lower() != b"close"


def _content_length(head: bytes) -> int:
    length = header(head, b"content-length")
    if not length.isdigit() or int(length) > MAX_ANSWER_BYTES:
        raise ValueError("its answer has no Content-Length, or is too long")
    return int(length)


async def _read_statuses(reader: asyncio.StreamReader, head: bytes, silence: float) -> AsyncGenerator[_Told, None]:
    """Yields the events of a stream until it ends. A host that stops ends it with an `error` event.

    Raises TimeoutError after `silence` seconds without a byte.
    """
    chunks = ChunkDecoder() if header(head, b"transfer-encoding").lower() == b"chunked" else None
    decoder = EventDecoder()
    while True:
        async with asyncio.timeout(silence):
            data = await reader.read(READ_SIZE)
        if not data:
            return
        for event in decoder.receive(chunks.receive(data) if chunks is not None else data):
            if event.name == "error":
                return
            yield _told(event.data.encode())
        if chunks is not None and chunks.ended:
            return
