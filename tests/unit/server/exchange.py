"""Calls an application without a server: gives it messages to receive, and records those that it sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import Any

from synapse.core.caller import Caller
from synapse.core.events import Update
from synapse.core.requests import Request, SubscribeTask
from synapse.server.app import HttpApp
from synapse.server.asgi import Scope

ME = Caller(pid=42, via_socket=True)


class Exchange:
    """One request and its answer. After the body nothing more arrives until the caller disconnects."""

    def __init__(self, method: str, path: str, *pieces: bytes, query: bytes = b"", **headers: str) -> None:
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode("latin-1"),
            "query_string": query,
            "headers": named,
        }
        self.incoming: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        for index, piece in enumerate(pieces or (b"",)):
            self.incoming.put_nowait({"type": "http.request", "body": piece, "more_body": index < len(pieces) - 1})
        self.sent: list[MutableMapping[str, Any]] = []
        self.arrived = asyncio.Event()
        self.stuck: asyncio.Event | None = None
        self.waiting = 0

    def leave(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})
        if self.stuck is not None:
            self.stuck.set()

    def take_nothing(self) -> None:
        """Makes all later sends wait until the reader disconnects."""
        self.stuck = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)
        self.arrived.set()
        if self.stuck is not None and message["type"] == "http.response.body":
            self.waiting += 1
            await self.stuck.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.arrived.clear()
                await self.arrived.wait()

    async def run(self, app: HttpApp) -> Exchange:
        async with asyncio.timeout(5):
            await app(self.scope, self.incoming.get, self.send)
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class FixedService:
    """Returns one result to every caller, or raises it; a subscription gets the updates that are put into the feed."""

    def __init__(self, result: object) -> None:
        self.result = result
        self.asked: list[tuple[Request[object], Caller]] = []
        self.feed: asyncio.Queue[Update | BaseException | None] = asyncio.Queue()
        self.feed_closed = False

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        self.asked.append((request, caller))
        if isinstance(self.result, BaseException):
            raise self.result
        return self.follow() if isinstance(request, SubscribeTask) else self.result

    async def follow(self) -> AsyncIterator[Update]:
        try:
            while (update := await self.feed.get()) is not None:
                if isinstance(update, BaseException):
                    raise update
                yield update
        finally:
            self.feed_closed = True
