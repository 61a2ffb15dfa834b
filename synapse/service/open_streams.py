"""How many streams somebody may have open at once: each holds a connection, and reads the log for as long as it lasts.

asked for ─► a place is taken, or refused before anything is done ─► the stream ─► closed or ended: the place is free
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any, Protocol, Self

from synapse.core.access_errors import TooManyStreams
from synapse.core.caller import Caller
from synapse.core.events import Update
from synapse.core.requests import FollowTask, Request, SendAndFollow, SubscribeTask, ToAgent


class Asked(Protocol):
    """Does what is asked."""

    async def handle(self, request: Request, caller: Caller) -> Any:
        """Raises a SynapseError."""
        ...


class OpenStreams:
    """The streams of each caller, `most` of them at a time; 0 limits nothing. A key is a caller, and so is the user."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def take(self, caller: Caller) -> Place:
        """Take a place, to be given back when the stream is over. Raises TooManyStreams."""
        key = f"{caller.scope} {caller.name}"
        if self._most and self._open[key] >= self._most:
            raise TooManyStreams(self._most)
        self._open[key] += 1
        return Place(self._open, key)


class Place:
    """One stream's place. Given back twice it is given back once."""

    __slots__ = ("_key", "_open")

    def __init__(self, places: Counter[str], key: str) -> None:
        self._open = places
        self._key = key

    def give_back(self) -> None:
        if not self._key:
            return
        self._open[self._key] -= 1
        if not self._open[self._key]:
            del self._open[self._key]
        self._key = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


class CountedStreams:
    """A service whose streams are counted. One too many is refused before its message is sent."""

    def __init__(self, service: Asked, streams: OpenStreams) -> None:
        self._service = service
        self._streams = streams

    async def handle(self, request: Request, caller: Caller) -> Any:
        """Raises what the service raises, and TooManyStreams."""
        asked = request.request if isinstance(request, ToAgent) else request
        if not isinstance(asked, SubscribeTask | FollowTask | SendAndFollow):
            return await self._service.handle(request, caller)
        place = self._streams.take(caller)
        try:
            return _Counted(await self._service.handle(request, caller), place)
        except BaseException:
            place.give_back()
            raise


class _Counted:
    """The updates of a stream, until it is closed or has ended. No generator: one that never began has no `finally`."""

    __slots__ = ("_place", "_updates")

    def __init__(self, updates: AsyncGenerator[Update, None], place: Place) -> None:
        self._updates = updates
        self._place = place

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        try:
            return await anext(self._updates)
        except BaseException:
            self._place.give_back()
            raise

    async def aclose(self) -> None:
        try:
            await self._updates.aclose()
        finally:
            self._place.give_back()
