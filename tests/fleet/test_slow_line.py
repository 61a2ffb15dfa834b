"""A machine behind a slow line that is cut and broken while messages are on it. Needs no root."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.fleet.careful_client import closed_rows, end_in, insist, row_of, typed
from tests.fleet.world import open_world
from tests.integration.chaos.house import LINE_RULES

pytestmark = pytest.mark.integration

DELAY = 0.025
"""Seconds each way."""


def test_messages_over_a_slow_line_that_is_cut_and_broken_are_typed_once() -> None:
    with open_world("hub", "box2", namespaces=False, delay=DELAY) as world:
        world.form()
        hub, box2 = world["hub"], world["box2"]
        box2.add_profile("bob", LINE_RULES, "line_recorder")
        box2.start("bob", name="bob")
        assert box2.line is not None
        nonces: list[str] = []

        def send(count: int) -> None:
            for _ in range(count):
                nonces.append(uuid4().hex[:12])
                insist(hub, "bob@box2", f"do <<{nonces[-1]}>>", f"m-{nonces[-1]}")

        send(3)
        closed_rows(hub, [f"m-{nonce}" for nonce in nonces])
        for is_lost in (False, True):
            box2.cut_off()
            send(1)
            assert row_of(hub, f"m-{nonces[-1]}")["state"] == "open"
            if is_lost:
                box2.line.reset()
            box2.mend()
            closed_rows(hub, [f"m-{nonces[-1]}"], bound=90)

        rows = closed_rows(hub, [f"m-{nonce}" for nonce in nonces])
        assert {(row["state"], end_in(row)) for row in rows} == {("settled", "completed")}
        assert sorted(typed(box2, "bob")) == sorted(nonces)
