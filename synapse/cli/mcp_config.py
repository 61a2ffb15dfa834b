"""`synapse mcp config`: prints the entry by which a desktop app or an IDE starts the tool server of a person."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any, Final

from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import ActionParser, VerbParser

EXAMPLES = """
synapse mcp                          serve the tools on standard input and output; apps and agents start it
synapse mcp config claude-desktop    print the entry for an app
synapse mcp config vscode --json     the entry, and the file that it belongs to
"""


@dataclass(frozen=True, slots=True)
class App:
    """An app that starts MCP servers: its file, the key that holds them there, and whether an entry names its type."""

    file: str
    servers: str
    names_type: bool = False


APPS: Final = {
    "claude-desktop": App(
        "~/Library/Application Support/Claude/claude_desktop_config.json"
        if sys.platform == "darwin"
        else "~/.config/Claude/claude_desktop_config.json",
        "mcpServers",
    ),
    "vscode": App(".vscode/mcp.json", "servers", names_type=True),
    "cursor": App("~/.cursor/mcp.json", "mcpServers"),
}


def run_mcp_action(arguments: list[str]) -> int:
    """Prints the entry of an app and returns the exit code."""
    parser = VerbParser("mcp", examples=EXAMPLES, json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=ActionParser)
    summary = "print the entry for an app's list of MCP servers"
    config = actions.add_parser("config", help=summary, summary=summary, examples=EXAMPLES)
    config.add_argument("app", choices=sorted(APPS))
    options = parser.parse_args(arguments)
    app = APPS[options.app]
    entry = {app.servers: {"synapse": server_entry(app)}}
    if options.json:
        print_json({"app": options.app, "file": app.file, "entry": entry})
        return 0
    print_result(json.dumps(entry, indent=2, ensure_ascii=False))
    print_notice(f"Add this to {app.file}, beside the servers that are there, and restart the app.")
    return 0


def server_entry(app: App) -> dict[str, Any]:
    """Returns the app's entry for this installation, by absolute path: apps do not read a shell's PATH."""
    entry: dict[str, Any] = {"type": "stdio"} if app.names_type else {}
    script = os.path.join(os.path.dirname(sys.executable), "synapse")
    if os.access(script, os.X_OK):
        entry |= {"command": script, "args": ["mcp"]}
    else:
        entry |= {"command": sys.executable, "args": ["-P", "-m", "synapse.cli.main", "mcp"]}
    if os.environ.get("SYNAPSE_HOME"):
        # Without it the app would look for agents in another place than this shell.
        entry["env"] = {"SYNAPSE_HOME": os.path.abspath(os.path.expanduser(os.environ["SYNAPSE_HOME"]))}
    return entry
