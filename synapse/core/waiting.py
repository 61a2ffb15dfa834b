"""Waits for a while, and reads a stream until an event. The one module of `core` that needs an event loop.

Code waits for an event wherever there is one. `pause` is for the rest: between two looks at something that announces no
change, and before another try.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from synapse.core.requests import Stream

T = TypeVar("T")


async def pause(seconds: float) -> None:
    """Waits for `seconds`."""
    await asyncio.sleep(seconds)  # noqa: TID251 - the one place


class CutOff(Exception):
    """The event was set before the stream ended."""


async def read_until(event: asyncio.Event, items: Stream[T]) -> AsyncGenerator[T, None]:
    """Yields the items, then closes the stream. Raises CutOff when `event` is set before the next item comes."""
    cut = asyncio.ensure_future(event.wait())
    try:
        async with aclosing(items) as stream:
            while True:
                coming = asyncio.ensure_future(_next_of(stream))
                try:
                    await asyncio.wait((coming, cut), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not coming.done():
                        # The generator must have stopped before it can be closed.
                        coming.cancel()
                        await asyncio.wait((coming,))
                if coming.cancelled():
                    raise CutOff
                item = coming.result()
                if item is None:
                    return
                yield item[0]
    finally:
        cut.cancel()


async def _next_of(stream: Stream[T]) -> tuple[T] | None:
    try:
        return (await anext(stream),)
    except StopAsyncIteration:
        return None
