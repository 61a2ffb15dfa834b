"""A ticket is worth one handshake, for half a minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from synapse.core.access_errors import RateLimited
from synapse.core.caller import Caller
from synapse.service.tickets import TicketBook

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
ANNE = Caller(scope="key:1", name="anne")


def book(most: int = 100) -> TicketBook:
    numbers = count(1)
    return TicketBook(lambda: f"ticket-{next(numbers)}", most=most)


def test_a_ticket_is_worth_its_caller_once() -> None:
    tickets = book()
    ticket = tickets.issue(ANNE, NOW)

    assert ticket.expires_at == NOW + timedelta(seconds=30)
    assert tickets.redeem(ticket.text, NOW + timedelta(seconds=29)) == ANNE
    assert tickets.redeem(ticket.text, NOW) is None


def test_a_ticket_that_is_too_old_is_worth_nothing() -> None:
    tickets = book()
    ticket = tickets.issue(ANNE, NOW)

    assert tickets.redeem(ticket.text, NOW + timedelta(seconds=30)) is None


def test_what_was_never_issued_is_worth_nothing() -> None:
    assert book().redeem("ticket-1", NOW) is None


def test_only_so_many_are_out_and_old_ones_make_room() -> None:
    tickets = book(most=2)
    tickets.issue(ANNE, NOW)
    late = tickets.issue(ANNE, NOW + timedelta(seconds=10))

    with pytest.raises(RateLimited):
        tickets.issue(ANNE, NOW + timedelta(seconds=20))
    tickets.issue(ANNE, NOW + timedelta(seconds=31))
    assert tickets.redeem(late.text, NOW + timedelta(seconds=32)) == ANNE


def test_a_ticket_does_not_show_itself() -> None:
    assert "ticket-1" not in repr(book().issue(ANNE, NOW))
