"""What a person has decided about permissions and MCP servers holds beside the tools of a launch: Claude and Codex."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from synapse.calibration.model_server import Fact
from synapse.calibration.scripted_model import CallTool, SayText, Use
from tests.real_clis.benches import eventually
from tests.real_clis.test_tools import ADA, BOB, THEIRS, Row, World, finished, world_of

DENY = json.dumps({"permissions": {"deny": ["mcp__synapse__send"], "allow": ["Bash(ls)"]}})
NO_HOOKS = json.dumps({"disableAllHooks": True})
SHELL = {
    "synapse list": False,
    "synapse reply 'a b'": False,
    "synapse list > made": True,
    "synapse reply x && touch made": True,
    'synapse send bob "$(touch made)"': True,
    "synapse send bob - < /etc/hostname": True,
    "synapse send bob --file=/etc/hostname": False,
    "TMPDIR=/etc synapse send bob --file /etc/hostname": True,
    "synapse stop --all": True,
}
"""Each command, and whether a person is asked for it."""


def own_server(home: Path, tool: str = "note") -> tuple[str, ...]:
    """Writes a person's own MCP server with one tool; returns its command."""
    file = home / "theirs.py"
    file.write_text(THEIRS.replace('"note"', f'"{tool}"'), encoding="utf-8")
    return (sys.executable, str(file))


def outcome(world: World, scene: str) -> Fact | None:
    """Plays a scene; returns the first result, that the tool was lacking, or None if a person is asked."""
    ledger, turn = world.model.ledger, f"{scene}:1"
    world.send(ADA, scene)

    def ended() -> Fact | None:
        entry = ledger.last(turn, Fact.RESULT, Fact.LACKED)
        return entry.fact if entry else None

    eventually(lambda: ended() is not None or world.state(ADA) == "waiting")
    return ended()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "args", [("--disallowedTools", "mcp__synapse__send"), ("--settings", DENY)], ids=["flag", "settings"]
)
def test_a_tool_that_a_person_denies_to_claude_stays_denied(args: tuple[str, ...]) -> None:
    with world_of("claude") as world:
        world.start(Row("claude", args), ADA, "--no-instructions")

        assert outcome(world, "consult") is Fact.LACKED
        assert world.sandbox.synapse("send", ADA, "calibrate:reply:1 please", "--response").code == 0


@pytest.mark.timeout(240)
def test_claude_asks_for_a_tool_if_the_person_wants_to_be_asked() -> None:
    with world_of("claude") as world:
        settings = world.sandbox.home / ".claude" / "settings.json"
        settings.write_text(json.dumps({"permissions": {"ask": ["mcp__synapse__send"]}}), encoding="utf-8")
        world.start(Row("claude"), ADA, "--no-instructions")

        assert outcome(world, "consult") is None


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "args", [("--settings", NO_HOOKS), ("--allowedTools", "Edit", "Bash(ls:*)"), ("--strict-mcp-config",)]
)
def test_claude_has_the_tools_whatever_else_it_is_given(args: tuple[str, ...]) -> None:
    with world_of("claude") as world:
        world.start_echo(BOB)
        world.start(Row("claude", args), ADA, "--no-instructions")

        finished(world, ADA, world.send(ADA, "consult"))

        assert world.model.ledger.last("consult:1", Fact.RESULT) is not None


@pytest.mark.timeout(240)
def test_claude_runs_only_the_narrow_commands_unasked() -> None:
    scenes = {
        f"command-{letter}": (CallTool(Use.SHELL, command), SayText(("It was ", "run.")))
        for letter, command in zip("abcdefghi", SHELL, strict=True)
    }
    with world_of("claude", scenes=scenes) as world:
        world.start(Row("claude"), ADA, "--no-instructions")
        for scene, (command, is_asked) in zip(scenes, SHELL.items(), strict=True):
            asked = outcome(world, scene) is None

            assert asked == is_asked, command
            if "--file" in command and not asked:
                refused = world.model.ledger.last(f"{scene}:1", Fact.RESULT)
                assert refused is not None
                assert "'/etc/hostname' is not a file inside" in refused.text
            if asked:
                eventually(lambda: world.sandbox.synapse("deny", ADA).code == 0)
            eventually(lambda: world.state(ADA) == "ready")

        assert not (world.sandbox.project / "made").exists()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", ["file", "arguments"])
def test_a_server_of_codex_that_is_named_like_ours_is_left_alone_and_asked_for(place: str) -> None:
    with world_of("codex") as world:
        program, *words = own_server(world.sandbox.home, "send")
        server = f"{{command={json.dumps(program)},args={json.dumps(words)}}}"
        args: tuple[str, ...] = ()
        if place == "file":
            config = world.sandbox.home / ".codex" / "config.toml"
            config.write_text(
                f"{config.read_text(encoding='utf-8')}\n[mcp_servers]\nsynapse = {server}\n", encoding="utf-8"
            )
        else:
            args = ("-c", f"mcp_servers.synapse={server}")
        world.start(Row("codex", args), ADA, "--no-instructions")

        assert outcome(world, "consult") is None
        assert not (world.sandbox.project / "made-by-theirs").exists()
        tools = world.sandbox.ask("/status")["tools"]
        assert (tools["mcp"], "named synapse, which is left alone" in tools["why"]) == ("off", True)


@pytest.mark.timeout(240)
def test_a_whole_table_of_servers_in_the_arguments_of_codex_does_not_replace_ours() -> None:
    with world_of("codex") as world:
        program, *words = own_server(world.sandbox.home)
        table = f"mcp_servers={{theirs={{command={json.dumps(program)},args={json.dumps(words)}}}}}"
        world.start_echo(BOB)
        world.start(Row("codex", ("-c", table)), ADA, "--no-instructions")

        finished(world, ADA, world.send(ADA, "consult"))

        assert world.model.ledger.last("consult:1", Fact.RESULT) is not None
        assert outcome(world, "theirs") is None
