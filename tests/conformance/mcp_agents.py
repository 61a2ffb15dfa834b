"""A scripted agent for clients of MCP at a real gateway: it answers at once, late or never, and asks back."""

from __future__ import annotations

from pathlib import Path

SCRIPT = """
[[rule]]
text = "/^slow/"
steps = [{ state = "working" }, { wait = 5.5 }, { answer = "at last: {text}" }]

[[rule]]
text = "/^brief/"
steps = [{ state = "working" }, { wait = 0.5 }, { answer = "soon: {text}" }]

[[rule]]
text = "/^ask me/"
steps = [{ ask = "Which one?" }, { answer = "done: {text}" }]

[[rule]]
text = "/^never/"
steps = [{ state = "working" }, { wait = 600 }]

[default]
steps = [{ answer = "{text}" }]
"""


def mcp_config(home: Path, *, more: str = "") -> str:
    """Writes the script into `home`; returns the settings of a gateway that runs it as `tck`."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "tools.toml").write_text(SCRIPT, encoding="utf-8")
    return f'{more}\n[[agents]]\nid = "tck"\ndriver = "scripted"\nscript = "{home / "tools.toml"}"\n'
