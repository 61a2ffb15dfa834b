"""The ASGI types of servers and applications, their shortcuts beside ASGI, and waiting for a result of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from synapse.core.caller import Caller, for_good
from synapse.core.errors import AgentExited, SynapseError
from synapse.core.waiting import pause
from synapse.dialects.dialect import WireAnswer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

WITHOUT_BODY: Final = frozenset({204, 304})
"""Statuses whose answers have no body, nor headers about one."""
WATCH_AFTER: Final = 0.05
"""Seconds before a `_Watcher` checks whether the caller is still connected."""


class AnswerWhole(Protocol):
    """Sends a whole answer at once, with the headers of its body; or returns False and has sent nothing.

    With `last`, the connection ends after it.
    """

    def __call__(self, answer: WireAnswer, /, *, last: bool = False) -> bool: ...


def answer_whole(send: Send) -> AnswerWhole | None:
    """Returns the shortcut of our own server beside ASGI's two messages: its `send` has a method `answer`.

    Middleware that wraps `send` hides it, so an answer that middleware changes never bypasses it.
    """
    return getattr(send, "answer", None)


BodyAtHand = Callable[[], bytes | None]
"""Takes the body of the request if it has arrived whole and no part of it was taken; else returns None."""


def body_at_hand(send: Send) -> BodyAtHand | None:
    """Returns the shortcut of our own server beside ASGI's `receive`: nearly every body arrives with its head."""
    return getattr(send, "body_at_hand", None)


WhenLeft = Callable[[Callable[[], object] | None], None]
"""Sets the function to call when the caller disconnects, or None for no function."""


def when_left(send: Send) -> WhenLeft | None:
    """Returns the shortcut by which our own server reports a disconnect, without a task that waits for it."""
    return getattr(send, "when_left", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What one request may cost; times in seconds."""

    max_body_bytes: int = 10 * 1024 * 1024
    arrival_seconds: float = 30.0
    """How long a request may take to arrive; the server closes slower connections."""
    keep_alive_seconds: float = 15.0
    """How often an idle stream sends a comment to stay open."""
    recheck_seconds: float = 2.0
    """How often the credentials behind an open stream or WebSocket are checked."""


class ServedApp(Protocol):
    """An application that a server serves: HttpApp, or middleware around one."""

    @property
    def limits(self) -> HttpLimits: ...

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]: ...

    def close(self) -> None:
        """Ends all streams."""
        ...

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        """Encodes an error for a request that never arrived whole; `scope` is its head, if that arrived."""
        ...


class ClientDisconnected(Exception):
    """The caller closed the connection before its answer."""


class PendingResults:
    """The requests of one server that wait for a result: as long as the caller stays and the server runs."""

    def __init__(self) -> None:
        self._waits: set[asyncio.Future[Any]] = set()
        self._over = False

    async def wait(self, pending: asyncio.Future[T], receive: Receive, send: Send) -> T:
        """Returns the result; cancels `pending` when the caller leaves or the server ends.

        Raises:
            ClientDisconnected: the caller closed the connection.
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
                raise  # this request itself was cancelled, not only its wait
            if self._over:
                raise AgentExited("this server ends; the task is kept") from None
            raise ClientDisconnected from None
        finally:
            self._waits.discard(pending)
            stop_watching()

    def end(self) -> None:
        """Ends all waits, because the server ends."""
        self._over = True
        for pending in self._waits:
            pending.cancel()


def _watch(pending: asyncio.Future[Any], receive: Receive, send: Send) -> Callable[[], None]:
    """Cancels `pending` when the caller leaves; returns a function that stops watching."""
    call_when_left = when_left(send)
    if call_when_left is None:
        return _Watcher(pending, receive).close
    call_when_left(pending.cancel)
    return partial(call_when_left, None)


class _Watcher:
    """Watches for a disconnect on servers without `when_left`. Starts after WATCH_AFTER: most results are faster."""

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
    """Waits until the caller has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_revoked(caller: Caller, every: float) -> None:
    """Returns when the caller's credentials are no longer valid: a key was revoked, or a session has ended."""
    if caller.holds is for_good:
        await asyncio.get_running_loop().create_future()
    while caller.holds():
        await pause(every)
