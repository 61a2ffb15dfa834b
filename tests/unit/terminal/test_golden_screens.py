"""The bundled profiles read real screens of the CLIs right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synapse.core.agent import READY, WAITING, WORKING
from synapse.terminal.evidence import Evidence, Look
from synapse.terminal.gate import shut
from synapse.terminal.profile import Profile
from synapse.terminal.reading import read_prompt
from tests.unit.terminal.bundled import bundled
from tests.unit.terminal.golden_screens import names, picture

# What a screen shows is the first word of its name; these are the exceptions, each with its reason.
EXPECTED_KIND = {
    # The page of shortcuts stands beside an empty input, and takes no keys: a paste goes into the input.
    "claude/popup_help": "ready",
    "codex/popup_help": "ready",
    "copilot/popup_help": "ready",
    "gemini/popup_help": "ready",
    "claude/popup_history": "dialog",
    "codex/popup_history": "dialog",
    # An ordinary prompt; the program itself answers that it needs a login or a provider.
    "copilot/startup_login": "ready",
    "opencode/startup_no_provider": "ready",
    "opencode/startup_connect_provider": "working",  # it retries by itself
    "claude/startup_offline_exit": "unknown",  # it is about to end
}
DIALOG_NAMES = {
    "dialog_permission": "permission",
    "dialog_permission_edit": "permission",
    "dialog_permission_request": "permission",
    "dialog_permission_tool": "permission",
    "dialog_permission_unchecked": "permission",
    "dialog_unchecked": "unchecked",
    "dialog_unchecked_80_columns": "unchecked",
    "dialog_form": "form",
    "dialog_question": "question",
    "dialog_menu": "menu",
    "dialog_quota": "quota",
    "startup_trust": "trust",
    "startup_login": "login",
    "startup_api_key": "api_key",
    "startup_hooks_review": "hooks",
    "startup_bypass": "startup",
    "startup_mcp_server": "startup",
    "startup_imports": "startup",
}
KINDS = {"startup": "dialog", "narrow": ""}


def kind_of(name: str) -> str:
    if name in EXPECTED_KIND:
        return EXPECTED_KIND[name]
    word, _, rest = name.partition("/")[2].partition("_")
    if word == "narrow":
        word = rest.partition("_")[0]
    return KINDS.get(word, word)


def screens(*kinds: str) -> list[str]:
    return [name for name in names() if kind_of(name) in kinds]


def seen(name: str) -> tuple[Look, Profile]:
    profile = bundled(name.partition("/")[0])
    return Evidence(profile, now=0.0).look(picture(name), quiet_for=60.0, now=100.0), profile


@pytest.mark.parametrize("name", screens("ready"))
def test_a_ready_screen_opens_the_gate(name: str) -> None:
    look, profile = seen(name)

    assert look.state == READY
    assert shut(look, profile) is None


@pytest.mark.parametrize("name", [name for name in names() if kind_of(name) != "ready"])
def test_any_other_screen_shuts_the_gate(name: str) -> None:
    look, profile = seen(name)

    assert shut(look, profile) is not None


@pytest.mark.parametrize("name", screens("typed"))
def test_text_in_the_prompt_is_seen(name: str) -> None:
    look, profile = seen(name)
    prompt = read_prompt(picture(name), profile)

    assert look.state == READY
    assert prompt is not None
    assert not prompt.is_empty


@pytest.mark.parametrize("name", screens("working"))
def test_a_program_at_work_is_seen_to_work(name: str) -> None:
    look, _ = seen(name)

    assert look.state == WORKING


@pytest.mark.parametrize("name", screens("dialog"))
def test_a_dialog_is_seen_by_its_name(name: str) -> None:
    look, _ = seen(name)
    short = name.partition("/")[2].removeprefix("narrow_")

    assert look.state == WAITING
    assert look.dialog == DIALOG_NAMES.get(short, look.dialog) != ""
    assert look.hint


def test_a_suggestion_that_is_not_known_to_be_faint_counts_as_text() -> None:
    profile = bundled("claude")
    suggestion = picture("claude/ready_suggestion")
    plain = type(suggestion)(suggestion.lines, suggestion.cursor, suggestion.columns, suggestion.rows)

    prompt = read_prompt(plain, profile)

    assert prompt is not None
    assert prompt.text == "run the tests"


def test_a_typed_line_with_the_cursor_at_its_beginning_is_no_suggestion() -> None:
    profile = bundled("claude")
    typed = picture("claude/typed_cursor_home")
    with_styles = type(typed)(
        typed.lines, typed.cursor, typed.columns, typed.rows, firm_line=typed.lines[typed.cursor[0]]
    )

    prompt = read_prompt(with_styles, profile)

    assert prompt is not None
    assert prompt.text == "hello there"


def test_both_signs_of_work_in_geminis_title_are_known() -> None:
    shown = picture("gemini/ready_empty")

    for sign in "✦⏲":
        at_work = replace(shown, title=f"{sign}  Working… (proj)")
        look = Evidence(bundled("gemini"), now=0.0).look(at_work, quiet_for=60.0, now=100.0)
        assert look.state == WORKING
