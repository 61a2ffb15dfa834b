"""`synapse top`: the overview of all agents in a terminal. With `--once` it prints the list and ends.

Textual is loaded only for the overview itself; `--once` needs the standard library alone.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from synapse.cli.output import print_failed, print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.tables import line_width
from synapse.client.fan_out import ask_all
from synapse.client.hosts import current_folder, open_registry, own_agent, state_folder
from synapse.client.overview import Row, in_order, row_of
from synapse.client.seen import mark_seen, seen_until
from synapse.config.process import SystemClock
from synapse.core.errors import InvalidRequest, SynapseError
from synapse.core.requests import MOST_FINISHED
from synapse.top.lines import cells_of, columns_for, glyphs_for, summary

if TYPE_CHECKING:
    from synapse.client.link import RemoteAgent

EXAMPLES = """
synapse top                       who is doing what, and who needs you; ? shows the keys
synapse top --once                print the list and exit
watch synapse top --once
synapse top --once --json | jq -r '.[] | select(.state == "asks") | .name'
"""
WIDEST = 160
"""The columns of a line where there is no terminal."""


def run_top(arguments: list[str]) -> int:
    """Shows the overview until the person leaves it, and returns the exit code."""
    parser = VerbParser("top", examples=EXAMPLES)
    parser.add_argument("--once", action="store_true", help="print the list and exit")
    options = parser.parse_args(arguments)
    if options.json and not options.once:
        parser.error("--json needs --once")
    return _print_rows(as_json=options.json) if options.once else _show()


def _print_rows(*, as_json: bool) -> int:
    registry, home, glyphs = open_registry(), state_folder(os.environ, current_folder()), glyphs_for(os.environ)
    replies = ask_all(registry.entries(), "GET", f"/status?finished={MOST_FINISHED}")
    rows = [
        row_of(reply.entry, reply.body or None, seen_until(home, reply.entry.agent_id), reply.error)
        for reply in replies
    ]
    rows = in_order([*rows, *_remote_rows(home)])
    for note in registry.notes:
        print_notice(note)
    if as_json:
        print_json(rows)
        return 0
    if not rows:
        print_notice("No agent is running. Start one with `synapse claude` or `synapse start codex`.")
    print_result(summary(rows, glyphs))
    columns = columns_for(rows, min(line_width(), WIDEST))
    now = SystemClock().now()
    for row in rows:
        cells = cells_of(row, columns, now, glyphs)
        print_result("".join(cell.text for cell in cells).rstrip())
    print_failed(home)
    return 0


def _remote_rows(home: str) -> list[Row]:
    """Returns the rows of agents on other machines, with what their machines tell of them; none without a fleet.

    Prints which machines are away: that nobody needs the person says nothing of them.
    """
    from synapse.client.link import fleet_agents, is_in_fleet
    from synapse.top.remote import missing

    if not is_in_fleet(home):
        return []
    agents: list[RemoteAgent] = []
    away: list[dict[str, Any]] = []
    problem: SynapseError | None = None
    try:
        agents, machines = fleet_agents(home)
        away = [one for one in machines if one.get("present") is False]
    except SynapseError as error:
        problem = error
    for line in missing(away, problem, SystemClock().now()):
        print_notice(line)
    return [row_of(entry, fields, seen_until(home, entry.agent_id), None) for entry, fields in agents]


def _show() -> int:
    """Runs the app in this terminal until the person leaves it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest("the overview needs a terminal", hint="synapse top --once prints the list")
    if os.environ.get("TERM", "dumb") == "dumb":
        raise InvalidRequest("this terminal (TERM=dumb) cannot show the overview", hint="synapse top --once")
    from synapse.config import process
    from synapse.config.settings import load_settings
    from synapse.net.hosts import open_host_client
    from synapse.notices.sender import open_notices
    from synapse.registry.local import open_local_registry
    from synapse.top.app import SeenMarks, TopApp
    from synapse.top.ending import ending_surely
    from synapse.top.notices import TerminalNotices
    from synapse.top.remote import RemoteEntries

    registry, clock = open_registry(), SystemClock()
    notices = open_notices(load_settings(), os.environ)
    home = state_folder(os.environ, current_folder())
    hosts = open_host_client(open_local_registry(registry.folder, clock.monotonic), clock, lambda: None)
    # An agent that runs this command does not see answers for its person.
    marks = own_agent(registry) is None

    def note_seen(agent_id: str, at: datetime) -> None:
        if marks:
            mark_seen(home, agent_id, at)

    remote = RemoteEntries(home, registry)
    app = TopApp(
        registry,
        remote.watching(hosts.watch_status),
        SeenMarks(partial(seen_until, home), note_seen),
        TerminalNotices(notices.rules, notices.log, clock, os.environ),
        clock,
        glyphs_for(os.environ),
        remote=remote.entries,
        missing=remote.missing,
    )
    with ending_surely(sys.stdin.fileno(), app.leave):
        process.run(app.run_async())
    hosts.close()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
