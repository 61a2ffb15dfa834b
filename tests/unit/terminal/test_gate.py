"""Nothing is typed unless it is known to be safe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synapse.core.agent import EXITED, STARTING, WAITING, WORKING
from synapse.core.driver import HoldReason
from synapse.terminal.delivery import Closed, Delivery, Intend, Phase, Step, Withdrawn, Write
from synapse.terminal.evidence import Look
from synapse.terminal.gate import shut, shut_for_sending
from synapse.terminal.line_editor import Draft
from tests.unit.terminal.deliveries import PASTE
from tests.unit.terminal.scenes import TEXT, dialog_page, look_at, page, page_profile, quiet_profile, screen_of


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
                look_at(page(), quiet_for=9.0, person_idle_for=5.0, draft=Draft.TYPED),
                "a person has a half-typed line",
            ),
            (
                look_at(page(), quiet_for=0.3, person_idle_for=5.0, draft=Draft.TYPED),
                "a person's text has only just left the prompt",
            ),
            (look_at(page(), quiet_for=1.0, person_idle_for=5.0, draft=Draft.HIDDEN), "a person has a half-typed line"),
            (
                look_at(page(), quiet_for=1.0, person_idle_for=5.0, draft=Draft.UNREAD),
                "the program has not read a person's last keys yet",
            ),
            (
                look_at(page(), quiet_for=9.0, person_idle_for=2.5, draft=Draft.UNCERTAIN),
                "a person pressed keys that may have put text into the prompt",
            ),
            (look_at(page("recalled"), person_idle_for=9.0, draft=Draft.UNCERTAIN), "there is text in the prompt"),
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

    @pytest.mark.parametrize(
        "look",
        [
            look_at(page(), quiet_for=4.0, person_idle_for=5.0, draft=Draft.TYPED),
            replace(look_at(page(), quiet_for=0.3, person_idle_for=5.0, draft=Draft.TYPED), paints_frames=True),
            look_at(page(), quiet_for=2.4, person_idle_for=2.5, draft=Draft.UNCERTAIN),
            look_at(page(), quiet_for=9.0, person_idle_for=3.0, draft=Draft.UNCERTAIN),
        ],
    )
    def test_an_empty_prompt_is_believed_once_the_program_has_had_time_for_a_person_s_keys(self, look: Look) -> None:
        assert shut(look, page_profile()) is None

    def test_without_a_prompt_rule_nothing_shows_that_a_key_left_the_line_empty(self) -> None:
        closed = shut(look_at(screen_of("what?"), person_idle_for=60.0, draft=Draft.UNCERTAIN), quiet_profile())

        assert closed is not None
        assert (
            closed.why
            == "a person pressed keys that may have put text into the line, and no rule of the profile shows it"
        )

    @pytest.mark.parametrize(
        ("look", "reason"),
        [
            (look_at(None), HoldReason.UNSEEN),
            (look_at(screen_of("booting"), STARTING), HoldReason.NO_PROMPT),
            (look_at(page(), STARTING, quiet_for=0.01), HoldReason.NEVER_RESTS),
            (look_at(page(), STARTING, is_told=True), HoldReason.STARTING),
            (look_at(page(), WORKING, quiet_for=0.01), HoldReason.NEVER_RESTS),
            (look_at(page(), WORKING, quiet_for=0.01, is_told=True), HoldReason.WORKING),
            (look_at(page(status="esc to interrupt"), WORKING, quiet_for=0.01), HoldReason.WORKING),
            (look_at(screen_of("no box here"), WORKING), HoldReason.NO_PROMPT),
            (look_at(page(), WAITING), HoldReason.DIALOG),
            (look_at(dialog_page(), dialog="permission"), HoldReason.DIALOG),
            (look_at(page("half a line")), HoldReason.PERSON),
            (look_at(page(), person_idle_for=0.4), HoldReason.PERSON),
            (look_at(page(), draft=Draft.HIDDEN), HoldReason.PERSON),
            (look_at(page(), draft=Draft.UNREAD), HoldReason.PERSON),
            (look_at(page(), quiet_for=0.01), HoldReason.NEVER_RESTS),
            (look_at(page(updating=True), quiet_for=0.2), HoldReason.NEVER_RESTS),
            (look_at(screen_of("▸ ")), HoldReason.NO_PROMPT),
        ],
    )
    def test_each_way_of_being_shut_has_its_reason(self, look: Look, reason: HoldReason) -> None:
        closed = shut(look, page_profile())

        assert closed is not None
        assert closed.reason is reason

    @pytest.mark.parametrize("state", [STARTING, WORKING])
    def test_without_a_prompt_rule_output_alone_may_keep_a_program_from_being_ready(self, state: str) -> None:
        restless, silent = look_at(screen_of("x"), state, quiet_for=0.1), look_at(screen_of("x"), state)

        closed, later = shut(restless, quiet_profile()), shut(silent, quiet_profile())

        assert closed is not None
        assert closed.reason is HoldReason.NEVER_RESTS
        assert later is not None
        assert later.reason.value == state

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


class TestSending:
    """Messages that are sent by an API, without keys."""

    @pytest.mark.parametrize(
        ("look", "why"),
        [
            (look_at(None), "nothing is known of the screen yet"),
            (look_at(page(), WORKING), "the agent is working"),
            (look_at(dialog_page(), dialog="permission"), "a dialog is open: permission"),
            (look_at(page(), person_idle_for=0.4), "a person typed 0.4 s ago"),
            (look_at(page(), quiet_for=0.01), "output has only just stopped"),
            (look_at(page(updating=True), quiet_for=0.2), "the program is painting"),
        ],
    )
    def test_nothing_is_sent_by_an_api_unless_it_is_known_to_be_safe(self, look: Look, why: str) -> None:
        closed = shut_for_sending(look, page_profile())

        assert closed is not None
        assert closed.why.startswith(why)

    def test_a_message_sent_by_an_api_does_not_need_an_empty_prompt(self) -> None:
        assert shut_for_sending(look_at(page("half a line"), draft=Draft.TYPED), page_profile()) is None
