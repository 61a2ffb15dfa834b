"""A message that is canceled before Enter: Enter never follows, and only our own text is cleared."""

from __future__ import annotations

import pytest

from synapse.core.agent import EXITED, WAITING
from synapse.terminal.delivery import Clear, Delivery, Doubt, Dropped, Intend, Phase, Proven
from synapse.terminal.picture import Picture
from tests.unit.terminal.deliveries import entered_delivery, typed_delivery
from tests.unit.terminal.scenes import (
    TEXT,
    dialog_page,
    line_profile,
    look_at,
    page,
    page_profile,
    quiet_profile,
    screen_of,
)


def test_our_text_is_cleared_and_the_delivery_ends() -> None:
    delivery = typed_delivery(page_profile(), page())

    assert delivery.drop(0.1)
    assert delivery.advance(look_at(page(TEXT)), 0.1) == (Clear(),)
    assert delivery.advance(look_at(page()), 0.2) == (Dropped(),)
    assert delivery.phase is Phase.DROPPED
    assert delivery.advance(look_at(page()), 100.0) == ()


def test_a_half_painted_line_of_ours_is_cleared_too() -> None:
    delivery = typed_delivery(line_profile(), screen_of("> "))

    assert delivery.drop(0.0)
    assert delivery.advance(look_at(screen_of("> " + TEXT[:20])), 0.1) == (Clear(),)


def test_nothing_is_pressed_on_half_a_frame() -> None:
    delivery = typed_delivery(page_profile(), page())

    assert delivery.drop(0.0)
    assert delivery.advance(look_at(page(TEXT, updating=True), quiet_for=0.1), 0.1) == ()
    assert delivery.advance(look_at(page(TEXT)), 0.2) == (Clear(),)


def test_the_keys_are_pressed_again_while_some_of_it_is_left_and_not_for_ever() -> None:
    delivery = typed_delivery(page_profile(), page())
    delivery.drop(0.0)
    left = look_at(page(TEXT))

    assert delivery.advance(left, 0.0) == (Clear(),)
    assert delivery.advance(left, 0.1) == ()
    assert delivery.deadline == 0.25
    assert delivery.advance(left, 0.25) == (Clear(),)
    assert delivery.advance(left, 2.0) == (Dropped(),)


def test_before_anything_was_typed_it_just_ends() -> None:
    delivery = Delivery(TEXT, page_profile())
    assert delivery.advance(look_at(page()), 0.0) == (Intend(),)

    assert delivery.drop(0.0)
    delivery.intent_recorded(0.1)
    assert delivery.advance(look_at(page()), 0.1) == (Dropped(),)


def test_after_enter_it_is_too_late() -> None:
    delivery = entered_delivery(page_profile(), page(), page(TEXT))

    assert not delivery.drop(0.1)
    assert delivery.phase is Phase.ENTERED


def test_a_text_in_doubt_before_enter_is_cleared_when_the_message_is_canceled() -> None:
    profile = page_profile()
    delivery = typed_delivery(profile, page())
    delivery.advance(look_at(dialog_page(), WAITING), 0.1)
    (doubt,) = delivery.advance(look_at(dialog_page(), WAITING), 0.1 + profile.times.dialog)
    assert isinstance(doubt, Doubt)

    assert delivery.drop(1000.0)
    assert delivery.advance(look_at(page(TEXT)), 1000.0) == (Clear(),)
    assert delivery.advance(look_at(page()), 1000.1) == (Dropped(),)


def doubtful_after_enter(shown: Picture) -> Delivery:
    profile = page_profile()
    delivery = entered_delivery(profile, page(), page(TEXT))
    (doubt,) = delivery.advance(look_at(shown), profile.times.proof)
    assert isinstance(doubt, Doubt)
    return delivery


def test_a_message_in_doubt_after_enter_that_is_no_longer_shown_cannot_be_dropped() -> None:
    delivery = doubtful_after_enter(screen_of("a page that no rule knows", bracketed_paste=True))

    assert not delivery.drop(1000.0)
    assert delivery.phase is Phase.DOUBTFUL


def test_a_text_that_stays_in_the_input_after_enter_is_cleared_when_the_message_is_canceled() -> None:
    delivery = doubtful_after_enter(page(TEXT))

    assert delivery.drop(1000.0)
    assert delivery.advance(look_at(page(TEXT)), 1000.0) == (Clear(),)
    assert delivery.advance(look_at(page()), 1000.1) == (Dropped(),)


def test_a_text_that_leaves_the_input_by_itself_after_enter_was_taken() -> None:
    delivery = doubtful_after_enter(page(TEXT))
    delivery.drop(1000.0)

    assert delivery.advance(look_at(page()), 1000.0) == ()
    assert delivery.advance(look_at(page()), 1000.2) == (Proven("screen", "the prompt held the text and was cleared"),)


def test_a_persons_text_after_enter_is_left_alone() -> None:
    delivery = doubtful_after_enter(page(TEXT))
    delivery.drop(1000.0)

    assert delivery.advance(look_at(page(TEXT), person_idle_for=1.0), 1000.0) == (Dropped(),)


def test_what_a_person_typed_is_left_alone() -> None:
    delivery = typed_delivery(page_profile(), page())
    delivery.drop(0.1)

    assert delivery.advance(look_at(page(TEXT), person_idle_for=0.01), 0.1) == (Dropped(),)


def test_a_program_that_has_ended_gets_no_keys() -> None:
    delivery = typed_delivery(page_profile(), page())
    delivery.drop(0.1)

    assert delivery.advance(look_at(page(TEXT), EXITED), 0.1) == (Dropped(),)


@pytest.mark.parametrize(
    ("shown", "end"), [(page("something else"), 2.0), (screen_of("no prompt", bracketed_paste=True), 60.0)]
)
def test_foreign_text_and_other_pages_are_left_alone(shown: Picture, end: float) -> None:
    delivery = typed_delivery(page_profile(), page())
    delivery.drop(0.0)

    assert delivery.advance(look_at(shown), 0.1) == ()
    assert delivery.advance(look_at(shown), end) == (Dropped(),)


def test_our_text_is_cleared_when_the_input_is_seen_again() -> None:
    delivery = typed_delivery(page_profile(), page())
    delivery.drop(0.0)

    assert delivery.advance(look_at(screen_of("a page of help", bracketed_paste=True)), 0.1) == ()
    assert delivery.advance(look_at(screen_of("a page of help", bracketed_paste=True)), 30.0) == ()
    assert delivery.advance(look_at(page(TEXT)), 30.1) == (Clear(),)
    assert delivery.advance(look_at(page()), 30.2) == (Dropped(),)


def test_a_long_text_is_cleared_whole_however_many_presses_it_takes() -> None:
    words = " ".join([TEXT, *(f"word{number}" for number in range(500))])
    delivery = typed_delivery(page_profile(), page(), text=words)
    delivery.drop(0.0)
    now = 0.0

    for length in range(300, 0, -10):
        now += 0.1
        assert delivery.advance(look_at(page(words[:length])), now) == (Clear(),)
        assert delivery.advance(look_at(page(words[:length])), now + 0.05) == ()

    assert now > page_profile().times.echo
    assert delivery.advance(look_at(page()), now + 0.1) == (Dropped(),)


def test_nothing_is_pressed_while_a_dialog_is_open() -> None:
    delivery = typed_delivery(page_profile(), page())
    delivery.drop(0.1)
    dialog = look_at(dialog_page(), WAITING, dialog="permission")

    assert delivery.advance(dialog, 0.2) == ()
    assert delivery.advance(dialog, 30.0) == ()
    assert delivery.advance(look_at(page()), 30.1) == ()
    assert delivery.advance(look_at(page(TEXT)), 30.2) == (Clear(),)
    assert delivery.advance(look_at(page()), 30.3) == (Dropped(),)


def test_a_dialog_that_stays_open_ends_the_drop() -> None:
    delivery = typed_delivery(page_profile(), page())
    delivery.drop(0.0)

    assert delivery.advance(look_at(dialog_page(), WAITING, dialog="permission"), 60.0) == (Dropped(),)


def test_a_text_that_is_never_shown_is_cleared_when_its_time_is_over() -> None:
    for profile, ready in ((page_profile(), page()), (quiet_profile(), screen_of("hello"))):
        delivery = typed_delivery(profile, ready)
        delivery.drop(0.0)

        assert delivery.advance(look_at(ready), 0.1) == ()
        assert delivery.deadline == 2.0
        assert delivery.advance(look_at(ready), 2.0) == (Clear(), Dropped())


def test_a_signal_may_still_prove_that_the_program_took_it() -> None:
    delivery = typed_delivery(page_profile(), page())
    delivery.drop(0.0)

    assert delivery.signalled("signal", "its hook said so", 0.1) == (Proven("signal", "its hook said so"),)
