"""What the agent of a wrapped program accepts, and the tools that its model is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.host.agent_command import command_path, launch_folder
from synapse.host.pty import acceptance_of, tools_for
from synapse.terminal.profile import parse_profile
from tests.unit.terminal.bundled import bundled

ENTRY = AgentEntry("synapse-claude-8101", "claude", port=8101, pid=1, socket="/run/s/a.sock")


def test_a_program_that_can_read_takes_parts_of_every_type_and_a_calculator_takes_texts() -> None:
    assistant = parse_profile({"command": ["claude"]}, "claude")
    calculator = parse_profile({"command": ["bc"], "envelope": False}, "bc")

    assert acceptance_of(assistant).media_types == ()
    assert acceptance_of(calculator).media_types == ("text/plain",)


def test_a_launch_has_a_server_that_knows_its_agent(tmp_path: Path) -> None:
    tools = tools_for(ENTRY, bundled("claude"), Settings(home=tmp_path), mcp=True)

    assert tools.command == (str(command_path(launch_folder(tmp_path, ENTRY.agent_id))), "mcp")
    assert Path(tools.command[0]).is_absolute()
    assert tools.env == {
        "SYNAPSE_AGENT_ID": ENTRY.agent_id,
        "SYNAPSE_SOCKET": ENTRY.socket,
        "SYNAPSE_HOME": str(tmp_path),
        "SYNAPSE_MCP_WAIT": "580",
    }
    assert tools.wait_seconds == 580


@pytest.mark.parametrize(("program", "mcp"), [("claude", False), ("dummy", True)])
def test_without_mcp_or_an_adapter_a_launch_has_no_server(tmp_path: Path, program: str, mcp: bool) -> None:
    tools = tools_for(ENTRY, bundled(program), Settings(home=tmp_path), mcp=mcp)

    assert (tools.command, tools.env) == ((), {})
    assert "synapse reply" in tools.allowed_commands


def test_a_setting_limits_how_long_a_call_waits(tmp_path: Path) -> None:
    tools = tools_for(ENTRY, bundled("codex"), Settings(home=tmp_path, mcp_wait=7.5), mcp=True)

    assert (tools.wait_seconds, tools.env["SYNAPSE_MCP_WAIT"]) == (7.5, "7.5")


def test_no_command_is_allowed_that_starts_a_program_or_decides(tmp_path: Path) -> None:
    tools = tools_for(ENTRY, bundled("claude"), Settings(home=tmp_path), mcp=True)
    none = tools_for(ENTRY, bundled("claude"), Settings(home=tmp_path, allow_commands=False), mcp=True)

    verbs = {command.removeprefix("synapse ") for command in tools.allowed_commands}
    assert verbs == {"reply", "send", "ask", "list", "status", "guide"}
    assert none.allowed_commands == ()
