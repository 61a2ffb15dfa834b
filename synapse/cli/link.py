"""`synapse link`: runs this machine's link to its fleet, in the foreground."""

from __future__ import annotations

from argparse import SUPPRESS
from typing import TYPE_CHECKING

from synapse.cli.output import print_notice
from synapse.cli.parser import VerbParser
from synapse.cli.person import launch_settings, objection, require_deciding_person

if TYPE_CHECKING:
    from synapse.config.fleet import FleetConfig
    from synapse.core.agent import AgentEntry

EXAMPLES = """
synapse link                      until Ctrl-C; `synapse fleet join` starts it in the background
synapse service install link      start it with the machine
synapse fleet status              whether it runs, and which machines are there
synapse logs synapse-link         what it did
"""


def run_link(arguments: list[str]) -> int:
    """Runs the link until Ctrl-C or a signal; returns the exit code."""
    parser = VerbParser("link", examples=EXAMPLES, json=False)
    for hidden in ("--headless", "--json"):
        parser.add_argument(hidden, action="store_true", help=SUPPRESS)
    options = parser.parse_args(arguments)
    if objection():
        require_deciding_person("start the link of this machine", judges_starter=options.headless)
    settings = launch_settings()
    from synapse.config import process
    from synapse.config.systemd import take_notifier
    from synapse.link import link

    notify_ready = take_notifier()

    def introduce(_entry: AgentEntry, config: FleetConfig) -> None:
        if not options.headless:
            print_notice(f"This machine is {config.machine} in the fleet {config.fleet}  (Ctrl-C ends the link)")
        notify_ready(f"{config.machine} in the fleet {config.fleet}")

    process.log_to(settings.logs, link.LINK)
    process.run(link.run_link(settings, introduce))
    if not options.headless:
        print_notice("The link has ended.")
    return 0
