"""Waiting for a result that takes as long as an agent does: as long as the caller stays and the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from synapse.core.errors import AgentExited
from synapse.transports.asgi import Receive, Send, when_left

WATCH_AFTER: Final = 0.05
"""Seconds before anybody looks whether the caller is still there, where the server does not tell by itself."""


class CallerLeft(Exception):
    """Nobody is there to be answered."""


class Patience:
    """Those who wait for a result of one server."""

    def __init__(self) -> None:
        self._waits: set[asyncio.Future[Any]] = set()
        self._over = False

    async def wait(self, pending: asyncio.Future[Any], receive: Receive, send: Send) -> Any:
        """Return the result; `pending` is cancelled when nobody waits for it any more.

        Raises:
            CallerLeft: the caller hung up.
            AgentExited: the server ends.
        """
        if pending.done():
            return pending.result()
        me = asyncio.current_task()
        self._waits.add(pending)
        stop_watching = _watch(pending, receive, send)
        if self._over:
            pending.cancel()
        try:
            return await pending
        except asyncio.CancelledError:
            if me is not None and me.cancelling():
                raise  # by somebody else, not by giving up
            if self._over:
                raise AgentExited("this server ends; the task is kept") from None
            raise CallerLeft from None
        finally:
            self._waits.discard(pending)
            stop_watching()

    def end(self) -> None:
        """The server ends: nobody waits any longer."""
        self._over = True
        for pending in self._waits:
            pending.cancel()


def _watch(pending: asyncio.Future[Any], receive: Receive, send: Send) -> Callable[[], None]:
    """Give up on `pending` when the caller leaves; return how that is ended."""
    tell = when_left(send)
    if tell is None:
        return _Watcher(pending, receive).close
    tell(pending.cancel)
    return partial(tell, None)


class _Watcher:
    """For servers that do not tell. It looks after a while only, as most results are quicker than that."""

    def __init__(self, pending: asyncio.Future[Any], receive: Receive) -> None:
        self._pending = pending
        self._receive = receive
        self._looking: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._look)

    def close(self) -> None:
        self._timer.cancel()
        if self._looking is not None:
            self._looking.remove_done_callback(self._give_up)
            self._looking.cancel()

    def _look(self) -> None:
        self._looking = asyncio.ensure_future(caller_left(self._receive))
        self._looking.add_done_callback(self._give_up)

    def _give_up(self, _end: asyncio.Task[None]) -> None:
        self._pending.cancel()


async def caller_left(receive: Receive) -> None:
    """Return when whoever waits for the answer has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
