"""A program's report and the dialog on its screen become one question, whose id stays while it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from synapse.core.agent import READY, WAITING, WORKING
from synapse.core.question import Option, OptionEffect, Question, QuestionKind
from synapse.terminal.evidence import Look, Source
from synapse.terminal.picture import Picture
from synapse.terminal.profile import parse_profile
from synapse.terminal.questions import OpenQuestion, QuestionTracker
from synapse.terminal.signals.claude import read_hook
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.terminal.bundled import bundled
from tests.unit.terminal.golden_screens import picture
from tests.unit.terminal.signals.recordings import recorded

QUIET = 0.15
DIALOGS: list[dict[str, Any]] = [
    {"name": "ask", "hint": "look there", "every": [r"Go on\?"], "choose": "digit", "text": "^Say"},
    {"name": "menu", "every": ["Pick one"], "kind": "menu"},
]
PROFILE = parse_profile({"command": ["x"], "times": {"quiet": QUIET}, "dialogs": DIALOGS}, "x")
ONE = ("rm a", "Go on?", " > 1. Yes", "   2. No")
TWO = ("rm b", "Go on?", " > 1. Yes", "   2. No")
MENU = ("Pick one", " > 1. This")
OWN = Question(
    id="own",
    kind=QuestionKind.PERMISSION,
    title="May I\x1b[2J?",
    options=(Option(key="a", label="Do", effect=OptionEffect.ALLOW),),
)


def look(*rows: str, state: str = WAITING, dialog: str = "ask", updating: bool = False, quiet_for: float = 0.5) -> Look:
    seen = Picture((*rows, ""), (0, 0), 40, len(rows) + 1, updating=updating)
    return Look(picture=seen, state=state, dialog=dialog if rows else "", quiet_for=quiet_for)


def reported(question: Question | None = OWN, text: str = "") -> SignalReport:
    return SignalReport(kind=SignalKind.WAITING, source=Source.SIGNAL, detail="it asks", text=text, question=question)


def asked(opened: OpenQuestion | None) -> Question:
    assert opened is not None
    return opened.question


def test_a_dialog_is_a_question_for_as_long_as_it_is_shown() -> None:
    tracker = QuestionTracker(PROFILE)

    first = asked(tracker.observe(look(*ONE), 0.0))
    again = asked(tracker.observe(look("rm a", "Go on?", "   1. Yes", " > 2. No"), 5.0))

    assert (first.title, first.detail, first.source) == ("Go on?", "rm a", "screen")
    assert again == first


def test_a_dialog_that_is_gone_for_a_moment_is_still_asked() -> None:
    tracker = QuestionTracker(PROFILE)
    first = asked(tracker.observe(look(*ONE), 0.0))

    assert asked(tracker.observe(look(state=WORKING), 1.0)) == first
    assert tracker.deadline == pytest.approx(1.0 + QUIET)
    assert asked(tracker.observe(look(*ONE), 1.1)) == first
    assert asked(tracker.observe(look(state=WORKING), 2.0)) == first
    assert tracker.observe(look(state=WORKING), 2.0 + QUIET) is None


def test_half_a_picture_changes_nothing_but_proves_nothing() -> None:
    tracker = QuestionTracker(PROFILE)
    first = asked(tracker.observe(look(*ONE), 0.0))
    assert tracker.is_seen

    assert asked(tracker.observe(look(*ONE, updating=True), 9.0)) == first
    assert not tracker.is_seen


def test_a_question_whose_dialog_is_gone_for_a_moment_is_not_seen() -> None:
    tracker = QuestionTracker(PROFILE)
    first = asked(tracker.observe(look(*ONE), 0.0))

    assert asked(tracker.observe(look("ready", state=READY, dialog=""), 1.0)) == first
    assert not tracker.is_seen


def test_the_same_dialog_after_it_was_gone_is_another_question() -> None:
    tracker = QuestionTracker(PROFILE)
    first = asked(tracker.observe(look(*ONE), 0.0))
    tracker.observe(look(state=WORKING), 1.0)
    tracker.observe(look(state=WORKING), 2.0)

    assert asked(tracker.observe(look(*ONE), 3.0)).id != first.id


def test_a_question_of_another_run_is_never_taken_for_this_one() -> None:
    before, after = (asked(QuestionTracker(PROFILE, run).observe(look(*ONE), 0.0)) for run in ("1f3c", "9a20"))

    assert before == replace(after, id=before.id)
    assert before.id != after.id


def test_another_dialog_is_another_question_at_once() -> None:
    tracker = QuestionTracker(PROFILE)

    assert asked(tracker.observe(look(*ONE), 0.0)).id != asked(tracker.observe(look(*TWO), 0.1)).id


def test_a_menu_asks_nothing_unless_the_program_says_that_it_waits() -> None:
    tracker = QuestionTracker(PROFILE)

    assert tracker.observe(look(*MENU, dialog="menu"), 0.0) is None
    assert not tracker.is_open
    assert tracker.observe(look(*MENU, dialog="menu"), 1.0, title_says_waiting=True) is None
    question = asked(tracker.observe(look(*MENU, dialog="menu"), 9.0, title_says_waiting=True))
    assert (question.kind, question.options, question.hint) == (QuestionKind.PERMISSION, (), "look at its terminal")


def test_reported_text_and_options_come_before_those_of_the_dialog_and_are_made_safe() -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(reported())

    question = asked(tracker.observe(look(*ONE), 0.0))

    assert (question.id, question.source) == ("own", "signal")
    assert (question.title, question.detail) == ("May I<U+001B>[2J?", "rm a")
    assert question.options == OWN.options


def test_a_question_reported_with_options_waits_less_for_its_dialog() -> None:
    patience: list[float | None] = []
    for question in (OWN, replace(OWN, options=())):
        tracker = QuestionTracker(PROFILE)
        tracker.receive(reported(question))
        assert tracker.observe(look("busy", dialog=""), 0.0) is None
        patience.append(tracker.deadline)

    assert patience == [pytest.approx(0.2), pytest.approx(0.7)]


def test_a_reported_question_waits_a_moment_for_its_dialog() -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(reported())

    assert tracker.observe(look("busy", dialog=""), 0.0) is None
    assert tracker.is_open
    assert tracker.deadline is not None
    assert asked(tracker.observe(look("busy", dialog=""), tracker.deadline)).title == "May I<U+001B>[2J?"


def test_a_report_that_comes_after_its_dialog_does_not_change_the_id() -> None:
    tracker = QuestionTracker(PROFILE)
    first = asked(tracker.observe(look(*ONE), 0.0))
    tracker.receive(reported())

    second = tracker.observe(look(*ONE), 0.1)

    assert asked(second).id == first.id
    assert second is not None
    assert second.own_id == "own"
    assert tracker.has("own")


def test_a_dialog_that_is_visible_before_its_report_is_another_question() -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(reported())
    tracker.observe(look(*ONE), 0.0)

    following = tracker.observe(look(*TWO), 0.1)

    assert following is not None
    assert (following.own_id, following.id != "own") == ("", True)
    assert not tracker.has("own")


def test_a_report_that_comes_before_its_dialog_is_another_question() -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(reported())
    tracker.observe(look(*ONE), 0.0)
    tracker.receive(reported(Question(id="next", kind=QuestionKind.CHOICE, title="Next?")))

    assert tracker.observe(look(*ONE), 0.1) is None
    following = tracker.observe(look(*TWO), 0.2)
    assert following is not None
    assert (following.id, following.dialog is not None) == ("next", True)


def test_if_report_and_dialog_disagree_only_a_person_may_answer() -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(reported(Question(id="own", kind=QuestionKind.CHOICE, title="Which?")))

    assert asked(tracker.observe(look(*ONE), 0.0)).kind is QuestionKind.PERMISSION


@pytest.mark.parametrize("state", [READY, WORKING])
def test_a_report_that_later_evidence_contradicts_is_no_question(state: str) -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(reported())
    tracker.observe(look("busy", dialog=""), 0.0)

    tracker.observe(look("busy", dialog="", state=state), 5.0)

    assert tracker.observe(look("busy", dialog="", state=state), 6.0) is None
    assert not tracker.has("own")


def test_the_next_report_ends_the_question() -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(reported())
    tracker.receive(SignalReport(kind=SignalKind.WORKING, source=Source.SIGNAL, detail="it goes on"))

    assert tracker.observe(look("busy", dialog="", state=WORKING), 5.0) is None


def test_free_text_is_not_offered_beside_a_permission() -> None:
    tracker = QuestionTracker(PROFILE)

    question = asked(tracker.observe(look("rm a", "Go on?", " > 1. Yes", "   2. Say why not"), 0.0))

    assert question.takes_text is False


def test_a_report_about_something_else_is_not_mixed_with_the_dialog() -> None:
    tracker = QuestionTracker(PROFILE)
    other = Question(id="own", kind=QuestionKind.PERMISSION, title="", detail="make a file\nrm -r /")
    tracker.receive(reported(other))

    opened = tracker.observe(look(*ONE), 0.0)

    assert opened is not None
    assert not opened.is_shown
    assert (opened.question.detail, opened.question.source) == ("rm a", "screen")


def test_a_report_about_the_dialog_is_shown_whole() -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(reported(Question(id="own", kind=QuestionKind.PERMISSION, title="", detail="remove it\nrm a")))

    opened = tracker.observe(look(*ONE), 0.0)

    assert opened is not None
    assert opened.is_shown
    assert (opened.question.title, opened.question.detail) == ("Go on?", "remove it\nrm a")


def test_a_dialog_that_is_just_being_painted_is_waited_for() -> None:
    tracker = QuestionTracker(PROFILE)
    first = asked(tracker.observe(look(*ONE), 0.0))

    assert asked(tracker.observe(look(*ONE[:3], quiet_for=0.0), 1.0)) == first
    assert not tracker.is_seen
    assert asked(tracker.observe(look(*ONE, quiet_for=0.0), 1.1)) == first
    assert tracker.is_seen


def test_a_program_that_never_stops_painting_is_believed_after_a_while() -> None:
    tracker = QuestionTracker(PROFILE)

    assert tracker.observe(look(*ONE, quiet_for=0.0), 0.0) is None
    assert tracker.deadline is not None
    assert asked(tracker.observe(look(*ONE, quiet_for=0.0), tracker.deadline)).title == "Go on?"


def test_a_program_that_paints_whole_frames_is_believed_sooner() -> None:
    tracker = QuestionTracker(PROFILE)
    painting = replace(look(*ONE, quiet_for=0.0), paints_frames=True)

    assert tracker.observe(painting, 0.0) is None
    assert tracker.observe(replace(painting, picture=look(*ONE[:3]).picture), 0.04) is None
    assert tracker.observe(painting, 0.06) is None
    assert tracker.deadline is not None
    assert tracker.deadline < 0.06 + QUIET
    assert asked(tracker.observe(painting, tracker.deadline)).title == "Go on?"


def own_options(*options: tuple[str, str, OptionEffect]) -> Question:
    """The program's report about the dialog ONE."""
    made = tuple(Option(key=key, label=label, effect=effect) for key, label, effect in options)
    return Question(id="own", kind=QuestionKind.PERMISSION, title="May I?", detail="rm a", options=made)


def test_a_number_means_what_it_means_on_the_screen() -> None:
    tracker = QuestionTracker(PROFILE)
    always = ("2", "Yes, and always", OptionEffect.ALLOW_ALWAYS)
    tracker.receive(reported(own_options(("1", "Yes", OptionEffect.ALLOW), always, ("3", "No", OptionEffect.DENY))))

    opened = tracker.observe(look(*ONE), 0.0)

    assert opened is not None
    assert opened.is_renumbered
    assert [(option.key, option.label) for option in opened.question.options] == [("1", "Yes"), ("2", "No")]
    assert (opened.question.title, opened.question.source) == ("May I?", "signal")


def test_reported_options_stay_if_the_screen_numbers_them_alike() -> None:
    tracker = QuestionTracker(PROFILE)
    tracker.receive(
        reported(own_options(("1", "Yes, remove it", OptionEffect.ALLOW), ("2", "No, keep it", OptionEffect.DENY)))
    )

    opened = tracker.observe(look(*ONE), 0.0)

    assert opened is not None
    assert not opened.is_renumbered
    assert [option.label for option in opened.question.options] == ["Yes, remove it", "No, keep it"]


def test_the_options_of_a_real_hook_give_way_to_those_of_its_dialog() -> None:
    claude = bundled("claude")
    tracker = QuestionTracker(claude)
    payload = next(hook for hook in recorded("claude", "hooks.jsonl") if hook.get("permission_suggestions"))
    report = read_hook(payload, "own")
    assert report is not None
    tracker.receive(report)

    opened = tracker.observe(
        Look(picture=picture("claude/dialog_permission"), state=WAITING, dialog="permission", quiet_for=1.0), 0.0
    )

    assert [f"{option.key}. {option.label}" for option in asked(opened).options] == [
        "1. Yes",
        "2. Yes, and always allow access to /tmp/proj from this project",
        "3. Yes, and switch to auto mode · auto mode handles these prompts for you",
        "4. No",
    ]


def test_a_form_that_codex_reports_keeps_its_own_words() -> None:
    tracker = QuestionTracker(bundled("codex"))
    form = Question(id="own", kind=QuestionKind.CHOICE, title="Which colour?", detail="Colour", hint="fill it in")
    tracker.receive(reported(form))

    shown = Look(picture=picture("codex/dialog_form"), state=WAITING, dialog="form", quiet_for=0.5)
    question = asked(tracker.observe(shown, 0.0))

    assert (question.title, question.detail, question.options) == ("Which colour?", "Colour", ())
    assert question.hint == "fill it in"
