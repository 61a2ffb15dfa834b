"""A profile is data, and an error in it names the key's path."""

from __future__ import annotations

import re
from typing import Any

import pytest

from synapse.core.errors import InvalidProfile
from synapse.core.question import QuestionKind
from synapse.terminal.profile import LINE_LIMIT_BYTES, McpRule, Times, TypingStyle, parse_profile
from tests.unit.terminal.bundled import bundled, bundled_names

PORTS = {
    "claude": (8100, 8109),
    "gemini": (8110, 8119),
    "codex": (8120, 8129),
    "opencode": (8130, 8139),
    "copilot": (8140, 8149),
    "dummy": (8190, 8199),
}


def test_a_command_is_all_that_a_profile_needs() -> None:
    profile = parse_profile({"command": ["bc", "-q"]}, "bc")

    assert profile.command == ("bc", "-q")
    assert profile.title == "Bc"
    assert profile.limit_bytes == LINE_LIMIT_BYTES < 4096
    assert profile.reads_lines
    assert profile.times.quiet == 1.0
    assert profile.envelope
    assert profile.instructions


def test_a_program_that_cannot_read_gets_neither_header_nor_instructions() -> None:
    profile = parse_profile({"command": ["bc"], "envelope": False, "instructions": False}, "bc")

    assert (profile.envelope, profile.instructions) == (False, False)


def test_a_profile_may_switch_capabilities_off() -> None:
    assert parse_profile({"command": ["bc"]}, "bc").lacks == ()
    assert parse_profile({"command": ["bc"], "streaming": False}, "bc").lacks == ("streaming",)
    assert parse_profile({"command": ["bc"], "push_notifications": False}, "bc").lacks == ("pushNotifications",)
    with pytest.raises(InvalidProfile, match="streaming"):
        parse_profile({"command": ["bc"], "streaming": "no"}, "bc")


def test_a_profile_may_declare_extensions() -> None:
    profile = parse_profile({"command": ["bc"], "extensions": [{"uri": "urn:a", "required": True}]}, "bc")

    assert [(one.uri, one.required) for one in profile.extensions] == [("urn:a", True)]
    with pytest.raises(InvalidProfile, match="profile 'bc': extension 1: 'uri' must be a URI"):
        parse_profile({"command": ["bc"], "extensions": [{"uri": "a"}]}, "bc")


def test_a_command_may_be_one_word() -> None:
    assert parse_profile({"command": "bc"}, "bc").command == ("bc",)


def test_every_part_of_a_profile_is_read() -> None:
    profile = parse_profile(
        {
            "title": "Tool",
            "command": ["tool"],
            "args": ["--fast"],
            "env": {"NO_COLOR": "1"},
            "ports": [9000, 9001],
            "install_hint": "make tool",
            "limit_bytes": 10,
            "clear_keys": ["ctrl-a", "ctrl-k"],
            "typing": {"style": "paste", "enter": ["esc", "enter"], "newline": "|", "paste_marks": ["x"]},
            "interrupt": {"keys": ["esc", "esc"], "pause": 0.5},
            "times": {"quiet": 1, "proof": 2.5},
            "regions": {"box": {"between": "-", "last": 3}},
            "prompt": {"pattern": "(?P<text>.*)", "region": "box", "holds_cursor": True},
            "dialogs": [{"name": "ask", "hint": "do it", "every": ["a"], "never": ["b"]}],
            "working": [{"some": ["c"], "region": "box"}],
            "mcp": {"instructions": True, "wait": 20},
            "titles": {"working": "w"},
            "answer": {"drop": ["d"]},
        },
        "tool",
    )

    assert (profile.title, profile.args, profile.env, profile.ports) == (
        "Tool",
        ("--fast",),
        {"NO_COLOR": "1"},
        (9000, 9001),
    )
    assert (profile.install_hint, profile.limit_bytes, profile.clear_keys) == ("make tool", 10, b"\x01\x0b")
    assert (profile.typing.style, profile.typing.enter, profile.typing.newline) == (TypingStyle.PASTE, b"\x1b\r", "|")
    assert (profile.interrupt.keys, profile.interrupt.pause) == ((b"\x1b", b"\x1b"), 0.5)
    assert profile.times == Times(quiet=1.0, proof=2.5)
    assert profile.regions["box"].last == 3
    assert profile.prompt is not None
    assert not profile.reads_lines
    assert (profile.dialogs[0].name, profile.dialogs[0].hint, profile.working[0].name) == ("ask", "do it", "working")
    assert set(profile.titles) == {"working"}
    assert profile.mcp == McpRule(instructions=True, wait=20.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "command must name a program"),
        ({"command": [""]}, "command must name a program"),
        ({"command": [1]}, "command must hold only texts, not 1"),
        ({"command": 7}, "command must be a list of texts, not 7"),
        ({"title": 3}, "title must be text, not 3"),
        ({"ports": [2, 1]}, r"ports must be \[first, last\]"),
        ({"ports": "8100"}, r"ports must be \[first, last\]"),
        ({"ports": [1, 99999]}, r"ports must be \[first, last\]"),
        ({"env": {"A": 1}}, "env.A must be text, not 1"),
        ({"env": "A=1"}, "env must be a table"),
        ({"limit_bytes": -1}, "limit_bytes must be a whole number"),
        ({"limit_bytes": True}, "limit_bytes must be a whole number"),
        ({"clear_keys": "ctrl-"}, "clear_keys must hold names of keys"),
        ({"typing": {"style": "shout"}}, "typing.style must be one of paste, line, not 'shout'"),
        ({"typing": {"newline": "\n"}}, "typing.newline must not hold control characters"),
        ({"interrupt": {"signal": "SIGINT", "keys": ["esc"]}}, "interrupt.signal and keys exclude each other"),
        ({"interrupt": {"signal": "INT"}}, "interrupt.signal must be the name of a signal"),
        ({"times": {"quiet": "soon"}}, "times.quiet must be a number"),
        ({"times": {"quiet": -1}}, "times.quiet must be a number"),
        ({"prompt": {}}, "prompt.pattern must be given"),
        ({"prompt": {"pattern": "> .*"}}, "prompt.pattern must be given, with a group"),
        ({"prompt": {"pattern": "("}}, "prompt.pattern is not a regular expression"),
        ({"prompt": {"pattern": "(?P<text>)", "at_cursor": 1}}, "prompt.at_cursor must be true or false"),
        ({"prompt": {"pattern": "(?P<text>)", "region": "box"}}, "there is no region 'box'"),
        ({"dialogs": {"name": "x"}}, "dialogs must be a list of tables"),
        ({"dialogs": ["x"]}, r"dialogs\[0\] must be a table"),
        ({"dialogs": [{"every": ["x"]}]}, r"dialogs\[0\].name must be given"),
        ({"dialogs": [{"name": "x"}]}, r"dialogs\[0\].every or some must be given"),
        ({"working": [{"some": ["x"], "region": "box"}]}, "there is no region 'box'"),
        ({"titles": {"working": "["}}, "titles.working is not a regular expression"),
        ({"titles": {"busy": "x"}}, "there is no key titles.busy"),
        ({"mcp": {"instructions": "yes"}}, "mcp.instructions must be true or false"),
        ({"mcp": {"wait": 0}}, "mcp.wait must be more than 0 seconds"),
        ({"promt": {}}, "there is no key promt"),
        ({"regions": {"box": {"betwen": "x"}}}, "there is no key regions.box.betwen"),
    ],
)
def test_an_error_names_the_path_of_its_key(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProfile, match=rf"profile 'tool': {message}") as caught:
        parse_profile({"command": ["tool"], **fields} if fields else {}, "tool")

    assert caught.value.hint


def test_a_misspelt_key_is_recognised() -> None:
    with pytest.raises(InvalidProfile) as caught:
        parse_profile({"command": ["tool"], "promt": {}}, "tool")

    assert caught.value.hint == "Did you mean 'prompt'?"


@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_profile_can_be_used(name: str) -> None:
    profile = bundled(name)

    assert profile.ports == PORTS[name]
    assert profile.prompt is not None
    assert profile.dialogs
    assert all(dialog.hint for dialog in profile.dialogs)


@pytest.mark.parametrize(
    ("name", "passes_on"),
    [("claude", True), ("codex", True), ("opencode", True), ("gemini", True), ("copilot", False), ("dummy", False)],
)
def test_a_profile_knows_whether_its_cli_passes_on_the_instructions_of_servers(name: str, passes_on: bool) -> None:
    assert bundled(name).mcp.instructions is passes_on


@pytest.mark.parametrize("name", [name for name in bundled_names() if name != "dummy"])
def test_the_real_clis_are_pasted_into_and_never_sent_a_signal(name: str) -> None:
    profile = bundled(name)

    assert profile.typing.style is TypingStyle.PASTE
    assert profile.typing.paste_marks
    assert profile.interrupt.signal == ""
    assert set(profile.interrupt.keys) == {b"\x1b"}
    assert profile.install_hint


def test_the_built_in_agent_is_a_line_program_that_lives_through_sigint() -> None:
    profile = bundled("dummy")

    assert profile.command == ("{python}", "-P", "-m", "synapse.tools.dummy")
    assert profile.reads_lines
    assert profile.interrupt.signal == "SIGINT"
    assert profile.limit_bytes < 4096


@pytest.mark.parametrize(
    ("dialog", "complaint"),
    [
        ({"kind": "secret"}, "dialogs[0].kind must be one of permission, choice, startup, menu"),
        ({"choose": "mouse"}, "dialogs[0].choose must be one of digit, arrows, line"),
    ],
)
def test_a_dialog_has_a_kind_and_a_way_to_be_answered_that_are_known(dialog: dict[str, Any], complaint: str) -> None:
    table = {"command": ["x"], "dialogs": [{"name": "ask", "every": ["a"], **dialog}]}

    with pytest.raises(InvalidProfile, match=re.escape(complaint)):
        parse_profile(table, "x")


def test_a_dialog_rule_without_kind_and_keys_is_a_permission_to_answer_in_the_terminal() -> None:
    profile = parse_profile({"command": ["x"], "dialogs": [{"name": "ask", "every": ["a"]}]}, "x")

    assert (profile.dialogs[0].kind, profile.dialogs[0].choose) == (QuestionKind.PERMISSION, "")
