"""The words of ASGI, typed once: what a server hands to an application.

What a server serves: an ASGI application that can also say no, and end.

Waiting for a result that takes as long as an agent does: as long as the caller stays and the server runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from synapse.core.errors import AgentExited, SynapseError
from synapse.dialects.dialect import WireAnswer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


WITHOUT_BODY: Final = frozenset({204, 304})
"""Statuses whose answers have no body, nor headers about one."""


class AnswerWhole(Protocol):
    """Sends a whole answer at once, with the headers about its body; or returns False, and has sent nothing.

    The last one ends the connection.
    """

    def __call__(self, answer: WireAnswer, /, *, last: bool = False) -> bool: ...


def answer_whole(send: Send) -> AnswerWhole | None:
    """The short way that our own server has beside ASGI's two messages: its `send` has a method `answer`.

    Whoever wraps `send` hides it, so an answer that is to be changed on its way never passes by.
    """
    return getattr(send, "answer", None)


BodyAtHand = Callable[[], bytes | None]
"""Takes the body of the request, if all of it has come and nothing of it was taken; else None."""


def body_at_hand(send: Send) -> BodyAtHand | None:
    """The short way beside ASGI's `receive` that our own server has: nearly every body is there with its head."""
    return getattr(send, "body_at_hand", None)


WhenLeft = Callable[[Callable[[], object] | None], None]
"""Takes what is to be called when the caller leaves, or None for nothing more."""


def when_left(send: Send) -> WhenLeft | None:
    """How our own server tells that the caller has left, without anybody waiting for that."""
    return getattr(send, "when_left", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What one request may cost; times in seconds."""

    max_body_bytes: int = 10 * 1024 * 1024
    arrival_seconds: float = 30.0
    """How long a request may take to arrive; the server hangs up on slower ones."""
    keep_alive_seconds: float = 15.0
    """How often a stream says that it is alive."""


class ServedApp(Protocol):
    """An application: HttpApp, or something around one."""

    @property
    def limits(self) -> HttpLimits: ...

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]: ...

    def close(self) -> None:
        """End all streams."""
        ...

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        """Word an error for somebody whose bytes never became a whole request; `scope` is its head, if that came."""
        ...


WATCH_AFTER: Final = 0.05
"""Seconds before anybody looks whether the caller is still there, where the server does not tell by itself."""


class ClientDisconnected(Exception):
    """Nobody is there to be answered."""


class PendingResults:
    """Those who wait for a result of one server."""

    def __init__(self) -> None:
        self._waits: set[asyncio.Future[Any]] = set()
        self._over = False

    async def wait(self, pending: asyncio.Future[Any], receive: Receive, send: Send) -> Any:
        """Return the result; `pending` is cancelled when nobody waits for it any more.

        Raises:
            ClientDisconnected: the caller hung up.
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
            raise ClientDisconnected from None
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
