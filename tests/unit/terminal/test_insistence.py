"""An interrupt that was missed is pressed again, and never into anything but work."""

from __future__ import annotations

import pytest

from synapse.core.agent import READY, WAITING, WORKING
from synapse.terminal.evidence import Look
from synapse.terminal.turn import MOST_PRESSES, PATIENCE, InterruptRetry
from tests.unit.terminal.scenes import dialog_page, look_at, page

STILL_WORKING = look_at(page(), WORKING)


def test_nothing_is_pressed_that_nobody_pressed_before() -> None:
    insistence = InterruptRetry()

    assert insistence.deadline is None
    assert not insistence.is_due(STILL_WORKING, 100.0)


def test_a_program_that_goes_on_working_is_asked_again() -> None:
    insistence = InterruptRetry()
    insistence.pressed(10.0)

    assert insistence.deadline == 10.0 + PATIENCE
    assert not insistence.is_due(STILL_WORKING, 10.0 + PATIENCE - 0.1)
    assert insistence.is_due(STILL_WORKING, 10.0 + PATIENCE)


@pytest.mark.parametrize(
    "look",
    [look_at(page(), READY), look_at(page(), WAITING), look_at(dialog_page(), WORKING, dialog="permission")],
    ids=["ready", "waiting", "dialog"],
)
def test_it_is_over_when_the_program_does_anything_else(look: Look) -> None:
    insistence = InterruptRetry()
    insistence.pressed(10.0)

    assert not insistence.is_due(look, 10.0 + PATIENCE)
    assert not insistence.is_due(STILL_WORKING, 10.0 + 2 * PATIENCE)


def test_it_gives_up_in_the_end() -> None:
    insistence = InterruptRetry()
    presses, now = 1, 10.0
    insistence.pressed(now)

    while insistence.deadline is not None:
        now = insistence.deadline
        assert insistence.is_due(STILL_WORKING, now)
        insistence.pressed(now)
        presses += 1

    assert presses == MOST_PRESSES
    assert not insistence.is_due(STILL_WORKING, now + 100)
