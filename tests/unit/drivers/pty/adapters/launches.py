"""A launch of a CLI, as the tests of adapters need it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from synapse.drivers.pty.adapters.adapter import LaunchContext, ToolServer

BOUND = 10.0
TOOLS = ToolServer(
    command=("/opt/bin/synapse", "mcp"),
    env={"SYNAPSE_AGENT_ID": "synapse-ada-8100", "SYNAPSE_MCP_WAIT": "580"},
    wait_seconds=580,
    allowed_commands=("synapse reply", "synapse send"),
)


def launch_in(
    folder: Path, env: dict[str, str] | None = None, command: str = "true", tools: ToolServer | None = None
) -> LaunchContext:
    return LaunchContext(
        folder=folder / "launch",
        url="http://127.0.0.1:8100/signals",
        secret_header="X-Secret",
        secret="s3cret",
        command=command,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", **(env or {})},
        working_dir=folder,
        flags_file=folder / "cli_flags.json",
        new_session="0f8b4c1e-0000-4000-8000-000000000001",
        start_command="synapse codex --name ada",
        started="2026-11-15T10:00:00.000Z",
        tools=tools or ToolServer(),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=0.01)
