"""What callers on the gateway's Unix socket may do."""

from __future__ import annotations

import pytest

from synapse.core.caller import Caller
from synapse.gateway.gateway import limited


def test_a_person_may_do_everything() -> None:
    assert limited(Caller(via_socket=True)).actions is None


@pytest.mark.parametrize(
    "caller",
    [
        Caller(via_socket=True, agent_id="synapse-claude-8100"),
        Caller(via_socket=True, doubt="it has exited"),
        Caller(via_socket=True, terminal_doubt="it has no terminal"),
    ],
    ids=["agent", "doubtful", "no terminal"],
)
def test_others_may_do_nothing_that_belongs_to_people(caller: Caller) -> None:
    assert limited(caller).actions == frozenset({"read", "send", "cancel"})
