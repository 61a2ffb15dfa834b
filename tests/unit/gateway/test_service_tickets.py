"""A gateway with tickets issues them to callers who may read."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.caller import SEND, Caller
from synapse.core.errors import Forbidden, UnsupportedOperation
from synapse.core.requests import IssueTicket, Ticket
from synapse.gateway.directory import GatewayDirectory
from synapse.gateway.service import GatewayService
from tests.fakes.facts import START

LAPTOP = Caller(scope="key:laptop", name="laptop")
NOT_ASKED: Any = None
"""These tests ask for no tasks and no agents."""


def gateway(**more: Any) -> GatewayService:
    return GatewayService(GatewayDirectory(), NOT_ASKED, NOT_ASKED, NOT_ASKED, **more)


def new_ticket(caller: Caller) -> Ticket:
    return Ticket(text=f"for {caller.name}", expires_at=START)


async def issued(service: GatewayService, caller: Caller) -> Ticket:
    return await service.handle(IssueTicket(), caller)


async def test_a_ticket_is_issued_to_the_caller() -> None:
    assert await issued(gateway(new_ticket=new_ticket), LAPTOP) == new_ticket(LAPTOP)


async def test_a_caller_who_may_not_read_gets_no_ticket() -> None:
    with pytest.raises(Forbidden):
        await issued(gateway(new_ticket=new_ticket), Caller(scope="key:x", actions=frozenset({SEND})))


async def test_a_gateway_without_a_socket_has_no_tickets() -> None:
    with pytest.raises(UnsupportedOperation):
        await issued(gateway(), LAPTOP)
