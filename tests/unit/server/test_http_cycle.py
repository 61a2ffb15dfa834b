"""One request and its answer: what the application is told, in which order, and what is written for it."""

from __future__ import annotations

import asyncio
from typing import Any

from synapse.core.errors import InvalidRequest
from synapse.server.asgi import Receive, Scope, Send
from synapse.server.http import Cycle, Fault, Openings
from tests.fakes.stores import settle
from tests.fakes.web_app import web_app
from tests.unit.server.on_wire import POST, ScriptedApp, exchange, on_wire, piece, saying, start

HEAD = b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"


class FakeLine:
    """A connection that notes what is asked of it."""

    def __init__(self) -> None:
        self.openings = Openings(list[tuple[bytes, bytes]])
        self.is_clogged = False
        self.reads = False

    def write(self, data: bytes) -> None:
        raise AssertionError(f"nothing is answered in these tests: {data!r}")

    async def drained(self) -> None:
        pass

    def go_on_reading(self) -> None:
        self.reads = True

    def answered(self, cycle: Cycle) -> None:
        raise AssertionError(f"nothing is answered in these tests: {cycle}")

    def ended(self, cycle: Cycle, fault: Fault | None) -> None:
        pass


def a_cycle(line: FakeLine) -> Cycle:
    return Cycle(line, {"method": "POST", "path": "/"}, keep_alive=True, wants_continue=False)


async def test_a_streamed_answer_to_head_is_its_head_alone() -> None:
    answer = (start(200, [(b"x-kept", b"1")]), piece(b"one", more=True), piece(b"two"))
    wire = await exchange(saying(*answer), HEAD, HEAD)

    assert wire.written.count(b"x-kept: 1\r\n\r\n") == 2
    assert b"one" not in wire.written
    assert b"chunked" not in wire.written
    assert b"0\r\n\r\n" not in wire.written.replace(b"200", b"")


async def test_what_came_of_a_body_before_it_broke_off_is_told_first() -> None:
    told: list[Any] = []
    begin = asyncio.Event()

    async def script(_scope: Scope, receive: Receive, _send: Send) -> None:
        await begin.wait()
        told.extend([await receive(), await receive()])

    async with on_wire(ScriptedApp(script)) as wire:
        wire.give(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await wire.settle()
        wire.give(b"no size\r\n")
        await wire.settle()
        begin.set()
        await wire.settle()

    assert told == [{"type": "http.request", "body": b"one", "more_body": True}, {"type": "http.disconnect"}]


async def test_whoever_has_sent_the_body_already_is_not_asked_for_it() -> None:
    wire = await exchange(web_app(), POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}")

    assert wire.written.startswith(b"HTTP/1.1 200 OK\r\n")


def test_whoever_asks_when_a_caller_leaves_is_told_also_when_that_was_before() -> None:
    left: list[str] = []
    cycle = a_cycle(FakeLine())
    cycle.lose()
    cycle.when_left(lambda: left.append("left"))

    assert left == ["left"]


def test_a_caller_is_seen_to_leave_only_by_who_reads() -> None:
    line = FakeLine()
    a_cycle(line).when_left(lambda: None)

    assert line.reads


def test_nobody_is_told_of_a_caller_who_left_when_the_wait_is_over() -> None:
    left: list[str] = []
    cycle = a_cycle(FakeLine())
    cycle.when_left(lambda: left.append("left"))
    cycle.when_left(None)
    cycle.lose()

    assert left == []


async def test_a_body_that_breaks_off_wakes_who_waits_for_it() -> None:
    cycle = a_cycle(FakeLine())
    waiting = asyncio.ensure_future(cycle.receive())
    await settle()
    cycle.break_off(Fault(400, InvalidRequest("no size")))
    async with asyncio.timeout(10):
        assert await waiting == {"type": "http.disconnect"}
