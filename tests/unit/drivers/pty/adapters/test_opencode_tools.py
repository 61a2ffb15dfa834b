"""OpenCode is given the tools of its launch by variables, and no rule of the person's changes by that.

tests/real_clis/test_permissions.py asks OpenCode itself which rules come out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from synapse.drivers.pty.adapters.adapter import Prepared, ToolServer
from synapse.drivers.pty.adapters.opencode import OpenCodeSignals
from tests.unit.drivers.pty.adapters.launches import TOOLS, launch_in

CONTENT = "OPENCODE_CONFIG_CONTENT"
PERMISSION = "OPENCODE_PERMISSION"
OURS = {"synapse_*": "allow"}


def prepare(folder: Path, env: dict[str, str] | None = None, tools: ToolServer | None = TOOLS) -> Prepared:
    return OpenCodeSignals(launch_in(folder, env, tools=tools)).prepare(())


def content_of(prepared: Prepared) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(prepared.env[CONTENT])
    return content


def test_the_server_and_its_permission_come_in_one_variable(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)

    server = {
        "type": "local",
        "command": ["/opt/bin/synapse", "mcp"],
        "environment": dict(TOOLS.env),
        "timeout": 600_000,
    }
    assert content_of(prepared) == {"mcp": {"synapse": server}, "permission": OURS}
    assert PERMISSION not in prepared.env
    assert prepared.lacks_tools == ""


def test_a_launch_without_a_server_changes_nothing(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, {CONTENT: "{}"}, tools=None)

    assert set(prepared.env) == {"OPENCODE_SERVER_PASSWORD"}


def test_our_shell_commands_get_no_rule_because_it_would_replace_the_persons(tmp_path: Path) -> None:
    assert TOOLS.allowed_commands

    assert "bash" not in content_of(prepare(tmp_path))["permission"]


@pytest.mark.parametrize(
    ("theirs", "merged"),
    [
        ("{}", OURS),
        ('{"permission": "ask"}', {"*": "ask", **OURS}),
        ('{"permission": {"bash": "ask"}}', {"bash": "ask", **OURS}),
        (
            '{"permission": {"*": "deny", "bash": {"git *": "allow"}}}',
            {"*": "deny", "bash": {"git *": "allow"}, **OURS},
        ),
        ('{/* ask */ "permission": "ask", // always\n}', {"*": "ask", **OURS}),
    ],
)
def test_the_persons_own_rules_stand_before_ours(tmp_path: Path, theirs: str, merged: dict[str, Any]) -> None:
    rules = content_of(prepare(tmp_path, {CONTENT: theirs}))["permission"]

    assert list(rules.items()) == list(merged.items())


def test_the_rest_of_the_persons_own_configuration_stays(tmp_path: Path) -> None:
    theirs = '{"model": "a/b", "mcp": {"mine": {"type": "remote", "url": "{env:URL}"}}, "x": "{file:./ü}"}'

    prepared = prepare(tmp_path, {CONTENT: theirs})

    content = content_of(prepared)
    assert {key: content[key] for key in ("model", "x")} == {"model": "a/b", "x": "{file:./ü}"}
    assert content["mcp"]["mine"] == {"type": "remote", "url": "{env:URL}"}
    # OpenCode replaces `{file:…}` in the text before it reads it.
    assert "{file:./ü}" in prepared.env[CONTENT]


def test_rules_in_the_variable_that_comes_last_get_ours_behind_them(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, {PERMISSION: '{"*": "ask"}'})

    assert list(json.loads(prepared.env[PERMISSION]).items()) == [("*", "ask"), ("synapse_*", "allow")]
    assert "permission" not in content_of(prepared)


@pytest.mark.parametrize("theirs", ['"ask"', "ask", "{}", ""])
def test_a_variable_without_rules_is_left_alone(tmp_path: Path, theirs: str) -> None:
    prepared = prepare(tmp_path, {PERMISSION: theirs})

    assert PERMISSION not in prepared.env
    assert content_of(prepared)["permission"] == OURS


PLACES = [
    ".config/opencode/opencode.json",
    ".config/opencode/opencode.jsonc",
    ".config/opencode/config.json",
    ".opencode/opencode.json",
    "opencode.json",
    "named.json",
    "folder/opencode.jsonc",
    "xdg/opencode/opencode.json",
]
VARIABLES = {"OPENCODE_CONFIG": "named.json", "OPENCODE_CONFIG_DIR": "folder"}


@pytest.mark.parametrize("place", PLACES)
def test_a_server_of_our_name_that_the_person_has_is_left_as_it_is(tmp_path: Path, place: str) -> None:
    env = dict(VARIABLES) | ({"XDG_CONFIG_HOME": str(tmp_path / "xdg")} if place.startswith("xdg") else {})
    write(tmp_path / place, '{"mcp": {"synapse": {"enabled": false}}}')

    prepared = prepare(tmp_path, env)

    assert CONTENT not in prepared.env
    assert PERMISSION not in prepared.env
    assert "MCP server named `synapse`" in prepared.lacks_tools


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rules", ['{"permission": {"synapse_send": "ask"}}', '{"tools": {"synapse_*": false}}'])
def test_what_the_person_decided_about_our_tools_stays(tmp_path: Path, place: str, rules: str) -> None:
    env = dict(VARIABLES) | ({"XDG_CONFIG_HOME": str(tmp_path / "xdg")} if place.startswith("xdg") else {})
    write(tmp_path / place, rules)

    prepared = prepare(tmp_path, env)

    assert "synapse" in content_of(prepared)["mcp"]
    assert "permission" not in content_of(prepared)
    assert PERMISSION not in prepared.env


def test_what_the_variable_says_about_our_tools_stays(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, {PERMISSION: '{"synapse_send": "ask"}'})

    assert "permission" not in content_of(prepared)
    assert PERMISSION not in prepared.env


def test_a_project_above_the_folder_counts_too(tmp_path: Path) -> None:
    write(tmp_path.parent / "opencode.json", '{"mcp": {"synapse": {}}}')

    try:
        assert prepare(tmp_path).lacks_tools
    finally:
        (tmp_path.parent / "opencode.json").unlink()


@pytest.mark.parametrize("theirs", ["{", "[]", '{"mcp": []}', '{"permission": ["ask"]}', '{"mcp": {env:SERVERS}}'])
def test_a_configuration_that_cannot_be_read_is_left_to_opencode(tmp_path: Path, theirs: str) -> None:
    prepared = prepare(tmp_path, {CONTENT: theirs})

    assert CONTENT not in prepared.env
    assert prepared.lacks_tools.startswith(f"{CONTENT} cannot be read")


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
