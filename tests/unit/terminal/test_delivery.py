"""One message from the gate to proof: nothing twice, nothing into a dialog, nothing over a person's line."""

from __future__ import annotations

import pytest

from synapse.core.agent import EXITED, READY, STARTING, WAITING, WORKING
from synapse.terminal.delivery import Closed, Delivery, Doubt, Intend, Phase, Proven, Step, Withdrawn, Write
from synapse.terminal.evidence import Look
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
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

PASTE = b"\x1b[200~" + TEXT.encode() + b"\x1b[201~"
ENTER = Write(b"\r")
SUBMITTED = page(above=("▸ " + TEXT[:54], "  " + TEXT[54:]), status="esc to interrupt")


def typed_delivery(profile: Profile, ready: Picture, now: float = 0.0) -> Delivery:
    """A delivery whose text has been written."""
    delivery = Delivery(TEXT, profile)
    assert delivery.advance(look_at(ready), now) == (Intend(),)
    delivery.intent_recorded(now)
    (write,) = delivery.advance(look_at(ready), now)
    assert isinstance(write, Write)
    return delivery


def entered_delivery(profile: Profile, ready: Picture, with_text: Picture, now: float = 0.0) -> Delivery:
    """A delivery whose Enter has been pressed after the text was seen."""
    delivery = typed_delivery(profile, ready, now)
    assert delivery.advance(look_at(with_text), now) == (ENTER,)
    return delivery


def lasting(delivery: Delivery, look: Look, now: float) -> tuple[Step, ...]:
    """The same look now and when the delivery next wants one."""
    first = delivery.advance(look, now)
    if first or delivery.deadline is None:
        return first
    return delivery.advance(look, delivery.deadline)


class TestGate:
    @pytest.mark.parametrize(
        ("look", "why"),
        [
            (look_at(None), "nothing is known of the screen yet"),
            (look_at(page(), STARTING), "the agent is starting"),
            (look_at(page(), WORKING), "the agent is working"),
            (look_at(page(), EXITED), "the agent is exited"),
            (look_at(page(), WAITING), "the agent is waiting"),
            (look_at(dialog_page(), dialog="permission", hint="allow or deny it"), "a dialog is open: permission"),
            (look_at(page("half a line")), "there is text in the prompt"),
            (look_at(screen_of("no box here", bracketed_paste=True)), "the prompt is not visible"),
            (look_at(page(), person_idle_for=0.4), "a person typed 0.4 s ago"),
            (
                look_at(page(), quiet_for=9.0, person_idle_for=5.0, person_drafting=True),
                "a person has a half-typed line",
            ),
            (look_at(page(), quiet_for=0.01), "output has only just stopped"),
            (look_at(page(updating=True), quiet_for=0.2), "the program is painting"),
            (look_at(screen_of("▸ ")), "the program does not take pastes now"),
        ],
    )
    def test_whatever_is_not_known_to_be_safe_keeps_the_message_waiting(self, look: Look, why: str) -> None:
        delivery = Delivery(TEXT, page_profile())

        (step,) = delivery.advance(look, 0.0)

        assert isinstance(step, Closed)
        assert step.why.startswith(why)
        assert delivery.phase is Phase.GATED

    def test_a_gate_that_time_opens_says_when_to_look_again(self) -> None:
        delivery = Delivery(TEXT, page_profile())

        delivery.advance(look_at(page(), person_idle_for=0.5), 10.0)

        assert delivery.deadline == pytest.approx(11.5)

    def test_nothing_is_written_before_the_intent_is_recorded(self) -> None:
        delivery = Delivery(TEXT, page_profile())

        assert delivery.advance(look_at(page()), 0.0) == (Intend(),)
        assert delivery.advance(look_at(page()), 0.1) == ()
        delivery.intent_recorded(0.2)

        assert delivery.advance(look_at(page()), 0.2) == (Write(PASTE),)

    def test_a_dialog_between_intent_and_first_byte_withdraws_the_message(self) -> None:
        delivery = Delivery(TEXT, page_profile())
        delivery.advance(look_at(page()), 0.0)
        delivery.intent_recorded(0.1)

        (step,) = delivery.advance(look_at(dialog_page(), WAITING, dialog="permission"), 0.1)

        assert isinstance(step, Withdrawn)
        assert delivery.phase is Phase.WITHDRAWN
        assert delivery.advance(look_at(page()), 5.0) == ()

    def test_a_person_who_begins_to_type_after_the_intent_withdraws_the_message(self) -> None:
        delivery = Delivery(TEXT, page_profile())
        delivery.advance(look_at(page()), 0.0)
        delivery.intent_recorded(0.1)

        (step,) = delivery.advance(look_at(page("x"), person_idle_for=0.05), 0.1)

        assert isinstance(step, Withdrawn)

    def test_a_moment_of_output_after_the_intent_is_waited_out(self) -> None:
        delivery = Delivery(TEXT, page_profile())
        delivery.advance(look_at(page()), 0.0)
        delivery.intent_recorded(0.1)

        assert delivery.advance(look_at(page(), quiet_for=0.05), 0.1) == ()
        assert delivery.deadline == pytest.approx(0.2)
        assert delivery.advance(look_at(page()), 0.2) == (Write(PASTE),)

    def test_output_that_never_stops_after_the_intent_withdraws_the_message(self) -> None:
        delivery = Delivery(TEXT, page_profile())
        delivery.advance(look_at(page()), 0.0)
        delivery.intent_recorded(0.0)
        steps: list[Step] = []

        for tick in range(20):
            steps += delivery.advance(look_at(page(), quiet_for=0.01), tick / 10)

        assert [type(step) for step in steps] == [Withdrawn]


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
        assert delivery.deadline == pytest.approx(0.3)
        assert delivery.advance(look_at(page(TEXT)), 0.3) == (ENTER,)

    def test_a_slow_write_moves_the_pause(self) -> None:
        delivery = typed_delivery(page_profile(times={"enter": 0.3}), page())
        delivery.written(5.0)

        assert delivery.advance(look_at(page(TEXT)), 5.1) == ()
        assert delivery.advance(look_at(page(TEXT)), 5.3) == (ENTER,)

    def test_a_program_that_draws_no_paste_gets_enter_when_its_time_is_over(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page()), 1.9) == ()
        assert delivery.advance(look_at(page()), 2.0) == (ENTER,)

    def test_foreign_text_in_the_prompt_is_never_submitted(self) -> None:
        delivery = typed_delivery(page_profile(), page())

        assert delivery.advance(look_at(page("x" + TEXT)), 0.1) == ()
        (step,) = delivery.advance(look_at(page("x" + TEXT)), 2.0)

        assert step == Doubt("the prompt shows something else than the text")

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

        (step,) = lasting(delivery, look_at(SUBMITTED, WORKING), 0.1)

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

        (step,) = lasting(delivery, look_at(page(status="esc to interrupt"), WORKING), 2.1)

        assert step == Proven("screen", "the program began to work")

    def test_a_dialog_after_enter_proves_nothing_by_itself(self) -> None:
        delivery = entered_delivery(page_profile(), page(), page(TEXT))
        dialog = look_at(dialog_page("▸ " + TEXT), WAITING, dialog="permission")

        assert delivery.advance(dialog, 1.0) == ()
        (doubt,) = delivery.advance(dialog, 5.0)
        (proof,) = lasting(delivery, look_at(SUBMITTED, WORKING), 60.0)

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

        assert delivery.signalled("hook", "somebody else's prompt", 0.0) == ()
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

        (step,) = lasting(delivery, look_at(SUBMITTED, WORKING), 60.0)

        assert isinstance(step, Proven)


class TestLinePrograms:
    READY = screen_of("hello", "> ")
    TYPED = screen_of("hello", "> " + TEXT)

    def test_plain_keys_are_typed_and_the_cursor_that_leaves_the_line_proves_it(self) -> None:
        delivery = Delivery(TEXT, line_profile())
        delivery.advance(look_at(self.READY), 0.0)
        delivery.intent_recorded(0.0)

        assert delivery.advance(look_at(self.READY), 0.0) == (Write(TEXT.encode()),)
        assert delivery.advance(look_at(self.TYPED, quiet_for=0.0), 0.001) == (ENTER,)
        (step,) = delivery.advance(look_at(screen_of("hello", "> " + TEXT, ""), WORKING, quiet_for=0.0), 0.002)

        assert step == Proven("screen", "the cursor left the line that held the text")

    def test_a_prompt_below_the_message_proves_it(self) -> None:
        delivery = entered_delivery(line_profile(), self.READY, self.TYPED)

        (step,) = delivery.advance(look_at(screen_of("hello", "> " + TEXT, "echo", "> ")), 0.1)

        assert step == Proven("screen", "the prompt is back below the message")

    def test_a_screen_that_was_cleared_proves_it_by_its_empty_prompt(self) -> None:
        delivery = entered_delivery(line_profile(), self.READY, self.TYPED)

        (step,) = delivery.advance(look_at(screen_of("> ")), 0.1)

        assert step == Proven("screen", "the prompt held the text and was cleared")

    def test_a_program_that_shows_nothing_at_all_leaves_doubt(self) -> None:
        delivery = typed_delivery(line_profile(), self.READY)

        assert delivery.advance(look_at(self.READY), 1.0) == (ENTER,)
        (step,) = delivery.advance(look_at(self.READY), 4.0)

        assert step == Doubt("nothing shows that the program took the message")

    def test_a_wrapped_line_is_read_as_one(self) -> None:
        long = TEXT + " " + "word " * 20
        rows = ["> " + long[:58], long[58:118], long[118:].rstrip()]
        delivery = Delivery(long, line_profile())
        delivery.advance(look_at(self.READY), 0.0)
        delivery.intent_recorded(0.0)
        delivery.advance(look_at(self.READY), 0.0)

        assert delivery.advance(look_at(screen_of(*rows)), 0.01) == (ENTER,)

    def test_wide_characters_are_read_as_typed(self) -> None:
        text = "[A2A:1a2b3c4d:user] 日本語のメッセージを確認してください、よろしくお願いします。"
        rows = ("> [A2A:1a2b3c4d:user] 日本語のメッセージを確認してください、", "よろしくお願いします。")
        delivery = Delivery(text, line_profile())
        delivery.advance(look_at(self.READY), 0.0)
        delivery.intent_recorded(0.0)
        delivery.advance(look_at(self.READY), 0.0)

        assert delivery.advance(look_at(screen_of(*rows, cursor=(1, 22))), 0.01) == (ENTER,)

    def test_a_text_longer_than_the_screen_is_seen_by_its_end(self) -> None:
        text = "[A2A:1a2b3c4d:user] " + "".join(f"{number:05d}" for number in range(300))
        rows = [text[-60 * i - 30 : -60 * i + 30 or None] for i in range(11, 0, -1)]
        rows = [*rows, text[-30:]]
        delivery = Delivery(text, line_profile())
        delivery.advance(look_at(self.READY), 0.0)
        delivery.intent_recorded(0.0)
        delivery.advance(look_at(self.READY), 0.0)

        assert delivery.advance(look_at(screen_of(*rows)), 0.01) == (ENTER,)

    def test_a_paste_of_several_lines_is_seen_below_the_prompt(self) -> None:
        ready = screen_of("> ", bracketed_paste=True)
        pasted = screen_of("> [A2A:1a2b3c4d:user] one", "two", bracketed_paste=True)
        done = screen_of("> [A2A:1a2b3c4d:user] one", "two", "", bracketed_paste=True)
        delivery = Delivery("[A2A:1a2b3c4d:user] one\ntwo", line_profile())
        delivery.advance(look_at(ready), 0.0)
        delivery.intent_recorded(0.0)
        delivery.advance(look_at(ready), 0.0)

        assert delivery.advance(look_at(pasted), 0.01) == (ENTER,)
        assert isinstance(delivery.advance(look_at(done, WORKING), 0.02)[0], Proven)

    def test_without_a_prompt_rule_the_cursor_s_line_is_watched(self) -> None:
        profile = quiet_profile()
        delivery = entered_delivery(profile, screen_of("$ "), screen_of("$ " + TEXT))

        (step,) = delivery.advance(look_at(screen_of("$ " + TEXT, ""), WORKING), 0.1)

        assert step == Proven("screen", "the cursor left the line that held the text")

    def test_a_bracketed_paste_is_used_where_the_program_wants_it(self) -> None:
        ready = screen_of("> ", bracketed_paste=True)
        delivery = Delivery("[A2A:1a2b3c4d:user] one\ntwo", line_profile())
        delivery.advance(look_at(ready), 0.0)
        delivery.intent_recorded(0.0)

        (step,) = delivery.advance(look_at(ready), 0.0)

        assert step == Write(b"\x1b[200~[A2A:1a2b3c4d:user] one\ntwo\x1b[201~")

    def test_a_line_that_a_person_typed_ahead_is_left_alone_though_the_prompt_looks_empty(self) -> None:
        delivery = Delivery(TEXT, line_profile())

        (step,) = delivery.advance(look_at(self.READY, person_drafting=True), 0.0)

        assert step == Closed("a person has a half-typed line")

    def test_the_state_of_an_unknown_look_keeps_waiting(self) -> None:
        delivery = typed_delivery(line_profile(), self.READY)

        assert delivery.advance(look_at(None, READY), 0.5) == ()
        assert delivery.advance(look_at(self.TYPED), 0.6) == (ENTER,)
