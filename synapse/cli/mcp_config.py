"""The actions of `synapse mcp`: entries for apps that start the tool server, and its installation in a CLI.

`config` prints the entry by which a desktop app or an IDE starts the tool server of a person; `install` and `uninstall`
are in `cli.mcp_install`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any, Final

from synapse.cli.mcp_install import CLIS, change_extension, installable
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import ActionParser, VerbParser

EXAMPLES = """
synapse mcp                          serve the tools on standard input and output; apps and agents start it
synapse mcp config claude-desktop    print the entry for an app
synapse mcp config vscode --json     the entry, and the file that it belongs to
synapse mcp install gemini           give Gemini CLI the tools by an extension, because its launch takes none
synapse mcp uninstall gemini         remove that extension
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
    """Prints the entry of an app, or installs the server in a CLI; returns the exit code."""
    parser = VerbParser("mcp", examples=EXAMPLES, json=False)
    # argparse would show the action as required; without one, `cli.mcp` serves.
    parser.usage = "synapse mcp [-h] [ACTION ...]"
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=ActionParser, prog="synapse mcp"
    )
    summary = "print the entry for an app's list of MCP servers"
    config = actions.add_parser("config", help=summary, summary=summary, examples=EXAMPLES)
    config.add_argument("app", choices=sorted(APPS))
    for action, summary in (
        ("install", "give the tools to a CLI that takes none at launch: gemini"),
        ("uninstall", "remove what `install` has written"),
    ):
        changing = actions.add_parser(action, help=summary, summary=summary, examples=EXAMPLES)
        changing.add_argument("cli", type=installable, metavar="CLI", help=" or ".join(CLIS))
    options = parser.parse_args(arguments)
    if options.action != "config":
        install = options.action == "install"
        return change_extension(options.cli, os.environ, server_command(), install=install, as_json=options.json)
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
    program, *words = server_command()
    entry |= {"command": program, "args": words}
    if os.environ.get("SYNAPSE_HOME"):
        # Without it the app would look for agents in another place than this shell.
        entry["env"] = {"SYNAPSE_HOME": os.path.abspath(os.path.expanduser(os.environ["SYNAPSE_HOME"]))}
    return entry


def server_command() -> tuple[str, ...]:
    """Returns the command that runs the server of this installation."""
    script = os.path.join(os.path.dirname(sys.executable), "synapse")
    if os.access(script, os.X_OK):
        return script, "mcp"
    return sys.executable, "-P", "-m", "synapse.cli.main", "mcp"
