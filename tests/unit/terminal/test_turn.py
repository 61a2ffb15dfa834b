"""When a turn is over, and when an interrupt that was missed is repeated: never into anything but work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synapse.core.agent import READY, STARTING, WAITING, WORKING
from synapse.terminal.evidence import Look
from synapse.terminal.profile import Profile
from synapse.terminal.turn import MOST_PRESSES, PATIENCE, InterruptRetry, Settled, TurnTracker, Waiting, Working
from tests.unit.terminal.scenes import (
    dialog_page,
    line_profile,
    look_at,
    page,
    page_profile,
    quiet_profile,
    screen_of,
)

STILL_WORKING = look_at(page(), WORKING)
AT_WORK = look_at(page(status="esc to interrupt"), WORKING, quiet_for=0.0)


def worked(profile: Profile, now: float = 0.0) -> TurnTracker:
    """A turn during which the program was seen to work until `now`."""
    tracker = TurnTracker(profile, 0.0)
    tracker.advance(AT_WORK, now)
    return tracker


def test_a_program_that_works_and_then_shows_its_prompt_has_answered() -> None:
    tracker = TurnTracker(page_profile(), 0.0)

    (step,) = tracker.advance(AT_WORK, 0.1)
    assert isinstance(step, Working)
    assert tracker.advance(AT_WORK, 0.2) == ()
    assert tracker.advance(look_at(page(), quiet_for=0.1), 5.0) == ()
    assert tracker.deadline == pytest.approx(5.4)
    (end,) = tracker.advance(look_at(page(), quiet_for=0.5), 5.4)

    assert end == Settled("screen", "the prompt is back, and output has stopped")
    assert tracker.advance(AT_WORK, 6.0) == ()


def test_right_after_the_submission_an_empty_prompt_is_not_believed_so_soon() -> None:
    tracker = TurnTracker(page_profile(), 10.0)

    assert tracker.advance(look_at(page(), quiet_for=60.0), 10.6) == ()
    assert tracker.deadline == pytest.approx(12.0)
    (step,) = tracker.advance(look_at(page(), quiet_for=60.0), 12.0)

    assert isinstance(step, Settled)


def test_silence_before_the_submission_does_not_count() -> None:
    tracker = TurnTracker(line_profile(), 100.0)

    assert tracker.advance(look_at(screen_of("> "), quiet_for=99.0), 100.02) == ()


def test_a_dialog_is_waited_out() -> None:
    tracker = worked(page_profile())
    dialog = look_at(dialog_page(), WAITING, dialog="permission", hint="allow or deny it")

    assert tracker.advance(dialog, 1.0) == (Waiting("permission", "allow or deny it"),)
    assert tracker.advance(dialog, 900.0) == ()
    assert tracker.advance(look_at(page(), quiet_for=0.1), 900.1) == ()
    assert isinstance(tracker.advance(AT_WORK, 900.2)[0], Working)
    assert isinstance(tracker.advance(look_at(page(), quiet_for=0.6), 902.0)[0], Settled)


def test_another_dialog_is_another_step() -> None:
    tracker = worked(page_profile())
    tracker.advance(look_at(dialog_page(), WAITING, dialog="permission"), 1.0)

    assert tracker.advance(look_at(dialog_page(), WAITING, dialog="question"), 2.0) == (
        Waiting("question", "look at its terminal"),
    )
    assert tracker.advance(look_at(page(), WAITING), 3.0) == (Waiting("question", "look at its terminal"),)


def test_a_person_who_types_their_next_line_does_not_prolong_the_turn() -> None:
    tracker = worked(page_profile())

    (step,) = tracker.advance(look_at(page("my next line"), quiet_for=0.6), 5.0)

    assert isinstance(step, Settled)


@pytest.mark.parametrize(
    "look",
    [
        look_at(None),
        look_at(page(updating=True), quiet_for=0.9),
        look_at(screen_of("a page that no rule knows")),
        look_at(page(), STARTING),
    ],
)
def test_an_unknown_state_does_not_end_the_turn(look: object) -> None:
    tracker = worked(page_profile())

    assert tracker.advance(look, 50.0) == ()  # type: ignore[arg-type]  # pytest hands it on as an object


def test_a_line_program_has_answered_when_its_prompt_is_back() -> None:
    tracker = TurnTracker(line_profile(), 0.0)

    assert tracker.advance(look_at(screen_of("> hi", "answer", "> "), READY, quiet_for=0.02), 0.04) == ()
    (step,) = tracker.advance(look_at(screen_of("> hi", "answer", "> "), READY, quiet_for=0.03), 0.05)

    assert isinstance(step, Settled)


def test_without_a_prompt_rule_silence_ends_the_turn_and_says_so() -> None:
    tracker = TurnTracker(quiet_profile(), 0.0)
    tracker.advance(look_at(screen_of("..."), WORKING, quiet_for=0.1), 0.1)

    (step,) = tracker.advance(look_at(screen_of("..."), READY, quiet_for=1.5), 1.6)

    assert isinstance(step, Settled)
    assert step.source == "quiet"
    assert "no prompt rule" in step.evidence


def test_a_signal_ends_the_turn_at_once() -> None:
    tracker = worked(page_profile())

    assert tracker.ended("hook", "Stop") == (Settled("hook", "Stop"),)
    assert tracker.ended("hook", "Stop") == ()


def test_work_that_the_delivery_saw_counts() -> None:
    tracker = TurnTracker(page_profile(), 10.0, has_worked=True)

    (begun,) = tracker.advance(look_at(page(), quiet_for=0.1), 10.1)
    (end,) = tracker.advance(look_at(page(), quiet_for=0.5), 10.5)

    assert isinstance(begun, Working)
    assert isinstance(end, Settled)


def test_a_turn_settles_sooner_if_the_program_reports_its_status() -> None:
    tracker = worked(page_profile())

    (end,) = tracker.advance(look_at(replace(page(), program_status="done"), quiet_for=0.15), 5.0)

    assert isinstance(end, Settled)


def test_an_interrupt_is_not_repeated_before_it_was_pressed() -> None:
    retry = InterruptRetry()

    assert retry.deadline is None
    assert not retry.is_due(STILL_WORKING, 100.0)


def test_an_interrupt_is_repeated_while_the_program_goes_on_working() -> None:
    retry = InterruptRetry()
    retry.pressed(10.0)

    assert retry.deadline == 10.0 + PATIENCE
    assert not retry.is_due(STILL_WORKING, 10.0 + PATIENCE - 0.1)
    assert retry.is_due(STILL_WORKING, 10.0 + PATIENCE)


@pytest.mark.parametrize(
    "look",
    [look_at(page(), READY), look_at(page(), WAITING), look_at(dialog_page(), WORKING, dialog="permission")],
    ids=["ready", "waiting", "dialog"],
)
def test_an_interrupt_is_not_repeated_once_the_program_does_anything_else(look: Look) -> None:
    retry = InterruptRetry()
    retry.pressed(10.0)

    assert not retry.is_due(look, 10.0 + PATIENCE)
    assert not retry.is_due(STILL_WORKING, 10.0 + 2 * PATIENCE)


def test_an_interrupt_is_repeated_a_few_times_only() -> None:
    retry = InterruptRetry()
    presses, now = 1, 10.0
    retry.pressed(now)

    while retry.deadline is not None:
        now = retry.deadline
        assert retry.is_due(STILL_WORKING, now)
        retry.pressed(now)
        presses += 1

    assert presses == MOST_PRESSES
    assert not retry.is_due(STILL_WORKING, now + 100)
