"""Tickets work for one handshake, and for half a minute."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from synapse.auth.authenticators import TicketBook
from synapse.core.caller import Caller
from synapse.core.errors import RateLimited
from tests.fakes.clock import FakeClock

ANNE = Caller(scope="key:1", name="anne")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def book(most: int = 100) -> TicketBook:
    numbers = count(1)
    return TicketBook(lambda: f"ticket-{next(numbers)}", most=most)


def test_a_ticket_returns_its_caller_once(clock: FakeClock) -> None:
    tickets = book()
    ticket = tickets.issue(ANNE, clock)

    assert ticket.expires_at == clock.now() + timedelta(seconds=30)
    clock.advance(29)
    assert tickets.redeem(ticket.text, clock) == ANNE
    assert tickets.redeem(ticket.text, clock) is None


def test_an_expired_ticket_is_not_accepted(clock: FakeClock) -> None:
    tickets = book()
    ticket = tickets.issue(ANNE, clock)
    clock.advance(30)

    assert tickets.redeem(ticket.text, clock) is None


def test_setting_the_clock_back_does_not_prolong_a_ticket(clock: FakeClock) -> None:
    tickets = book()
    ticket = tickets.issue(ANNE, clock)
    clock.jump(-3600)
    clock.suspend(30)

    assert tickets.redeem(ticket.text, clock) is None


def test_an_unknown_ticket_is_not_accepted(clock: FakeClock) -> None:
    assert book().redeem("ticket-1", clock) is None


def test_the_number_of_tickets_is_limited_and_expired_ones_make_room(clock: FakeClock) -> None:
    tickets = book(most=2)
    tickets.issue(ANNE, clock)
    clock.advance(10)
    late = tickets.issue(ANNE, clock)
    clock.advance(10)

    with pytest.raises(RateLimited):
        tickets.issue(ANNE, clock)
    clock.advance(11)
    tickets.issue(ANNE, clock)
    clock.advance(1)
    assert tickets.redeem(late.text, clock) == ANNE


def test_a_ticket_is_not_shown(clock: FakeClock) -> None:
    assert "ticket-1" not in repr(book().issue(ANNE, clock))
