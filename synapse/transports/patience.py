"""Waiting for a result that takes as long as an agent does: as long as the caller stays and the server runs."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from synapse.core.errors import AgentExited
from synapse.transports.asgi import Receive

WATCH_AFTER: Final = 0.05
"""Seconds before anybody looks whether the caller is still there: most results are quicker than that."""


class CallerLeft(Exception):
    """Nobody is there to be answered."""


async def while_there(pending: asyncio.Future[Any], receive: Receive, closing: asyncio.Future[None]) -> Any:
    """Return the result; `pending` is cancelled when nobody waits for it any more.

    Raises:
        CallerLeft: the caller hung up.
        AgentExited: the server ends.
    """
    if pending.done():
        return pending.result()
    leaving: list[asyncio.Task[None]] = []

    def give_up(_end: asyncio.Future[None]) -> None:
        pending.cancel()

    def watch() -> None:
        leaving.append(asyncio.ensure_future(caller_left(receive)))
        leaving[0].add_done_callback(give_up)

    me = asyncio.current_task()
    watching = asyncio.get_running_loop().call_later(WATCH_AFTER, watch)
    closing.add_done_callback(give_up)
    try:
        return await pending
    except asyncio.CancelledError:
        if me is not None and me.cancelling():
            raise  # by somebody else, not by giving up
        if closing.done():
            raise AgentExited("this server ends; the task is kept") from None
        raise CallerLeft from None
    finally:
        watching.cancel()
        closing.remove_done_callback(give_up)
        for watcher in leaving:
            watcher.remove_done_callback(give_up)
            watcher.cancel()


async def caller_left(receive: Receive) -> None:
    """Return when whoever waits for the answer has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
