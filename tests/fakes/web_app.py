"""A small application with one path of each kind, for whoever tests what is below an application."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

from synapse.core.caller import Caller
from synapse.core.errors import SynapseError
from synapse.core.events import Update
from synapse.core.requests import GetStatus, GetTask, Pending, Request, SubscribeTask
from synapse.dialects.dialect import (
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    StreamRoute,
    WireAnswer,
    WireEvent,
    WireRequest,
)
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits

ME = Caller(pid=42, via_socket=True)
DOCUMENT = b'{"a":"document"}'


class Doing:
    """Does what is asked: at once, later, or again and again."""

    def __init__(self) -> None:
        self.later: asyncio.Future[bytes] | None = None
        self.followers = 0
        self.event = b"x"
        self.told = 0

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        match request:
            case GetTask():
                self.later = asyncio.get_running_loop().create_future()
                return Pending(b"", self.later)
            case SubscribeTask():
                return self.follow()
            case _:
                return b'"now"'

    async def follow(self) -> AsyncIterator[Update]:
        self.followers += 1
        try:
            while True:
                self.told += 1
                yield Update(self.told, None, None)  # type: ignore[arg-type]  # nobody looks at the task
                turn = asyncio.Event()
                asyncio.get_running_loop().call_soon(turn.set)
                await turn.wait()
        finally:
            self.followers -= 1


def web_app(doing: Doing | None = None, *, limits: HttpLimits | None = None) -> HttpApp:
    """GET /document, /now, /later, /stream; POST /echo, which tells the digest of the body."""
    doing = doing or Doing()
    routes = (
        DocumentRoute(method="GET", path="/document", answer=lambda _: WireAnswer(200, DOCUMENT)),
        DocumentRoute(method="GET", path="/nothing", answer=lambda _: WireAnswer(204, b"", ((b"x-kept", b"1"),))),
        CallRoute(method="GET", path="/now", ask=lambda _: Call(GetStatus(), bytes)),
        CallRoute(method="GET", path="/later", ask=lambda _: Call(GetTask("x"), bytes)),
        CallRoute(method="POST", path="/echo", ask=_echo),
        StreamRoute(
            method="GET",
            path="/stream",
            decode=lambda _: SubscribeTask(task_id="x"),
            encode=lambda update: WireEvent(str(update.seq), "", doing.event),
        ),
    )
    dialect = Dialect(name="web", routes=routes, encode_error=_told)
    return HttpApp(doing, [dialect], admit=lambda _: ME, limits=limits)


def digest(body: bytes) -> bytes:
    return b'{"digest":"%b"}' % hashlib.sha256(body).hexdigest().encode()


def _echo(wire: WireRequest) -> WireAnswer:
    return WireAnswer(200, digest(wire.body))


def _told(error: SynapseError) -> WireAnswer:
    statuses = {"body_too_large": 413, "body_too_slow": 408, "route_not_found": 404, "unsupported_media_type": 415}
    return WireAnswer(statuses.get(error.code, 400), b'{"error":{"code":"%b"}}' % error.code.encode())
