"""The model of each CLI speaks with other agents by Synapse's tools, and no person is asked for anything.

The CLIs run in modes that ask a person before a tool is used: whatever is not Synapse's own is still asked for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from synapse.calibration.model_server import Fact, ModelServer
from synapse.calibration.sandbox import Recipe, Sandbox, load_recipe, placeholders
from synapse.calibration.scripted_model import CallMcpTool, CallTool, SayText, Scene, Use
from synapse.calibration.trial import SeenEvent, TaskFollower, texts
from synapse.client.http import HostAddress
from synapse.client.views import message_of
from synapse.config.process import SystemClock
from synapse.config.settings import load_profile
from synapse.core.json_text import object_in
from synapse.registry.files import FileRegistry
from tests.real_clis.benches import PATIENCE, Bench, bench_for, eventually

ADA, BOB = "ada", "bob"
EXACT = 'it\'s "quoted", $(id) and `id`, a \\backslash,\nünïcödé 日本語 🙂 on a second line'
"""What shells, terminals and careless quoting change."""
SCENES: Mapping[str, Scene] = {
    "consult": (CallMcpTool("send", {"to": BOB, "text": EXACT, "wait": "answer"}), SayText(("Bob has ", "answered."))),
    "ask-cli": (
        CallMcpTool("send", {"to": BOB, "text": "calibrate:reply:2 please", "wait": "answer"}),
        SayText(("Bob has ", "answered.")),
    ),
    "reply": (CallMcpTool("reply", {"text": EXACT}), SayText(("I have ", "replied."))),
    "shell-reply": (CallTool(Use.SHELL, "synapse reply 'Forty-two.'"), SayText(("I have ", "replied."))),
    "shell": (CallTool(Use.SHELL, "touch made-by-shell"), SayText(("It was ", "run."))),
    "theirs": (CallMcpTool("note", {"text": "x"}, server="theirs"), SayText(("It was ", "noted."))),
}
# A person's own MCP server: it writes down each call.
THEIRS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    result = {
        "initialize": {
            "protocolVersion": asked.get("params", {}).get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "theirs", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "note", "description": "Writes a note", "inputSchema": schema}]},
        "tools/call": {"content": [{"type": "text", "text": "noted"}]},
    }.get(asked["method"])
    if asked["method"] == "tools/call":
        open("made-by-theirs", "w", encoding="utf-8").close()
    answer = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@dataclass(frozen=True)
class Row:
    """One CLI in one mode, and how a person gives it an MCP server of their own, named `theirs`."""

    profile: str
    args: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "-".join((self.profile, *(word.strip("-") for word in self.args)))

    def add_server(self, home: Path, command: tuple[str, ...]) -> None:
        """Writes the server into the CLI's own configuration."""
        program, *words = command
        match self.profile:
            case "claude":
                server = {"type": "stdio", "command": program, "args": words, "alwaysLoad": True}
                change(home / ".claude.json", mcpServers={"theirs": server})
            case "codex":
                with (home / ".codex" / "config.toml").open("a", encoding="utf-8") as config:
                    config.write(
                        f"\n[mcp_servers.theirs]\ncommand = {json.dumps(program)}\nargs = {json.dumps(words)}\n"
                    )
            case "opencode":
                # It asks before it uses a tool only if the person wants that.
                file = home / ".config" / "opencode" / "opencode.json"
                change(file, mcp={"theirs": {"type": "local", "command": [*command]}}, permission={"theirs_*": "ask"})
            case "copilot":
                server = {"type": "local", "command": program, "args": words, "tools": ["*"]}
                change(home / ".copilot" / "mcp-config.json", mcpServers={"theirs": server})
            case "gemini":
                change(home / ".gemini" / "settings.json", mcpServers={"theirs": {"command": program, "args": words}})
            case _:
                raise AssertionError(f"how does {self.profile} get a server?")


def change(file: Path, **added: object) -> None:
    """Adds to a JSON file, or makes it."""
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**config, **added}), encoding="utf-8")


ROWS = (
    Row("claude"),
    Row("codex"),
    Row("codex", ("-s", "read-only")),
    Row("opencode"),
    Row("copilot"),
    Row("gemini"),
)
each_cli = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
each_profile = pytest.mark.parametrize("row", [row for row in ROWS if not row.args], ids=lambda row: row.name)


class World:
    """Agents that share a home, a project and a registry, and the scripted model of their CLIs."""

    def __init__(self, bench: Bench) -> None:
        self.sandbox: Sandbox = bench.workbench
        self.model: ModelServer = bench.model
        self._followers: list[TaskFollower] = []

    def run(self, *words: str) -> dict[str, Any]:
        """Runs a `synapse` command that must succeed; returns the JSON object that it printed, or an empty one."""
        ran = self.sandbox.synapse(*words)
        assert ran.code == 0, ran.output + ran.notices
        return ran.fields

    def start(self, row: Row, name: str, *options: str) -> None:
        """Starts a CLI in the background, and waits until it is ready."""
        args = (*load_recipe(row.profile).args, *row.args)
        self.run("start", row.profile, "--name", name, *options, "--", *args)
        eventually(lambda: self.state(name) == "ready")

    def start_echo(self, name: str, *, after: float = 0.0) -> None:
        """Starts a scripted agent that answers with what it is told, after so many seconds."""
        script = self.sandbox.home / "echo.toml"
        steps = f'[{{ wait = {after} }}, {{ answer = "{{text}}" }}]'
        script.write_text(f"[default]\nsteps = {steps}\n", encoding="utf-8")
        self.run("start", "scripted", str(script), "--name", name)

    def state(self, name: str) -> str:
        return str(self.run("status", name, "--json").get("status"))

    def tools(self, name: str) -> dict[str, Any]:
        """Returns what `synapse status` says of the agent's tools."""
        return object_in(self.run("status", name, "--json"), "tools")

    def send(self, name: str, scene: str) -> TaskFollower:
        """Sends a message that makes the model of the agent play a scene."""
        sent = self.run("send", name, f"calibrate:{scene}:1 please", "--json")
        follower = TaskFollower(self._address(name), str(object_in(sent, "task")["id"]), SystemClock())
        self._followers.append(follower)
        return follower

    def close(self) -> None:
        """Ends everything that was started."""
        for follower in self._followers:
            follower.close()
        self.sandbox.synapse("stop", "--all", "--force")

    def messages_to(self, name: str) -> list[str]:
        """Returns the texts that were sent to the agent."""
        tasks: list[dict[str, Any]] = json.loads(self.sandbox.synapse("tasks", name, "--json").output)
        return [message_of(task) for task in tasks]

    def told(self, name: str) -> str:
        """Returns what Synapse knows, for a failed test."""
        said = [self.sandbox.synapse("status", name, "--explain"), self.sandbox.synapse("logs", name)]
        facts = [f"{entry.fact} {entry.text[:300]}" for entry in self.model.ledger.entries]
        return "\n".join([*(ran.output + ran.notices for ran in said), *facts])

    def _address(self, name: str) -> HostAddress:
        registry = FileRegistry(Path(self.sandbox.env["SYNAPSE_HOME"]) / "registry")
        entry = next(entry for entry in registry.entries() if entry.name == name)
        return HostAddress(entry.socket, port=entry.port)


@contextmanager
def world_of(
    *profiles: str, env: Mapping[str, str] | None = None, scenes: Mapping[str, Scene] | None = None
) -> Generator[World]:
    """Installs the CLIs in one home, Gemini with our extension; everything that is started there ends with it."""
    with bench_for(profiles[0], os.environ, {**SCENES, **(scenes or {})}) as bench:
        sandbox = bench.workbench
        filled = placeholders(bench.model.url, home=sandbox.home, project=sandbox.project)
        recipes = [load_recipe(profile).filled(filled) for profile in profiles]
        sandbox.install(together(recipes, env or {}))
        if "gemini" in profiles:
            assert sandbox.synapse("mcp", "install", "gemini").code == 0
        world = World(bench)
        try:
            yield world
        finally:
            world.close()


def together(recipes: list[Recipe], env: Mapping[str, str]) -> Recipe:
    """Returns one recipe for several CLIs, with more variables."""
    first = recipes[0]
    for recipe in recipes[1:]:
        first = replace(first, env={**first.env, **recipe.env}, files={**first.files, **recipe.files})
    return replace(first, env={**first.env, **env})


def finished(world: World, name: str, task: TaskFollower) -> SeenEvent:
    """Waits for the end of a task. Asserts that nobody was asked for anything meanwhile."""
    end = task.until(lambda seen: seen.status in ("completed", "failed", "canceled", "input_required"), PATIENCE)
    assert end is not None, world.told(name)
    assert end.status == "completed", world.told(name)
    return end


@each_cli
@pytest.mark.timeout(240)
def test_a_model_asks_another_agent_and_gets_the_exact_answer(row: Row) -> None:
    with world_of(row.profile) as world:
        world.start_echo(BOB)
        before = world.sandbox.settings()
        world.start(row, ADA, "--no-instructions")

        end = finished(world, ADA, world.send(ADA, "consult"))

        assert texts(end) == ["Bob has answered."]
        result = world.model.ledger.last("consult:1", Fact.RESULT)
        assert result is not None
        assert EXACT in result.text
        assert world.messages_to(BOB) == [EXACT]
        assert world.sandbox.settings() == before


@each_cli
@pytest.mark.timeout(240)
def test_a_model_replies_and_the_sender_gets_the_exact_text(row: Row) -> None:
    with world_of(row.profile) as world:
        world.start(row, ADA, "--no-instructions")

        asked = world.sandbox.synapse("send", ADA, "calibrate:reply:1 please", "--response", "--timeout", "50")

        assert (asked.code, asked.output) == (0, EXACT + "\n"), world.told(ADA)


@pytest.mark.timeout(240)
def test_two_clis_of_different_vendors_hold_a_conversation_unasked() -> None:
    with world_of("claude", "codex") as world:
        world.start(Row("claude"), ADA, "--no-instructions")
        world.start(Row("codex"), BOB, "--no-instructions")

        end = finished(world, ADA, world.send(ADA, "ask-cli"))

        assert texts(end) == ["Bob has answered."]
        result = world.model.ledger.last("ask-cli:1", Fact.RESULT)
        assert result is not None
        assert EXACT in result.text
        eventually(lambda: world.state(BOB) == "ready")


@each_profile
@pytest.mark.timeout(240)
def test_a_person_is_still_asked_for_other_tools(row: Row) -> None:
    with world_of(row.profile) as world:
        server = world.sandbox.home / "theirs.py"
        server.write_text(THEIRS, encoding="utf-8")
        row.add_server(world.sandbox.home, (sys.executable, str(server)))
        for scene in ("shell", "theirs"):
            world.start(row, ADA, "--no-instructions")
            world.send(ADA, scene)

            eventually(lambda: world.state(ADA) in ("waiting", "exited"))

            called = world.model.ledger.last(f"{scene}:1", Fact.CALLED, Fact.LACKED)
            assert called is not None
            assert called.fact is Fact.CALLED, world.told(ADA)
            assert world.model.ledger.last(f"{scene}:1", Fact.RESULT) is None
            world.sandbox.synapse("stop", ADA, "--force")
            assert not (world.sandbox.project / f"made-by-{scene}").exists()


# Gemini has them by the extension that the person installed; without MCP it asks before it uses them.
@pytest.mark.parametrize(
    "row", [row for row in ROWS if not row.args and row.profile != "gemini"], ids=lambda row: row.name
)
@pytest.mark.timeout(240)
def test_a_launch_without_mcp_has_no_tools(row: Row) -> None:
    with world_of(row.profile) as world:
        world.start(row, ADA, "--no-mcp", "--no-instructions")

        finished(world, ADA, world.send(ADA, "consult"))

        assert world.model.ledger.last("consult:1", Fact.LACKED) is not None


@pytest.mark.parametrize(
    "row", [row for row in ROWS if load_profile(row.profile).mcp.instructions], ids=lambda row: row.name
)
@pytest.mark.timeout(240)
def test_a_model_reads_the_instructions_without_a_turn(row: Row) -> None:
    with world_of(row.profile) as world:
        world.start(row, ADA)

        finished(world, ADA, world.send(ADA, "one-line"))

        log = world.sandbox.synapse("logs", ADA).output
        assert "delivered as MCP server instructions" in log, world.told(ADA)
        # The message of the test is the only one that was typed.
        assert log.count("  typed  ") == 1
        (request,) = world.model.requests
        told = json.dumps(request)
        assert told.count("You are the agent synapse-") == 1
        assert f"named {ADA}" in told


@pytest.mark.timeout(240)
def test_gemini_without_the_extension_replies_by_its_shell_unasked() -> None:
    with world_of("gemini") as world:
        assert world.sandbox.synapse("mcp", "uninstall", "gemini").code == 0
        before = world.sandbox.settings()
        world.start(Row("gemini"), ADA, "--no-instructions")

        asked = world.sandbox.synapse("send", ADA, "calibrate:shell-reply:1 please", "--response", "--timeout", "50")

        assert (asked.code, asked.output) == (0, "Forty-two.\n"), world.told(ADA)
        assert world.sandbox.settings() == before


@pytest.mark.timeout(240)
def test_a_policy_of_the_persons_own_stays_stronger_than_ours_in_gemini() -> None:
    with world_of("gemini") as world:
        policy = world.sandbox.home / ".gemini" / "policies" / "mine.toml"
        policy.parent.mkdir()
        rule = 'toolName = "run_shell_command"\ncommandPrefix = "synapse"\ndecision = "ask_user"\npriority = 1\n'
        policy.write_text(f"[[rule]]\n{rule}", encoding="utf-8")
        world.start(Row("gemini"), ADA, "--no-instructions")

        world.send(ADA, "shell-reply")

        eventually(lambda: world.state(ADA) in ("waiting", "exited"))
        assert world.model.ledger.last("shell-reply:1", Fact.CALLED) is not None, world.told(ADA)
        assert world.model.ledger.last("shell-reply:1", Fact.RESULT) is None
