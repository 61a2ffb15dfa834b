"""Dialogs of the real CLIs are read right: the question, the options, and the effect of each."""

from __future__ import annotations

import pytest

from synapse.core.question import Option, OptionEffect, QuestionKind
from synapse.terminal.dialog import Dialog, effect_of, read_dialog
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Choosing, Profile, parse_profile
from tests.unit.terminal.bundled import bundled
from tests.unit.terminal.golden_screens import names, picture

ALLOW, ALWAYS, DENY, OTHER = OptionEffect.ALLOW, OptionEffect.ALLOW_ALWAYS, OptionEffect.DENY, OptionEffect.OTHER
PERMISSION, CHOICE, STARTUP = QuestionKind.PERMISSION, QuestionKind.CHOICE, QuestionKind.STARTUP

# Screen → kind, the question, the labels' beginnings with what they amount to, how one is chosen.
READ: dict[str, tuple[QuestionKind, str, list[tuple[str, OptionEffect]], Choosing]] = {
    "claude/dialog_permission": (
        PERMISSION,
        "Do you want to proceed?",
        [("Yes", ALLOW), ("Yes, and always", ALWAYS), ("Yes, and switch to auto mode", ALWAYS), ("No", DENY)],
        Choosing.DIGIT,
    ),
    "claude/dialog_permission_edit": (
        PERMISSION,
        "Do you want to create edited.txt?",
        [("Yes", ALLOW), ("Yes, and switch to accept edits", ALWAYS), ("No", DENY)],
        Choosing.DIGIT,
    ),
    "claude/dialog_permission_tool": (
        PERMISSION,
        "Do you want to proceed?",
        [("Yes", ALLOW), ("Yes, and don't ask again for notes", ALWAYS), ("No", DENY)],
        Choosing.DIGIT,
    ),
    "claude/dialog_permission_unchecked": (
        PERMISSION,
        "Do you want to proceed?",
        [("No", DENY), ("Yes", ALLOW)],
        Choosing.ARROWS,
    ),
    "claude/dialog_unchecked": (
        PERMISSION,
        "Auto mode can't check actions in this session",
        [("stay in auto mode", ALLOW), ("leave for accept edits mode", OTHER), ("cancel", DENY)],
        Choosing.KEY,
    ),
    "claude/dialog_question": (
        CHOICE,
        "Which colour?",
        [("Blue", OTHER), ("Red", OTHER), ("Type something.", OTHER), ("Chat about this", OTHER)],
        Choosing.DIGIT,
    ),
    "claude/startup_api_key": (
        STARTUP,
        "Do you want to use this API key?",
        [("Yes", ALLOW), ("No (recommended)", DENY)],
        Choosing.ARROWS,
    ),
    "claude/startup_bypass": (
        STARTUP,
        "WARNING: Claude Code running in Bypass Permissions mode",
        [("No, exit", DENY), ("Yes, I accept", ALLOW)],
        Choosing.ARROWS,
    ),
    "claude/startup_imports": (
        STARTUP,
        "Allow external CLAUDE.md file imports?",
        [("No, disable external imports", DENY), ("Yes, allow external imports", ALLOW)],
        Choosing.ARROWS,
    ),
    "claude/startup_mcp_server": (
        STARTUP,
        "New MCP server found in this project: x",
        [
            ("Use this MCP server", ALLOW),
            ("Use this and all future MCP servers", ALWAYS),
            ("Continue without using this MCP server", DENY),
        ],
        Choosing.ARROWS,
    ),
    "claude/startup_trust": (
        STARTUP,
        "Is this a project you created or one you trust?",
        [("No, exit", DENY), ("Yes, I trust this folder", ALLOW)],
        Choosing.ARROWS,
    ),
    "codex/dialog_permission": (
        PERMISSION,
        "Would you like to run the following command?",
        [("Yes, proceed", ALLOW), ("Yes, and don't ask again", ALWAYS), ("No, and tell Codex", DENY)],
        Choosing.DIGIT,
    ),
    "codex/dialog_permission_edit": (
        PERMISSION,
        "Would you like to make the following edits?",
        [("Yes, proceed", ALLOW), ("Yes, and don't ask again for these files", ALWAYS), ("No, and tell", DENY)],
        Choosing.DIGIT,
    ),
    "codex/dialog_permission_request": (
        PERMISSION,
        "Shall it be noted?",
        [("Allow", ALLOW), ("Deny", DENY), ("Cancel", DENY)],
        Choosing.DIGIT,
    ),
    "codex/dialog_permission_tool": (
        PERMISSION,
        'Allow the notes MCP server to run tool "note"?',
        [("Allow", ALLOW), ("Allow for this session", ALWAYS), ("Always allow", ALWAYS), ("Cancel", DENY)],
        Choosing.DIGIT,
    ),
    "codex/dialog_form": (CHOICE, "a dialog is open: form", [], Choosing.NONE),
    "codex/dialog_question": (
        CHOICE,
        "Which colour?",
        [("Blue", OTHER), ("Red", OTHER), ("None of the above", OTHER)],
        Choosing.DIGIT,
    ),
    "codex/startup_hooks_review": (
        STARTUP,
        "Hooks need review",
        [("Review hooks", OTHER), ("Trust all and continue", ALWAYS), ("Continue without trusting", DENY)],
        Choosing.DIGIT,
    ),
    "codex/startup_login": (
        STARTUP,
        "Choose how you want to use Codex",
        [("Sign in with ChatGPT", OTHER), ("Sign in with D", OTHER), ("Use an OpenAI", OTHER), ("Use Amazon", OTHER)],
        Choosing.DIGIT,
    ),
    "codex/startup_trust": (
        STARTUP,
        "Trust this folder?",
        [("Trust and continue", ALLOW), ("Quit", DENY)],
        Choosing.ARROWS,
    ),
    "copilot/dialog_permission": (
        PERMISSION,
        "Do you want to run this command?",
        [("Yes", ALLOW), ("Yes, and don't ask again for `touch`", ALWAYS), ("No, and tell Copilot", DENY)],
        Choosing.DIGIT,
    ),
    "copilot/dialog_permission_edit": (
        PERMISSION,
        "Do you want to create /tmp/proj/edited.txt?",
        [("Yes", ALLOW), ("Yes, and don't ask again for file operations", ALWAYS), ("No, and tell Copilot", DENY)],
        Choosing.DIGIT,
    ),
    "copilot/dialog_permission_tool": (
        PERMISSION,
        "Do you want to use this tool?",
        [("Yes", ALLOW), ("Yes, and don't ask again for tool", ALWAYS), ("No, and tell Copilot", DENY)],
        Choosing.DIGIT,
    ),
    "copilot/dialog_question": (
        CHOICE,
        "Which colour?",
        [("Blue", OTHER), ("Red", OTHER), ("Other (type your answer)", OTHER)],
        Choosing.ARROWS,
    ),
    "copilot/startup_trust": (
        STARTUP,
        "Do you trust the files in this folder?",
        [("Yes", ALLOW), ("Yes, and remember this folder", ALWAYS), ("No (Esc)", DENY)],
        Choosing.DIGIT,
    ),
    "gemini/dialog_permission": (
        PERMISSION,
        "Allow execution of [Shell]?",
        [("Allow once", ALLOW), ("Allow for this session", ALWAYS), ("No, suggest changes", DENY)],
        Choosing.DIGIT,
    ),
    "gemini/dialog_permission_edit": (
        PERMISSION,
        "Apply this change?",
        [("Allow once", ALLOW), ("Allow for this session", ALWAYS), ("Modify with", OTHER), ("No, suggest", DENY)],
        Choosing.DIGIT,
    ),
    "gemini/dialog_permission_tool": (
        PERMISSION,
        'Allow execution of MCP tool "note" from server "notes"?',
        [("Allow once", ALLOW), ("Allow tool for", ALWAYS), ("Allow all server tools", ALWAYS), ("No, suggest", DENY)],
        Choosing.DIGIT,
    ),
    "gemini/dialog_question": (
        CHOICE,
        "Which colour?",
        [("Blue", OTHER), ("Red", OTHER), ("Enter a custom value", OTHER)],
        Choosing.DIGIT,
    ),
    "gemini/dialog_quota": (
        CHOICE,
        "Usage limit reached for gemini-2.5-flash.",
        [("Keep trying", OTHER), ("Stop", OTHER)],
        Choosing.DIGIT,
    ),
    "gemini/startup_login": (
        STARTUP,
        "How would you like to authenticate for this project?",
        [("Sign in with Google", OTHER), ("Use Gemini API Key", OTHER), ("Vertex AI", OTHER)],
        Choosing.DIGIT,
    ),
    "gemini/startup_trust": (
        STARTUP,
        "Do you trust the files in this folder?",
        [("Trust folder (proj)", ALLOW), ("Trust parent folder (tmp)", ALWAYS), ("Don't trust", DENY)],
        Choosing.DIGIT,
    ),
    "opencode/dialog_permission": (
        PERMISSION,
        "△ Permission required",
        [("Allow once", ALLOW), ("Allow always", ALWAYS), ("Reject", DENY)],
        Choosing.NONE,
    ),
    "opencode/dialog_permission_edit": (
        PERMISSION,
        "△ Permission required",
        [("Allow once", ALLOW), ("Allow always", ALWAYS), ("Reject", DENY)],
        Choosing.NONE,
    ),
    "opencode/dialog_permission_tool": (
        PERMISSION,
        "△ Permission required",
        [("Allow once", ALLOW), ("Allow always", ALWAYS), ("Reject", DENY)],
        Choosing.NONE,
    ),
    "opencode/dialog_question": (
        CHOICE,
        "Which colour?",
        [("Blue", OTHER), ("Red", OTHER), ("Type your own answer", OTHER)],
        Choosing.DIGIT,
    ),
}
# The same dialog in terminals of other colours, and below an answer that is taller than the screen.
VARIANTS = (
    "256_colours",
    "no_colour",
    "after_tall_answer",
    "after_tall_answer_256_colours",
    "after_tall_answer_no_colour",
)
READ.update({f"gemini/dialog_permission_{variant}": READ["gemini/dialog_permission"] for variant in VARIANTS})
READ["claude/dialog_unchecked_80_columns"] = READ["claude/dialog_unchecked"]
# Elsewhere options have numbers.
NAMED_KEYS = {name: ["Enter", "shift+Tab", "Esc"] for name, row in READ.items() if row[-1] is Choosing.KEY}
ASKING = sorted(
    {name for name in names() if name.partition("/")[2].startswith(("dialog_", "startup_", "narrow_dialog_"))}
)
NARROW = [name for name in ASKING if "/narrow_" in name]


def seen(name: str) -> Dialog | None:
    return read_dialog(picture(name), bundled(name.partition("/")[0]))


def dialog(name: str) -> Dialog:
    found = seen(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", READ)
def test_question_and_options_of_a_dialog_are_read(name: str) -> None:
    kind, title, offered, choose = READ[name]

    found = dialog(name)

    assert (found.kind, found.title, found.choose) == (kind, title, choose)
    assert [option.effect for option in found.options] == [effect for _, effect in offered]
    assert all(option.label.startswith(label) for option, (label, _) in zip(found.options, offered, strict=True))
    numbers = [str(number) for number in range(1, len(offered) + 1)]
    assert [option.key for option in found.options] == NAMED_KEYS.get(name, numbers)


def test_every_golden_dialog_is_in_the_table_or_asks_nothing() -> None:
    asking = {name for name in ASKING if seen(name) is not None}

    assert asking - set(NARROW) == set(READ)


@pytest.mark.parametrize("name", NARROW)
def test_a_narrow_terminal_shows_the_same_dialog(name: str) -> None:
    narrow, wide = dialog(name), dialog(name.replace("narrow_", ""))

    assert narrow.digest == wide.digest
    assert narrow.options == wide.options


@pytest.mark.parametrize("name", [name for name in names() if name not in ASKING and "popup_history" not in name])
def test_a_screen_without_a_dialog_asks_nothing(name: str) -> None:
    assert seen(name) is None


@pytest.mark.parametrize("name", [name for name in names() if name.endswith("/dialog_menu")])
def test_a_menu_that_a_person_opened_asks_nothing(name: str) -> None:
    assert seen(name) is None


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("claude/dialog_permission", "Bash command\nMake a file\ntouch made-by-tool.txt"),
        ("claude/dialog_permission_edit", "Create file\nedited.txt\n 1 hello"),
        ("claude/dialog_question", "1. Blue: Like the sky\n2. Red: Like a rose"),
        (
            "codex/dialog_permission_tool",
            (
                "text: hello\n1. Allow: Run the tool and continue\n"
                "2. Allow for this session: Run the tool and remember this choice for this session\n"
                "3. Always allow: Run the tool and remember this choice for future tool calls\n"
                "4. Cancel: Cancel this tool call"
            ),
        ),
        ("codex/dialog_permission", "Environment: local\nReason: May I make a file?\n$ touch made-by-tool.txt"),
        ("gemini/dialog_permission", "? Shell  touch made-by-tool.txt\n  touch made-by-tool.txt"),
        ("copilot/dialog_permission", "Make a file\n  touch made-by-tool.txt"),
    ],
)
def test_the_detail_of_a_dialog_has_no_frames_and_tips(name: str, detail: str) -> None:
    assert dialog(name).detail == detail


@pytest.mark.parametrize(
    ("name", "marked", "text_option"),
    [
        ("claude/dialog_permission", 0, None),
        ("claude/dialog_permission_unchecked", 0, None),
        ("claude/startup_api_key", 1, None),
        ("claude/startup_bypass", 0, None),
        ("claude/startup_mcp_server", 2, None),
        ("claude/dialog_question", 0, 2),
        ("gemini/dialog_question", 0, 2),
        ("copilot/dialog_question", 0, 2),
        ("opencode/dialog_question", None, 2),
        ("codex/dialog_question", 0, None),
    ],
)
def test_the_highlighted_option_and_the_one_for_free_text_are_seen(
    name: str, marked: int | None, text_option: int | None
) -> None:
    found = dialog(name)

    assert (found.marked, found.text_option) == (marked, text_option)


@pytest.mark.parametrize("name", [name for name in READ if name.endswith("/dialog_permission_tool")])
def test_the_tool_that_wants_to_run_is_named(name: str) -> None:
    found = dialog(name)

    assert "note" in f"{found.title} {found.detail}"


@pytest.mark.parametrize("name", NAMED_KEYS)
def test_an_option_that_names_its_key_is_chosen_by_it(name: str) -> None:
    found = dialog(name)

    assert [found.named_key(index) for index in range(3)] == [b"\r", b"\x1b[Z", b"\x1b"]


def test_a_key_that_we_cannot_press_is_no_option() -> None:
    rule = {"name": "ask", "every": [r"\?$"], "choose": "key", "option": r"(?P<key>\w+) to (?P<label>\w+)"}
    rows = ("Enter to win", "Go on?", "Enter to go, F1 to stay,", "Esc to leave", "")

    found = read_dialog(Picture(rows, (0, 0), 40, 5), parse_profile({"command": ["x"], "dialogs": [rule]}, "x"))

    assert found is not None
    assert [(option.key, option.label) for option in found.options] == [("Enter", "go"), ("Esc", "leave")]
    assert found.title == "Go on?"


def test_the_dummys_question_has_two_answers() -> None:
    lines = ("> dialog", "Do you want to proceed? [y/n] ", *[""] * 8)

    found = read_dialog(Picture(lines, (1, 30), 80, 10), bundled("dummy"))

    assert found is not None
    assert found.title == "Do you want to proceed?"
    assert found.options == (Option(key="y", label="y", effect=ALLOW), Option(key="n", label="n", effect=DENY))
    assert found.choose is Choosing.LINE


def numbered(*rows: str) -> Dialog:
    found = read_dialog(Picture((*rows, *[""] * 4), (0, 0), 40, len(rows) + 4), asking_profile())
    assert found is not None
    return found


def asking_profile() -> Profile:
    rule = {"name": "ask", "every": [r"\?$"], "choose": "digit"}
    return parse_profile({"command": ["x"], "dialogs": [rule]}, "x")


def test_a_list_above_the_options_is_no_option() -> None:
    found = numbered("1. first step", "2. second step", "Go on?", " > 1. Yes", "   2. No")

    assert [option.label for option in found.options] == ["Yes", "No"]
    assert found.detail == "1. first step\n2. second step"


def test_a_label_that_was_wrapped_is_one_label_and_a_row_below_a_short_one_explains_it() -> None:
    found = numbered(
        "Go on?", " > 1. Yes, and remember this for all", "      of my folders", "   2. No", "      never mind"
    )

    assert [option.label for option in found.options] == ["Yes, and remember this for all of my folders", "No"]
    assert found.detail == "2. No: never mind"


def test_boxes_to_tick_are_not_answered_by_keys() -> None:
    assert numbered("Which ones?", " > 1. [ ] Blue", "   2. [x] Red").choose is Choosing.NONE


def test_moving_the_highlight_does_not_make_it_another_dialog() -> None:
    first, second = numbered("Go on?", " > 1. Yes", "   2. No"), numbered("Go on?", "   1. Yes", " > 2. No")

    assert first.digest == second.digest
    assert (first.marked, second.marked) == (0, 1)
    assert (first.moves_to(1), second.moves_to(0), first.moves_to(0)) == (b"\x1b[B", b"\x1b[A", b"")


def test_another_command_is_another_dialog() -> None:
    assert numbered("rm a", "Go on?", " > 1. Yes").digest != numbered("rm b", "Go on?", " > 1. Yes").digest


@pytest.mark.parametrize(
    ("label", "effect"),
    [
        ("Yes, manually approve edits", ALLOW),
        ("Yes, and auto-accept edits", ALWAYS),
        ("Yes, allow all edits during this session (shift+tab)", ALWAYS),
        ("No, keep planning", DENY),
        ("Nothing", OTHER),
        ("Yesterday", OTHER),
        ("Deny", DENY),
        ("Note it", OTHER),
        ("Don't trust", DENY),
    ],
)
def test_the_effect_of_an_option_is_read_from_its_label(label: str, effect: OptionEffect) -> None:
    assert effect_of(label) is effect


def test_a_dialog_without_title_and_options_shows_its_region() -> None:
    rule = {"name": "ask", "region": "bottom", "every": ["proceed"]}
    profile = parse_profile({"command": ["x"], "regions": {"bottom": {"last": 2}}, "dialogs": [rule]}, "x")

    found = read_dialog(Picture(("secret", "───", "proceed?", "Yes   No"), (0, 0), 40, 4), profile)

    assert found is not None
    assert (found.title, found.detail) == ("a dialog is open: ask", "proceed?\nYes   No")
    assert (found.options, found.choose) == ((), Choosing.NONE)
