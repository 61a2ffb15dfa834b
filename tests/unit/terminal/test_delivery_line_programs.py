"""Deliveries into programs that read lines."""

from __future__ import annotations

from synapse.core.agent import READY, WORKING
from synapse.terminal.delivery import Closed, Delivery, Doubt, Proven, Write
from synapse.terminal.line_editor import Draft
from tests.unit.terminal.deliveries import ENTER, entered_delivery, typed_delivery
from tests.unit.terminal.scenes import TEXT, line_profile, look_at, quiet_profile, screen_of


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

    def test_a_text_above_the_prompt_proves_nothing_before_enter(self) -> None:
        # Typed ahead, it is echoed where the cursor happened to be, and waits in the kernel.
        echoed = screen_of("hello", "> " + TEXT, "> ")
        delivery = typed_delivery(line_profile(), self.READY)

        assert delivery.advance(look_at(echoed), 0.5) == ()
        assert delivery.advance(look_at(echoed), 1.0) == (ENTER,)

    def test_a_text_above_the_prompt_proves_nothing_until_enter_has_changed_the_screen(self) -> None:
        # A notice came between the text and the first look; whether the program still has the text is not known.
        hidden = screen_of("hello", "> " + TEXT, "a notice", "> ")
        delivery = typed_delivery(line_profile(), self.READY)
        assert delivery.advance(look_at(hidden), 1.0) == (ENTER,)

        assert delivery.advance(look_at(hidden), 1.1) == ()
        (step,) = delivery.advance(look_at(screen_of("hello", "> " + TEXT, "a notice", ">", "done", "> ")), 1.2)

        assert step == Proven("screen", "the prompt is back below the message")

    def test_a_program_that_enter_does_not_move_leaves_doubt(self) -> None:
        hidden = screen_of("hello", "> " + TEXT, "a notice", "> ")
        delivery = typed_delivery(line_profile(), self.READY)
        assert delivery.advance(look_at(hidden), 1.0) == (ENTER,)

        (step,) = delivery.advance(look_at(hidden), 4.0)

        assert step == Doubt("nothing shows that the program took the message")

    def test_a_screen_that_was_cleared_proves_it_by_its_empty_prompt(self) -> None:
        delivery = entered_delivery(line_profile(), self.READY, self.TYPED)

        (step,) = delivery.advance(look_at(screen_of("> ")), 0.1)

        assert step == Proven("screen", "the prompt held the text and was cleared")

    def test_a_line_that_a_person_may_have_cleared_proves_nothing(self) -> None:
        delivery = entered_delivery(line_profile(), self.READY, self.TYPED)

        assert delivery.advance(look_at(self.READY, person_idle_for=0.05), 0.1) == ()
        assert delivery.advance(look_at(None), 0.2) == ()

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

        (step,) = delivery.advance(look_at(self.READY, draft=Draft.HIDDEN), 0.0)

        assert step == Closed("a person has a half-typed line")

    def test_the_state_of_an_unknown_look_keeps_waiting(self) -> None:
        delivery = typed_delivery(line_profile(), self.READY)

        assert delivery.advance(look_at(None, READY), 0.5) == ()
        assert delivery.advance(look_at(self.TYPED), 0.6) == (ENTER,)
