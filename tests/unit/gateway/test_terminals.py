"""The WebSocket of terminals: who may open it, and that typing counts as a use of the session."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, NoReturn

import pytest

from synapse.attach.relay import TerminalRelays
from synapse.attach.terminal_frames import Kind, Ping, encode_from_viewer, split
from synapse.core.caller import Caller
from synapse.core.errors import CredentialsRefused, Forbidden, RateLimited
from synapse.gateway.terminals import TerminalsSocket
from synapse.server.websocket import WebSocketChannel

PERSON = Caller(actions=frozenset({"attach"}), session_id="1")
PING = encode_from_viewer(0, Ping())


async def no_host(_name: str) -> NoReturn:
    raise AssertionError("these tests open no terminal")


class Page:
    """A page that pings a few times and leaves; `readmit` is called with each check of its credentials."""

    def __init__(self, pings: int) -> None:
        frames = [{"type": "websocket.receive", "bytes": PING}] * pings
        self._incoming: list[MutableMapping[str, Any]] = [*frames, {"type": "websocket.disconnect"}]
        self.sent: list[MutableMapping[str, Any]] = []
        self.refusal: Exception | None = None
        self.admissions = 0

    async def receive(self) -> MutableMapping[str, Any]:
        return self._incoming.pop(0)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    async def readmit(self) -> Caller:
        self.admissions += 1
        if self.refusal is not None:
            raise self.refusal
        return PERSON

    async def run(self, every: float, caller: Caller = PERSON) -> None:
        channel = WebSocketChannel(self.receive, self.send)
        channel.readmit = self.readmit
        async with asyncio.timeout(5):
            await TerminalsSocket(TerminalRelays(no_host), readmit_seconds=every)(channel, caller)

    @property
    def pongs(self) -> int:
        return sum(split(message["bytes"]).kind == Kind.PONG for message in self.sent if "bytes" in message)


async def test_a_page_that_sends_frames_is_admitted_again() -> None:
    page = Page(3)
    await page.run(every=0.0)

    assert (page.admissions, page.pongs) == (3, 3)


async def test_it_is_admitted_again_only_so_often() -> None:
    page = Page(3)
    await page.run(every=60.0)

    assert (page.admissions, page.pongs) == (0, 3)


async def test_a_page_whose_session_has_ended_types_no_more() -> None:
    page = Page(3)
    page.refusal = CredentialsRefused("it was revoked", challenge="Bearer")

    with pytest.raises(CredentialsRefused):
        await page.run(every=0.0)
    assert page.pongs == 0


async def test_a_rate_limit_ends_no_terminal() -> None:
    page = Page(3)
    page.refusal = RateLimited("too many requests", seconds=1)
    await page.run(every=0.0)

    assert page.pongs == 3


async def test_without_the_right_to_attach_nothing_is_accepted() -> None:
    page = Page(1)

    with pytest.raises(Forbidden):
        await page.run(every=60.0, caller=Caller(actions=frozenset({"read", "send", "cancel", "approve"})))
    assert page.sent == []
