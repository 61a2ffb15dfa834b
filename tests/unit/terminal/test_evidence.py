"""Many sources, one verdict; unknown never overwrites known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synapse.core.agent import EXITED, READY, STARTING, WAITING, WORKING
from synapse.terminal.evidence import Evidence, Source
from synapse.terminal.picture import Picture
from synapse.terminal.profile import parse_profile
from tests.unit.terminal.scenes import dialog_page, line_profile, page, page_profile, quiet_profile, screen_of

HELP = screen_of("a page that no rule knows", bracketed_paste=True)
AT_WORK = page(status="esc to interrupt")


def test_a_program_of_which_nothing_is_known_is_starting() -> None:
    evidence = Evidence(page_profile(), 3.0)

    assert (evidence.verdict.state, evidence.verdict.since) == (STARTING, 3.0)
    assert evidence.look(None, quiet_for=9.0, now=4.0).state == STARTING
    assert evidence.look(HELP, quiet_for=9.0, now=5.0).state == STARTING


@pytest.mark.parametrize(
    ("picture", "state", "source"),
    [
        (page(), READY, Source.SCREEN),
        (page("a draft"), READY, Source.SCREEN),
        (AT_WORK, WORKING, Source.SCREEN),
        (page(title="◐ busy"), WORKING, Source.TITLE),
        (dialog_page(), WAITING, Source.DIALOG),
        (replace(page(), program_status="working"), WORKING, Source.TITLE),
        (replace(page(), program_status="blocked"), WAITING, Source.TITLE),
        (replace(page(title="◐ busy"), program_status="done"), READY, Source.TITLE),
        (replace(dialog_page(), program_status="idle"), WAITING, Source.DIALOG),
        (replace(page(), program_status="a word of the future"), READY, Source.SCREEN),
    ],
)
def test_the_screen_shows_the_state(picture: Picture, state: str, source: Source) -> None:
    evidence = Evidence(page_profile(), 0.0)

    evidence.look(picture, quiet_for=9.0, now=10.0)

    assert (evidence.verdict.state, evidence.verdict.source, evidence.verdict.since) == (state, source, 10.0)
    assert evidence.verdict.why


def test_unknown_never_overwrites_known() -> None:
    evidence = Evidence(page_profile(), 0.0)
    evidence.look(AT_WORK, quiet_for=9.0, now=1.0)

    evidence.look(HELP, quiet_for=9.0, now=2.0)

    assert (evidence.verdict.state, evidence.verdict.since) == (WORKING, 1.0)


def test_without_its_prompt_a_line_program_works_and_of_any_other_nothing_is_known() -> None:
    pages, lines = Evidence(page_profile(), 0.0), Evidence(line_profile(), 0.0)
    pages.look(page(), quiet_for=9.0, now=1.0)
    lines.look(screen_of("> "), quiet_for=9.0, now=1.0)

    assert pages.look(HELP, quiet_for=9.0, now=2.0).state == READY
    assert lines.look(screen_of("some output"), quiet_for=9.0, now=2.0).state == WORKING


def test_half_a_frame_is_no_evidence() -> None:
    evidence = Evidence(page_profile(), 0.0)
    evidence.look(AT_WORK, quiet_for=9.0, now=1.0)

    assert evidence.look(page(updating=True), quiet_for=0.5, now=2.0).state == WORKING
    assert evidence.look(page(updating=True), quiet_for=1.5, now=3.0).state == READY


def test_a_prompt_counts_only_after_a_moment_of_quiet() -> None:
    evidence = Evidence(page_profile(), 0.0)

    assert evidence.look(page(), quiet_for=0.01, now=1.0).state == STARTING
    assert evidence.look(page(), quiet_for=0.15, now=1.2).state == READY


def test_the_more_trusted_source_wins() -> None:
    evidence = Evidence(page_profile(), 0.0)
    evidence.look(page(), quiet_for=9.0, now=1.0)

    evidence.report(Source.TRANSCRIPT, WORKING, "a line was written", 2.0)
    assert evidence.verdict.state == WORKING
    evidence.report(Source.SIGNAL, READY, "Stop", 3.0)
    assert evidence.verdict.state == READY
    evidence.exited("status 1", 4.0)
    evidence.look(AT_WORK, quiet_for=9.0, now=5.0)

    assert (evidence.verdict.state, evidence.verdict.why) == (EXITED, "status 1")


def test_once_the_title_matches_no_rule_the_screen_counts() -> None:
    evidence = Evidence(page_profile(), 0.0)
    evidence.look(page(title="◐ busy"), quiet_for=9.0, now=1.0)

    assert evidence.look(page(title="calm"), quiet_for=9.0, now=2.0).state == READY


def test_since_is_when_the_state_began_not_when_it_was_seen_again() -> None:
    evidence = Evidence(page_profile(), 0.0)

    for now in (1.0, 2.0, 3.0):
        evidence.look(page(), quiet_for=9.0, now=now)

    assert evidence.verdict.since == 1.0
    assert [claim.at for claim in evidence.claims if claim.source is Source.SCREEN] == [1.0]


def test_claims_are_listed_with_the_most_trusted_first() -> None:
    evidence = Evidence(page_profile(), 0.0)
    evidence.look(page(title="◐ busy"), quiet_for=9.0, now=1.0)
    evidence.report(Source.SIGNAL, WORKING, "PreToolUse", 2.0)

    claims = [(claim.source, claim.state) for claim in evidence.claims]

    assert claims == [
        (Source.SIGNAL, WORKING),
        (Source.DIALOG, ""),
        (Source.TITLE, WORKING),
        (Source.SCREEN, READY),
    ]


def test_a_line_program_is_at_its_prompt_or_at_work() -> None:
    evidence = Evidence(line_profile(), 0.0)

    assert evidence.look(screen_of("loading"), quiet_for=9.0, now=0.5).state == STARTING
    assert evidence.look(screen_of("> "), quiet_for=0.02, now=1.0).state == READY
    assert evidence.look(screen_of("> hi", ""), quiet_for=9.0, now=2.0).state == WORKING


def test_without_a_prompt_rule_silence_is_judged_and_the_explanation_says_so() -> None:
    evidence = Evidence(quiet_profile(), 0.0)

    assert evidence.look(screen_of("$ "), quiet_for=0.5, now=0.5).state == STARTING
    assert evidence.look(screen_of("$ "), quiet_for=1.0, now=1.0).state == READY
    assert evidence.look(screen_of("$ ls", "a"), quiet_for=0.1, now=2.0).state == WORKING
    assert evidence.verdict.source == Source.QUIET
    assert "no prompt rule" in evidence.verdict.why


def test_a_look_names_the_dialog_and_what_to_do() -> None:
    look = Evidence(page_profile(), 0.0).look(dialog_page(), quiet_for=9.0, now=1.0)

    assert (look.dialog, look.hint, look.state) == ("permission", "allow or deny it", WAITING)


def test_a_profile_may_have_marks_of_work_and_no_prompt_rule() -> None:
    profile = quiet_profile(working=[{"some": ["^busy"]}])
    evidence = Evidence(profile, 0.0)

    assert evidence.look(screen_of("busy"), quiet_for=9.0, now=1.0).state == WORKING
    assert evidence.look(screen_of("done"), quiet_for=9.0, now=2.0).state == READY


def reported(source: Source, state: str, at: float) -> Evidence:
    """What is known after the program itself said something, when its screen showed an empty prompt."""
    evidence = Evidence(page_profile(), 0.0)
    evidence.look(page(), quiet_for=9.0, now=1.0)
    evidence.report(source, state, "its own word", at)
    return evidence


@pytest.mark.parametrize("source", [Source.SIGNAL, Source.TRANSCRIPT])
def test_a_report_of_the_program_wins_over_its_screen(source: Source) -> None:
    evidence = reported(source, WORKING, 2.0)

    evidence.look(page(), quiet_for=9.0, now=60.0)

    assert (evidence.verdict.state, evidence.verdict.source) == (WORKING, source)


def test_of_signal_and_transcript_the_later_report_counts() -> None:
    evidence = reported(Source.SIGNAL, WORKING, 2.0)

    evidence.report(Source.TRANSCRIPT, READY, "interrupted", 3.0)
    assert (evidence.verdict.state, evidence.verdict.source) == (READY, Source.TRANSCRIPT)

    evidence.report(Source.SIGNAL, WORKING, "the next prompt", 4.0)
    assert (evidence.verdict.state, evidence.verdict.source) == (WORKING, Source.SIGNAL)


def test_a_signal_of_work_is_outdated_by_a_prompt_that_came_back_later_and_stays() -> None:
    evidence = reported(Source.SIGNAL, WORKING, 2.0)
    evidence.look(AT_WORK, quiet_for=9.0, now=3.0)

    evidence.look(page(), quiet_for=9.0, now=5.0)
    assert evidence.verdict.state == WORKING

    evidence.look(page(), quiet_for=9.0, now=8.0)
    assert (evidence.verdict.state, evidence.verdict.source) == (READY, Source.SCREEN)


def test_a_signal_that_is_repeated_is_fresh_again() -> None:
    evidence = reported(Source.SIGNAL, WORKING, 2.0)
    evidence.look(AT_WORK, quiet_for=9.0, now=3.0)
    evidence.look(page(), quiet_for=9.0, now=5.0)

    evidence.report(Source.SIGNAL, WORKING, "the next tool", 6.0)
    evidence.look(page(), quiet_for=9.0, now=60.0)

    assert evidence.verdict.state == WORKING


@pytest.mark.parametrize(
    ("said", "picture", "state"),
    [
        (READY, AT_WORK, WORKING),
        (READY, dialog_page(), WAITING),
        (WORKING, dialog_page(), WAITING),
        (WORKING, replace(page(), program_status="blocked"), WAITING),
    ],
)
def test_work_and_dialogs_that_are_seen_later_count_at_once(said: str, picture: Picture, state: str) -> None:
    evidence = reported(Source.SIGNAL, said, 2.0)

    evidence.look(picture, quiet_for=9.0, now=3.0)

    assert evidence.verdict.state == state


def test_a_signal_that_it_waits_lasts_until_it_is_seen_to_go_on() -> None:
    evidence = reported(Source.SIGNAL, WAITING, 2.0)

    evidence.look(AT_WORK, quiet_for=9.0, now=3.0)
    assert evidence.verdict.state == WAITING

    evidence.look(AT_WORK, quiet_for=9.0, now=3.6)
    assert evidence.verdict.state == WORKING


def test_the_end_of_the_process_wins_over_every_report() -> None:
    evidence = reported(Source.SIGNAL, WORKING, 2.0)

    evidence.exited("it ended", 3.0)

    assert evidence.verdict.state == EXITED


def test_a_mark_of_work_outranks_the_title_only_where_the_profile_says_so_and_never_a_dialog() -> None:
    rule = {"name": "shell", "some": ["^! Shell awaits"], "outranks_title": True}
    fields = {"command": ["x"], "titles": {"waiting": "^Action"}, "dialogs": [{"name": "ask", "every": [r"Go on\?"]}]}
    silent = Picture(("! Shell awaits", "> "), (1, 2), 40, 2, title="Action required")
    asking = Picture(("! Shell awaits", "Go on?"), (1, 2), 40, 2, title="Action required")

    def state(picture: Picture, *working: object) -> str:
        profile = parse_profile({**fields, "working": list(working)}, "x")
        return Evidence(profile, now=0.0).look(picture, quiet_for=9.0, now=9.0).state

    assert state(silent, rule) == WORKING
    assert state(silent, {**rule, "outranks_title": False}) == WAITING
    assert state(asking, rule) == WAITING
