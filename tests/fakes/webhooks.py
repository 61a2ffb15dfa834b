"""Webhooks whose answers a test chooses, and a guard that refuses some addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from synapse.core.errors import InvalidField
from synapse.push.outbox import Headers, PostResult

OK = PostResult(status=200)


@dataclass(frozen=True)
class Call:
    """One attempt."""

    url: str
    headers: dict[str, str]
    body: bytes


class FakeWebhooks:
    """Answers each attempt with the result of `answer`; a held attempt waits until it is released."""

    def __init__(self, answer: Callable[[Call], PostResult] = lambda _: OK) -> None:
        self.answer = answer
        self.calls: list[Call] = []
        self.held: set[str] = set()
        self._let_go = asyncio.Event()

    async def post(self, url: str, headers: Headers, body: bytes) -> PostResult:
        call = Call(url, dict(headers), body)
        self.calls.append(call)
        while url in self.held:
            await self._let_go.wait()
        return self.answer(call)

    def let_go(self) -> None:
        self.held.clear()
        self._let_go.set()

    def bodies(self, url: str) -> list[bytes]:
        return [call.body for call in self.calls if call.url == url]


class FakeGuard:
    """Refuses addresses that contain the word `private`."""

    async def check(self, url: str) -> None:
        if "private" in url:
            raise InvalidField("url", "is private")
