"""A tool of a person's own MCP server asks for permission: the question is listed, and answered from elsewhere.

The CLIs run in the modes in which they ask. What proves that a tool ran, and how often, is what it wrote down itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from synapse.calibration.model_server import Fact
from synapse.calibration.sandbox import AGENT, Sandbox, recipe_names
from synapse.calibration.scripted_model import CallMcpTool, CallTool, SayText, Scene, Use
from tests.real_clis.benches import Bench, bench_for, eventually

SERVER = Path(__file__).resolve().parents[1] / "agents" / "tool_server.py"
SAID = SayText(("That was ", "the tool."))


def calls(tool: str) -> Scene:
    return (CallMcpTool(tool, {"text": "the note"}, server="notes"), SAID)


SCENES = {
    "note": calls("note"),
    "confirm": calls("confirm"),
    "fill-in": calls("fill_in"),
    # It prints something first: only then does Gemini's title ask for a person after half a minute of silence.
    "sleep": (CallTool(Use.SHELL, "echo begun; sleep 50"), SAID),
}


@dataclass(frozen=True)
class ToolBench:
    """A CLI with the person's own MCP server `notes`."""

    bench: Bench
    log: Path

    @property
    def notes(self) -> list[str]:
        """What the tools wrote down, in order."""
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def send(self, scene: str, number: int = 1) -> None:
        eventually(self.bench.is_ready)
        sent = self.bench.synapse("send", AGENT, f"calibrate:{scene}:{number} please")
        assert sent.code == 0, sent.notices

    def asked(self) -> dict[str, Any]:
        """The open question that says what may be chosen, as `synapse approvals` lists it."""
        eventually(lambda: any(question["options"] for question in self.questions()))
        (question,) = self.questions()
        return question

    def has_asked(self, title: str) -> bool:
        return [question["title"] for question in self.questions()] == [title]

    def answer(self, *words: str) -> None:
        answered = self.bench.synapse(*words)
        assert answered.code == 0, answered.notices

    def has_said(self, scene: str) -> bool:
        return self.bench.model.ledger.last(f"{scene}:1", Fact.SAID) is not None

    def questions(self) -> list[dict[str, Any]]:
        """What `synapse approvals` lists."""
        return [listed["question"] for listed in json.loads(self.bench.synapse("approvals", "--json").output or "[]")]


@contextmanager
def tool_bench(profile: str, *arguments: str) -> Generator[ToolBench]:
    with bench_for(profile, os.environ, SCENES) as bench:
        log = bench.workbench.project.parent / "notes.log"
        install_server(profile, bench.workbench, [sys.executable, str(SERVER), str(log)])
        bench.start(*arguments)
        yield ToolBench(bench, log)


def install_server(profile: str, workbench: Sandbox, command: list[str]) -> None:
    """Adds the server as a person would; every use of its tools has to be asked for."""
    program, *arguments = command
    entry: dict[str, Any] = {"command": program, "args": arguments}
    match profile:
        case "claude":
            add_servers(workbench.home / ".claude.json", {"notes": {**entry, "type": "stdio", "alwaysLoad": True}})
        case "codex":
            with (workbench.home / ".codex" / "config.toml").open("a", encoding="utf-8") as file:
                file.write("\n[mcp_servers.notes]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in entry.items()))
        case "copilot":
            local = {**entry, "type": "local", "tools": ["*"]}
            add_servers(workbench.home / ".copilot" / "mcp-config.json", {"notes": local})
        case "gemini":
            add_servers(workbench.home / ".gemini" / "settings.json", {"notes": entry})
        case _:
            given = json.loads(workbench.recipe.env["OPENCODE_CONFIG_CONTENT"])
            given["mcp"] = {"notes": {"type": "local", "command": command}}
            given["permission"]["notes_*"] = "ask"
            env = {**workbench.recipe.env, "OPENCODE_CONFIG_CONTENT": json.dumps(given)}
            workbench.recipe = replace(workbench.recipe, env=env)


def add_servers(file: Path, servers: dict[str, Any]) -> None:
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**settings, "mcpServers": servers}), encoding="utf-8")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("profile", recipe_names())
def test_a_tool_that_is_approved_runs_once_and_is_asked_for_again(profile: str) -> None:
    with tool_bench(profile) as tools:
        tools.send("note")
        asked = tools.asked()
        tools.answer("approve", AGENT)
        eventually(lambda: tools.has_said("note"))
        tools.send("note", 2)
        again = tools.asked()

        assert tools.notes == ["the note"]
        assert_permission_for(asked, "note")
        assert again["id"] != asked["id"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("profile", recipe_names())
def test_a_tool_that_is_denied_does_not_run(profile: str) -> None:
    with tool_bench(profile) as tools:
        tools.send("note")
        tools.asked()
        tools.answer("deny", AGENT)
        eventually(tools.bench.is_ready)

        assert tools.notes == []


def assert_permission_for(asked: dict[str, Any], tool: str) -> None:
    assert asked["kind"] == "permission"
    assert tool in asked["title"] + asked["detail"]
    effects = [option["leaning"] for option in asked["options"]]
    assert {"allow", "allow_always", "deny"} <= set(effects)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("verb", "notes"), [("approve", ["the note"]), ("deny", [])])
def test_codex_without_a_server_is_answered_in_its_dialog(verb: str, notes: list[str]) -> None:
    # With a further folder it gets no server, so only its screen shows the question.
    with tool_bench("codex", "--add-dir", "..") as tools:
        tools.send("note")
        asked = tools.asked()
        tools.answer(verb, AGENT)
        eventually(lambda: tools.has_said("note"))
        eventually(tools.bench.is_ready)

        assert tools.notes == notes
        assert asked["source"] == "screen"
        assert_permission_for(asked, "note")


@pytest.mark.timeout(180)
def test_codex_remembers_a_tool_only_when_told_so() -> None:
    with tool_bench("codex") as tools:
        tools.send("note")
        asked = tools.asked()
        always = next(option["key"] for option in asked["options"] if option["label"] == "Allow for this session")
        tools.answer("answer", AGENT, always)
        eventually(lambda: tools.has_said("note"))
        eventually(tools.bench.is_ready)
        tools.send("note", 2)
        eventually(lambda: len(tools.notes) == 2)

        assert tools.questions() == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("verb", "action"), [("approve", "accept"), ("deny", "decline")])
def test_a_yes_or_no_of_an_mcp_server_in_codex_is_answered(verb: str, action: str) -> None:
    with tool_bench("codex") as tools:
        tools.send("confirm")
        tools.asked()
        tools.answer("approve", AGENT)
        eventually(lambda: tools.has_asked("Shall it be noted?"))
        asked = tools.asked()
        tools.answer(verb, AGENT)
        eventually(lambda: tools.has_said("confirm"))

        assert [json.loads(note)["action"] for note in tools.notes] == [action]
        assert asked["kind"] == "permission"


@pytest.mark.timeout(180)
def test_a_form_of_an_mcp_server_in_codex_is_left_to_its_terminal() -> None:
    with tool_bench("codex") as tools:
        tools.send("fill-in")
        tools.asked()
        tools.answer("approve", AGENT)
        eventually(lambda: tools.has_asked("Which colour shall be noted?"))
        (asked,) = tools.questions()
        approved = tools.bench.synapse("approve", AGENT)

        assert (asked["options"], tools.notes) == ([], [])
        assert "terminal" in asked["hint"]
        assert approved.code != 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("verbs", "notes"),
    [(("approve", "approve"), ["the note"]), (("approve", "deny"), []), (("deny",), [])],
)
def test_claude_in_auto_mode_without_its_safety_check_asks_a_person(verbs: tuple[str, ...], notes: list[str]) -> None:
    with tool_bench("claude", "--permission-mode", "auto") as tools:
        tools.send("note")
        asked: list[dict[str, Any]] = []
        for verb in verbs:
            asked.append(tools.asked())
            tools.answer(verb, AGENT)
        eventually(tools.bench.is_ready)

        assert tools.notes == notes
        assert {question["kind"] for question in asked} == {"permission"}
        assert asked[0]["title"] == "Auto mode can't check actions in this session"
        assert all("note" in question["detail"] for question in asked[1:])


@pytest.mark.timeout(240)
def test_a_silent_shell_in_gemini_asks_nobody() -> None:
    with tool_bench("gemini") as tools:
        tools.send("sleep")
        tools.asked()
        tools.answer("approve", AGENT)
        eventually(lambda: not tools.bench.asks())
        seen: set[tuple[str, bool]] = set()

        def has_ended() -> bool:
            status = tools.bench.workbench.ask("/status")
            if not tools.has_said("sleep"):
                seen.add((status["state"], bool(status.get("question"))))
            return tools.has_said("sleep")

        eventually(has_ended)

        assert seen == {("working", False)}
