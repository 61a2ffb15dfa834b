"""A pause ends by itself; a stream is read until it ends or an event is set, and closed either way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from synapse.core.waiting import CutOff, pause, read_until

BOUND = 10.0


class Numbers:
    """A stream that counts up to `last`, and then stays open if it `stays`."""

    def __init__(self, last: int, *, stays: bool = False) -> None:
        self._last = last
        self._stays = stays
        self.is_closed = False

    async def stream(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(1, self._last + 1):
                yield number
            if self._stays:
                await asyncio.Event().wait()
        finally:
            self.is_closed = True


async def test_a_pause_lasts_as_long_as_was_asked_for() -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()

    await pause(0.02)

    assert loop.time() - begin >= 0.019


async def test_a_stream_that_ends_is_read_to_its_end_and_closed() -> None:
    numbers = Numbers(3)

    async with aclosing(read_until(asyncio.Event(), numbers.stream())) as coming:
        read = [number async for number in coming]

    assert read == [1, 2, 3]
    assert numbers.is_closed


async def test_an_event_cuts_a_stream_off_and_closes_it() -> None:
    numbers, event, read = Numbers(2, stays=True), asyncio.Event(), list[int]()

    async def read_all() -> None:
        async for number in read_until(event, numbers.stream()):
            read.append(number)
            if number == 2:
                asyncio.get_running_loop().call_soon(event.set)

    with pytest.raises(CutOff):
        await asyncio.wait_for(read_all(), BOUND)

    assert read == [1, 2]
    assert numbers.is_closed


async def test_a_reader_that_is_cancelled_closes_the_stream() -> None:
    numbers = Numbers(1, stays=True)

    async def read_all() -> None:
        async with aclosing(read_until(asyncio.Event(), numbers.stream())) as coming:
            async for _ in coming:
                pass

    reading = asyncio.create_task(read_all())
    await pause(0)
    reading.cancel()
    await asyncio.wait({reading}, timeout=BOUND)

    assert reading.cancelled()
    assert numbers.is_closed


async def test_the_error_of_a_stream_is_raised() -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("broken")

    async with aclosing(read_until(asyncio.Event(), failing())) as coming:
        assert await anext(coming) == 1
        with pytest.raises(ValueError, match="broken"):
            await anext(coming)
