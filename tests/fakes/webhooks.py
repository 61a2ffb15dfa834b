"""Webhooks that answer as a test tells them, and a guard that lets all but some addresses pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from synapse.core.errors import InvalidField
from synapse.push.outbox import Headers, PostResult

OK = PostResult(status=200)


@dataclass(frozen=True)
class Call:
    """One try."""

    url: str
    headers: dict[str, str]
    body: bytes


class FakeWebhooks:
    """Answers each try with what `answer` says of it; a held one does not answer until it is let go."""

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
    """Refuses addresses that have the word `private` in them."""

    async def check(self, url: str) -> None:
        if "private" in url:
            raise InvalidField("url", "is private")
