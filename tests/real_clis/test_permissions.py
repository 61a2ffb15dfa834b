"""OpenCode itself tells which rules come out: ours is one more, decides about our tools alone, and changes no other.

A person may write permissions in many places and two forms, and OpenCode merges them all.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from synapse.calibration.sandbox import Sandbox
from synapse.drivers.pty.adapters.adapter import LaunchContext, ToolServer
from synapse.drivers.pty.adapters.opencode import tool_variables

PATIENCE = 60
ASK, ASK_BASH = '{"permission": "ask"}', '{"permission": {"bash": "ask"}}'
OURS = {"permission": "synapse_*", "action": "allow", "pattern": "*"}


@dataclass(frozen=True)
class Written:
    """What a person has written: files below the folder that holds `home` and `project`, and variables."""

    name: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])


FORMS = [
    Written("nothing"),
    Written("global", {"home/.config/opencode/opencode.json": ASK}),
    Written("global-bash", {"home/.config/opencode/opencode.jsonc": ASK_BASH}),
    Written("project", {"project/opencode.json": ASK}),
    Written("project-bash", {"project/.opencode/opencode.json": ASK_BASH}),
    Written("file", {"named.json": ASK}, {"OPENCODE_CONFIG": "../named.json"}),
    Written("content", env={"OPENCODE_CONFIG_CONTENT": ASK}),
    Written("content-bash", env={"OPENCODE_CONFIG_CONTENT": ASK_BASH}),
    Written("rules", env={"OPENCODE_PERMISSION": '{"*": "ask", "edit": "deny"}'}),
    Written("rules-bash", env={"OPENCODE_PERMISSION": '{"bash": "ask"}'}),
    Written("tools", {"home/.config/opencode/opencode.json": '{"tools": {"bash": false}}'}),
    Written(
        "everywhere",
        {
            "home/.config/opencode/opencode.json": '{"permission": {"bash": {"*": "ask", "git *": "allow"}}}',
            "project/opencode.json": '{"permission": {"*": "deny", "read": "allow"}}',
        },
        {"OPENCODE_CONFIG_CONTENT": ASK_BASH, "OPENCODE_PERMISSION": '{"webfetch": "ask"}'},
    ),
]
each_form = pytest.mark.parametrize("written", FORMS, ids=lambda written: written.name)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with TemporaryDirectory(prefix="syn-", ignore_cleanup_errors=True) as folder:
        yield Sandbox(Path(folder), os.environ)


@each_form
@pytest.mark.timeout(240)
def test_every_rule_of_the_person_stays_and_ours_is_about_our_tools_alone(sandbox: Sandbox, written: Written) -> None:
    for place, text in written.files.items():
        file = sandbox.home.parent / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    env = {**sandbox.env, **written.env, "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    without = rules(sandbox, env)
    given = rules(sandbox, {**env, **tool_variables(launch_of(sandbox, env))})

    assert [rule for rule in given if rule != OURS] == without
    assert given.count(OURS) == 1
    assert decision(given, "synapse_send") == "allow"
    for tool in ("bash", "edit", "webfetch", "theirs_note", "read"):
        assert decision(given, tool) == decision(without, tool)


@pytest.mark.timeout(240)
def test_a_decision_about_our_tools_stays_the_persons(sandbox: Sandbox) -> None:
    env = {**sandbox.env, "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    (sandbox.project / "opencode.json").write_text('{"permission": {"synapse_send": "ask"}}', encoding="utf-8")

    given = rules(sandbox, {**env, **tool_variables(launch_of(sandbox, env))})

    assert decision(given, "synapse_send") == "ask"


def rules(sandbox: Sandbox, env: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns the rules of OpenCode's agent, in the order in which it reads them."""
    shown = subprocess.run(
        ["opencode", "debug", "agent", "build"],
        cwd=sandbox.project,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=True,
    )
    agent: dict[str, Any] = json.loads(shown.stdout)
    found: list[dict[str, str]] = agent["permission"]
    return found


def decision(rules: list[dict[str, str]], tool: str) -> str:
    """Returns what the last rule about all uses of a tool says, as OpenCode decides."""
    matching = [
        rule["action"]
        for rule in rules
        if rule["pattern"] == "*" and rule["permission"] in (tool, "*", f"{tool.partition('_')[0]}_*")
    ]
    return matching[-1]


def launch_of(sandbox: Sandbox, env: Mapping[str, str]) -> LaunchContext:
    return LaunchContext(
        folder=sandbox.home.parent / "launch",
        url="",
        secret_header="",
        secret="",
        command="opencode",
        env=env,
        working_dir=sandbox.project,
        flags_file=sandbox.home.parent / "flags.json",
        new_session="",
        start_command="",
        started="",
        tools=ToolServer(command=("synapse", "mcp"), wait_seconds=50),
    )
