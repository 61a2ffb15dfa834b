"""The words of ASGI, typed once: what a server hands to an application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from synapse.dialects.dialect import WireAnswer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AnswerWhole(Protocol):
    """Sends a whole answer at once, with the headers about its body; the last one ends the connection."""

    def __call__(self, answer: WireAnswer, /, *, last: bool = False) -> None: ...


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
