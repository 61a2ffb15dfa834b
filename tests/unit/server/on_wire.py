"""One HTTP connection without a socket, and applications that run the script of a test."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from synapse.core.errors import SynapseError
from synapse.dialects.dialect import WireAnswer
from synapse.server.asgi import HttpLimits, Receive, Scope, Send
from tests.fakes.wire import Wire, answers

DOCUMENT_WANTED = b"GET /document HTTP/1.1\r\nHost: x\r\n\r\n"
LATER_WANTED = b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

Script = Callable[[Scope, Receive, Send], Awaitable[None]]


class ScriptedApp:
    """Runs a script for each request."""

    def __init__(self, script: Script, limits: HttpLimits | None = None) -> None:
        self._script = script
        self.limits = limits or HttpLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._script(scope, receive, send)

    def close(self) -> None:
        pass

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        return WireAnswer(400, error.code.encode())


@asynccontextmanager
async def on_wire(app: Any, keep_alive: int = 5) -> AsyncGenerator[Wire]:
    """Opens a connection, and checks after the block that nothing of it is left."""
    wire = Wire(app, keep_alive=keep_alive)
    try:
        yield wire
        await wire.leave()
        await wire.until(lambda: not wire.server.tasks)
    finally:
        wire.close()
    assert wire.failures == []
    assert not wire.server.connections


async def exchange(app: Any, *pieces: bytes) -> Wire:
    async with on_wire(app) as wire:
        for piece in pieces:
            wire.give(piece)
            await wire.settle()
    return wire


def is_closed(wire: Wire) -> bool:
    return wire.transport.closed


def is_over(wire: Wire) -> bool:
    return wire.is_over


def statuses(wire: Wire) -> list[int]:
    return [status for status, _, _ in answers(wire.written)]


def saying(*messages: dict[str, Any]) -> ScriptedApp:
    async def script(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return ScriptedApp(script)


def start(status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}
