"""Tickets: what a web page shows at a WebSocket's handshake, where browsers let it set no header. Pure.

A ticket is got with real credentials, is worth one handshake, and is worth nothing after a short while: it stands in an
address, and addresses are logged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from synapse.core.access_errors import RateLimited
from synapse.core.caller import Caller
from synapse.core.clock import Clock

LIFETIME: Final = timedelta(seconds=30)
MOST_TICKETS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A ticket as its holder gets it."""

    text: str = field(repr=False)
    expires_at: datetime


class TicketBook:
    """The tickets that are out; `mint` gives texts that nobody can guess."""

    def __init__(self, mint: Callable[[], str], *, most: int = MOST_TICKETS) -> None:
        self._mint = mint
        self._most = most
        self._callers: dict[str, tuple[Caller, float]] = {}
        """With the time until which each counts, by a clock that nobody sets."""

    def issue(self, caller: Caller, clock: Clock) -> Ticket:
        """Make a ticket for `caller`. Raises RateLimited when too many are out."""
        self._forget_expired(clock.boot_time().seconds)
        if len(self._callers) >= self._most:
            raise RateLimited("too many tickets are out", seconds=LIFETIME.total_seconds())
        ticket = Ticket(text=self._mint(), expires_at=clock.now() + LIFETIME)
        self._callers[ticket.text] = (caller, clock.boot_time().seconds + LIFETIME.total_seconds())
        return ticket

    def redeem(self, text: str, clock: Clock) -> Caller | None:
        """Whom the ticket was made for; it is used up by this."""
        caller, end = self._callers.pop(text, (None, 0.0))
        return caller if clock.boot_time().seconds < end else None

    def _forget_expired(self, now: float) -> None:
        # All live equally long, so they stand in the order in which they expire.
        expired = takewhile(lambda item: item[1][1] <= now, self._callers.items())
        for text in [text for text, _ in expired]:
            del self._callers[text]
