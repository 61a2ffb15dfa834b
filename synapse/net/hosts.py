"""Asking agent hosts over their Unix sockets, many times: connections are kept and used again.

Not for `synapse send`, which asks once and affords no event loop (see `transports.client`).

Carries a reply to the host of the agent that waits for it, in the synapse dialect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from synapse.client.http import ANSWER_SECONDS, HostAddress, NoAnswer, header, request, status_of
from synapse.core.address import resolve
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentFailed, AgentNotFound, AgentNotResponding, TaskNotFound
from synapse.core.message import Message, MessageId, Part, Role
from synapse.core.registry import Registry
from synapse.core.requests import Sender
from synapse.dialects.synapse.encode import message_object

IDLE_SECONDS: Final = 2.0
"""A connection that was idle for longer is not used again: the host hangs up on idle ones, and must not do so while
something is on its way."""
CONNECTIONS_KEPT: Final = 16
LARGEST_ANSWER: Final = 16 * 1024 * 1024


class HostAnswer(NamedTuple):
    """What a host answered, whatever its status."""

    status: int
    body: bytes


class _Line(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float


class HostClient:
    """Asks hosts. One request at a time on each connection; a few idle connections are kept for each host."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._idle: dict[str, list[_Line]] = {}

    async def ask(
        self, socket: str, method: str, path: str, body: bytes = b"", *, seconds: float = ANSWER_SECONDS
    ) -> HostAnswer:
        """Ask the host that listens at `socket`, and wait at most so many seconds for its answer.

        Raises:
            NoAnswer: it cannot be reached, went away, or was too slow; nothing is asked a second time.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(socket, _HEAD % (method.encode(), path.encode(), len(body)) + body)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {seconds:g} seconds", sent=True, timed_out=True) from error

    def close(self) -> None:
        """Hang up on all that are idle."""
        for lines in self._idle.values():
            for line in lines:
                line.writer.close()
        self._idle.clear()

    async def _ask(self, socket: str, request: bytes) -> HostAnswer:
        line = self._kept(socket) or await self._connected(socket)
        try:
            line.writer.write(request)
            await line.writer.drain()
            answer, stays = await _answer(line.reader)
        except BaseException as error:
            line.writer.close()
            if isinstance(error, OSError | EOFError | ValueError):
                raise NoAnswer(f"it hung up: {error}", sent=True) from error
            raise
        if stays:
            self._keep(socket, line)
        else:
            line.writer.close()
        return answer

    def _kept(self, socket: str) -> _Line | None:
        """An idle connection that can be used, or None. Others are closed on the way."""
        lines = self._idle.get(socket, [])
        newest = self._monotonic() - IDLE_SECONDS
        while lines:
            line = lines.pop()
            if line.idle_since >= newest and not line.reader.at_eof() and not line.writer.is_closing():
                return line
            line.writer.close()
        self._idle.pop(socket, None)
        return None

    async def _connected(self, socket: str) -> _Line:
        try:
            reader, writer = await asyncio.open_unix_connection(socket)
        except OSError as error:
            raise NoAnswer(str(error), sent=False) from error
        return _Line(reader, writer, self._monotonic())

    def _keep(self, socket: str, line: _Line) -> None:
        lines = self._idle.setdefault(socket, [])
        if len(lines) < CONNECTIONS_KEPT:
            lines.append(line._replace(idle_since=self._monotonic()))
        else:
            line.writer.close()


_HEAD: Final = b"%b %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


async def _answer(reader: asyncio.StreamReader) -> tuple[HostAnswer, bool]:
    """The answer, and whether the connection can be used again."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = status_of(head)
    length = header(head, b"content-length")
    if not length.isdigit() or int(length) > LARGEST_ANSWER:
        raise ValueError("its answer has no length, or is too long")
    body = await reader.readexactly(int(length))
    return HostAnswer(status, body), header(head, b"connection").lower() != b"close"


class HostCourier:
    """Finds the waiting agent in the registry and asks its host, in a thread: the client knows no event loop."""

    def __init__(self, me: AgentEntry, registry: Registry) -> None:
        self._me = me
        self._registry = registry

    async def carry(
        self, to: Sender, sender_task_id: str, parts: tuple[Part, ...], *, failed: bool, inferred: bool
    ) -> None:
        """Raises TaskNotFound when nobody waits, AgentNotFound or AgentNotResponding when the agent is gone."""
        entry = self._asker(to)
        body = self._body(sender_task_id, parts, {"failed": failed, "inferred": inferred})
        address = HostAddress(entry.socket, port=entry.port)
        try:
            answer = await asyncio.to_thread(request, address, "POST", "/tasks/send", body)
        except NoAnswer as silence:
            raise AgentNotResponding(entry.agent_id, entry.port, entry.agent_type) from silence
        if answer.status == 404:
            raise TaskNotFound(sender_task_id)
        if answer.status >= 400:
            raise AgentFailed(f"{entry.agent_id} refused the reply: {answer.body.get('error')}")

    def _asker(self, to: Sender) -> AgentEntry:
        """The agent that asked, also at another port; its own may be another agent's by now."""
        here = list(self._registry.entries())
        if not to.inbox:
            return resolve(to.sender_id, here)
        for entry in here:
            if entry.inbox == to.inbox:
                return entry
        raise AgentNotFound(to.sender_id)

    def _body(self, sender_task_id: str, parts: tuple[Part, ...], marks: dict[str, bool]) -> dict[str, Any]:
        sender = {
            "sender_id": self._me.agent_id,
            "sender_type": self._me.agent_type,
            "sender_endpoint": self._me.endpoint,
        }
        metadata = {"sender": sender, "in_reply_to": sender_task_id, **{key: True for key in marks if marks[key]}}
        message = Message(message_id=MessageId(""), role=Role.AGENT, parts=parts)
        return {"message": message_object(message), "metadata": metadata}
