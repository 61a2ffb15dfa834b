"""From the first byte to proof: nothing twice, nothing into a dialog, nothing over a person's line."""

from __future__ import annotations

import pytest

from synapse.core.agent import EXITED, WAITING, WORKING
from synapse.terminal.delivery import Delivery, Doubt, Phase, Proven
from tests.unit.terminal.deliveries import ENTER, SUBMITTED, entered_delivery, lasting, typed_delivery
from tests.unit.terminal.scenes import TEXT, dialog_page, look_at, page, page_profile, screen_of


class TestEnter:
    def test_enter_follows_as_soon_as_the_text_is_seen(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page(TEXT)), 0.01) == (ENTER,)
        assert delivery.phase is Phase.ENTERED

    def test_a_mark_that_stands_for_a_long_paste_counts_as_the_text(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page("[Pasted 20 lines]")), 0.01) == (ENTER,)

    def test_a_half_painted_text_is_waited_for(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page(TEXT[:20])), 0.01) == ()
        assert delivery.advance(look_at(page(TEXT)), 0.05) == (ENTER,)

    def test_the_profile_may_want_a_pause_before_enter(self) -> None:
        profile = page_profile(times={"enter": 0.3})
        delivery = typed_delivery(profile, page())

        assert delivery.advance(look_at(page(TEXT)), 0.01) == ()
        assert delivery.deadline == pytest.approx(0.31)
        assert delivery.advance(look_at(page(TEXT)), 0.31) == (ENTER,)

    def test_a_slow_write_moves_the_pause(self) -> None:
        delivery = typed_delivery(page_profile(times={"enter": 0.3}), page())
        assert delivery.advance(look_at(page(TEXT)), 4.9) == ()
        delivery.written(5.0)

        assert delivery.advance(look_at(page(TEXT)), 5.2) == ()
        assert delivery.advance(look_at(page(TEXT)), 5.3) == (ENTER,)

    def test_the_pause_begins_when_a_slow_program_shows_the_text(self) -> None:
        delivery = typed_delivery(page_profile(times={"enter": 0.3}), page())

        assert delivery.advance(look_at(page()), 1.0) == ()
        assert delivery.advance(look_at(page(TEXT)), 1.5) == ()
        assert delivery.deadline == pytest.approx(1.8)
        assert delivery.advance(look_at(page(TEXT)), 1.8) == (ENTER,)

    def test_a_program_that_draws_no_paste_gets_enter_when_its_time_is_over(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page()), 1.9) == ()
        assert delivery.advance(look_at(page()), 2.0) == (ENTER,)

    def test_foreign_text_in_the_prompt_is_never_submitted(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page("x" + TEXT)), 0.1) == ()
        (step,) = delivery.advance(look_at(page("x" + TEXT)), 2.0)

        assert step == Doubt("the prompt shows other text")

    def test_a_person_who_types_before_enter_is_not_overruled(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page(TEXT), person_idle_for=0.05), 0.1) == ()
        (step,) = delivery.advance(look_at(page(TEXT), person_idle_for=1.95), 2.0)

        assert step == Doubt("a person typed before Enter was pressed")

    def test_a_prompt_that_goes_away_gets_no_enter(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        (step,) = delivery.advance(look_at(screen_of("something else", bracketed_paste=True)), 2.0)

        assert step == Doubt("the prompt went away before Enter was pressed")

    def test_enter_waits_while_a_dialog_is_open_and_follows_when_the_text_is_still_there(self) -> None:
        delivery = typed_delivery(page_profile(), page())
        dialog = look_at(dialog_page(), WAITING, dialog="permission")

        assert delivery.advance(dialog, 0.1) == ()
        assert delivery.advance(dialog, 30.0) == ()
        assert delivery.advance(look_at(page(TEXT)), 31.0) == (ENTER,)

    def test_a_text_that_a_dialog_swallowed_is_in_doubt(self) -> None:
        delivery = typed_delivery(page_profile(), page())
        delivery.advance(look_at(dialog_page(), WAITING, dialog="permission"), 0.1)

        assert delivery.advance(look_at(page()), 31.0) == ()
        (step,) = delivery.advance(look_at(page()), 33.0)

        assert step == Doubt("the text was in the prompt and is no longer there")

    def test_a_dialog_that_stays_leaves_the_message_in_doubt(self) -> None:
        delivery = typed_delivery(page_profile(), page())
        dialog = look_at(dialog_page(), WAITING, dialog="permission")
        delivery.advance(dialog, 0.1)
        assert delivery.deadline is not None

        (step,) = delivery.advance(dialog, delivery.deadline)

        assert step == Doubt("a dialog came before Enter: permission")

    def test_a_signal_that_the_agent_waits_holds_enter_back_like_a_dialog(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page(TEXT), WAITING), 0.1) == ()
        assert delivery.advance(look_at(page(TEXT)), 0.2) == (ENTER,)

    def test_a_program_that_ends_before_enter_leaves_doubt(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        (step,) = delivery.advance(look_at(page(TEXT), EXITED), 0.1)

        assert step == Doubt("the program ended before Enter was pressed")

    def test_half_a_frame_decides_nothing(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page("x", updating=True), quiet_for=0.0), 2.5) == ()
        assert delivery.advance(look_at(page(TEXT)), 2.6) == (ENTER,)

    def test_a_program_that_never_finishes_a_frame_leaves_doubt(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        (step,) = delivery.advance(look_at(page(updating=True), quiet_for=0.0), 7.0)

        assert step == Doubt("the program never finished painting")

    def test_a_message_that_a_person_submitted_needs_no_enter(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        (step,) = lasting(delivery, look_at(SUBMITTED, person_idle_for=0.1), 0.5)

        assert step == Proven("screen", "the program shows the message as submitted")

    def test_a_text_of_which_only_the_end_has_room_is_seen(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page(TEXT[-30:])), 0.1) == (ENTER,)

    def test_calls_that_come_too_late_change_nothing(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))
        delivery.signalled("hook", "UserPromptSubmit", 0.1)

        delivery.intent_recorded(0.2)
        delivery.written(0.2)

        assert delivery.phase is Phase.PROVEN


class TestProof:
    def test_a_prompt_that_held_the_text_and_stays_empty_proves_it(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        assert delivery.advance(look_at(page()), 0.1) == ()
        (step,) = delivery.advance(look_at(page()), 0.25)

        assert step == Proven("screen", "the prompt held the text and was cleared")
        assert delivery.phase is Phase.PROVEN

    def test_a_prompt_that_is_empty_for_a_blink_proves_nothing(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        delivery.advance(look_at(page()), 0.1)
        delivery.advance(look_at(page(TEXT)), 0.2)

        assert delivery.advance(look_at(page()), 0.3) == ()

    def test_the_message_among_what_was_submitted_proves_it(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        (step,) = lasting(delivery, look_at(SUBMITTED), 0.1)

        assert step == Proven("screen", "the program shows the message as submitted")

    def test_the_same_message_from_before_proves_nothing(self) -> None:
        profile = page_profile()
        before = page(above=("▸ " + TEXT[:54], "  " + TEXT[54:], "● done"))
        delivery = typed_delivery(profile, before)
        delivery.advance(look_at(before), 2.0)

        assert delivery.advance(look_at(before), 2.5) == ()
        (step,) = delivery.advance(look_at(before), 7.0)

        assert isinstance(step, Doubt)

    def test_a_popup_proves_nothing(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))
        popup = page(TEXT, above=("a list", "of things", "to pick"))

        assert delivery.advance(look_at(popup), 1.0) == ()
        (step,) = delivery.advance(look_at(popup), 5.0)

        assert step == Doubt("nothing shows that the program took the message")

    def test_a_text_that_enter_rewrote_is_in_doubt(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        (step,) = delivery.advance(look_at(page("codex.md")), 5.0)

        assert isinstance(step, Doubt)

    def test_work_that_begins_proves_a_text_that_was_never_drawn(self) -> None:
        delivery = typed_delivery(page_profile(), page())
        assert delivery.advance(look_at(page()), 2.0) == (ENTER,)

        (step,) = delivery.advance(look_at(page(status="esc to interrupt"), WORKING), 2.1)

        assert step == Proven("screen", "the program began to work")
        assert delivery.saw_work

    def test_work_that_begins_before_a_dialog_opens_is_proof_enough(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        (step,) = delivery.advance(look_at(screen_of("a page", bracketed_paste=True), WORKING), 0.02)

        assert isinstance(step, Proven)

    def test_work_while_the_text_is_still_in_the_prompt_proves_nothing(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        assert delivery.advance(look_at(page(TEXT, status="esc to interrupt"), WORKING), 0.1) == ()
        assert not Delivery(TEXT, page_profile()).saw_work

    def test_a_dialog_after_enter_proves_nothing_by_itself(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))
        dialog = look_at(dialog_page("▸ " + TEXT), WAITING, dialog="permission")

        assert delivery.advance(dialog, 1.0) == ()
        (doubt,) = delivery.advance(dialog, 5.0)
        (proof,) = lasting(delivery, look_at(SUBMITTED), 60.0)

        assert isinstance(doubt, Doubt)
        assert isinstance(proof, Proven)

    def test_a_prompt_that_a_person_may_have_cleared_proves_nothing(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        assert delivery.advance(look_at(page(), person_idle_for=0.1), 1.0) == ()
        assert delivery.advance(look_at(page(), person_idle_for=2.1), 3.0) == ()
        (step,) = delivery.advance(look_at(page(), person_idle_for=4.1), 5.0)
        assert isinstance(step, Doubt)

    def test_a_person_s_next_line_does_not_hide_that_the_message_was_submitted(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))
        above = ("▸ " + TEXT[:54], "  " + TEXT[54:])

        (step,) = lasting(delivery, look_at(page("my own words", above=above), WORKING, person_idle_for=0.1), 1.0)

        assert isinstance(step, Proven)

    def test_a_signal_proves_it_at_once(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        assert delivery.signalled("hook", "UserPromptSubmit", 0.1) == (Proven("hook", "UserPromptSubmit"),)
        assert delivery.signalled("hook", "again", 0.2) == ()
        assert delivery.advance(look_at(page()), 0.3) == ()

    def test_a_signal_before_enter_means_that_enter_is_not_pressed(self) -> None:
        delivery = typed_delivery(page_profile(), page())
        delivery.signalled("hook", "UserPromptSubmit", 0.1)

        assert delivery.advance(look_at(page(TEXT)), 0.2) == ()

    def test_a_signal_before_anything_was_typed_means_nothing(self) -> None:
        delivery = Delivery(TEXT, page_profile())

        assert delivery.signalled("hook", "another person's prompt", 0.0) == ()
        assert delivery.phase is Phase.GATED

    def test_a_program_that_ends_after_enter_leaves_doubt(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))

        (step,) = delivery.advance(look_at(page(TEXT), EXITED), 0.1)

        assert step == Doubt("the program ended before it was seen to take the message")


class TestDoubt:
    def test_nothing_is_written_after_a_doubt(self) -> None:
        delivery = typed_delivery(page_profile(), page())
        delivery.advance(look_at(page("foreign")), 2.0)
        assert delivery.phase is Phase.DOUBTFUL

        looks = [page(TEXT), page(), page("foreign"), dialog_page()]

        assert [delivery.advance(look_at(seen), 3.0 + at) for at, seen in enumerate(looks)] == [()] * len(looks)

    def test_a_later_proof_resolves_the_doubt(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))
        delivery.advance(look_at(page(TEXT)), 5.0)
        assert delivery.phase is Phase.DOUBTFUL

        (step,) = lasting(delivery, look_at(SUBMITTED), 60.0)

        assert isinstance(step, Proven)
