"""Open streams are limited per caller, and a slot is free again when its stream ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import RateLimited, TooManyStreams
from synapse.core.events import Update
from synapse.core.requests import (
    FollowTask,
    ForAgent,
    GetTask,
    Request,
    SendAndFollow,
    SendMessage,
    SubscribeTask,
    TaskStream,
)
from synapse.gateway.service import LimitedStreams, StreamLimit
from synapse.tasks.journal import rebuild
from tests.fakes.facts import opened
from tests.fakes.gateway_world import LAPTOP, PHONE
from tests.fakes.harness import say

SEND = SendMessage(message=say("hello"), dialect="a2a_v1")
STREAMS: list[Request[TaskStream]] = [SubscribeTask(task_id="t"), FollowTask(task_id="t"), SendAndFollow(send=SEND)]
UPDATE = Update(1, None, rebuild(None, (opened("t"),)))


class Told:
    """Answers requests for a stream with one update; records all requests."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[Request[object]] = []
        self._failure = failure

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        self.asked.append(request)
        if self._failure is not None:
            raise self._failure
        return self._updates()

    async def _updates(self) -> AsyncGenerator[Update, None]:
        yield UPDATE


@pytest.mark.parametrize("request_", [*STREAMS, *(ForAgent("ada", one) for one in STREAMS)])
async def test_a_stream_over_the_limit_is_refused_before_its_message_is_sent(request_: Request[TaskStream]) -> None:
    told = Told()
    service = LimitedStreams(told, StreamLimit(2))
    held = [await service.handle(request_, LAPTOP) for _ in range(2)]
    with pytest.raises(TooManyStreams, match="2 streams are open"):
        await service.handle(request_, LAPTOP)
    assert len(told.asked) == 2

    await held[0].aclose()
    await held[0].aclose()

    held.append(await service.handle(request_, LAPTOP))
    with pytest.raises(TooManyStreams):
        await service.handle(request_, LAPTOP)


async def test_each_caller_has_slots_of_its_own_and_other_requests_need_none() -> None:
    service = LimitedStreams(Told(), StreamLimit(1))
    for caller in (LAPTOP, PHONE, Caller()):
        await service.handle(STREAMS[0], caller)
        await service.handle(GetTask("t"), caller)
    with pytest.raises(TooManyStreams):
        # Without authentication all callers are the user of the machine.
        await service.handle(STREAMS[0], Caller(is_owner=True))


async def test_a_stream_that_ends_by_itself_releases_its_slot() -> None:
    service = LimitedStreams(Told(), StreamLimit(1))
    for _ in range(3):
        async with aclosing(await service.handle(STREAMS[0], LAPTOP)) as updates:
            assert [update async for update in updates] == [UPDATE]


async def test_a_stream_that_could_not_begin_holds_no_slot() -> None:
    streams = StreamLimit(1)
    with pytest.raises(KeyError):
        await LimitedStreams(Told(KeyError()), streams).handle(STREAMS[0], LAPTOP)
    with streams.acquire(LAPTOP), pytest.raises(TooManyStreams):
        streams.acquire(LAPTOP)
    streams.acquire(LAPTOP)


def test_zero_means_no_limit() -> None:
    streams = StreamLimit(0)

    for _ in range(5000):
        streams.acquire(LAPTOP)


def test_the_error_says_what_to_do_and_when_to_come_back() -> None:
    error = TooManyStreams(1000)

    assert isinstance(error, RateLimited)
    assert "close one" in error.hint
    assert error.retry_after >= 1
