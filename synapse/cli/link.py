"""`synapse link`: runs this machine's link to its fleet, in the foreground."""

from __future__ import annotations

from argparse import SUPPRESS
from typing import TYPE_CHECKING, Final

from synapse.cli.output import print_notice
from synapse.cli.parser import VerbParser
from synapse.cli.person import launch_settings, objection, require_deciding_person
from synapse.core.errors import CommandMissing

if TYPE_CHECKING:
    from synapse.config.fleet import FleetConfig
    from synapse.core.agent import AgentEntry

EXAMPLES = """
synapse link                      until Ctrl-C; `synapse fleet join` starts it in the background
synapse service install link      start it with the machine
synapse fleet status              whether it runs, and which machines are there
synapse logs synapse-link         what it did
"""
INSTALL_HINT: Final = "pip install 'synapse-a2a[fleet]'   (with the server: 'synapse-a2a[fleet-server]')"


def run_link(arguments: list[str]) -> int:
    """Runs the link until Ctrl-C or a signal; returns the exit code."""
    parser = VerbParser("link", examples=EXAMPLES, json=False)
    for hidden in ("--headless", "--json"):
        parser.add_argument(hidden, action="store_true", help=SUPPRESS)
    options = parser.parse_args(arguments)
    if objection():
        require_deciding_person("start the link of this machine", judges_starter=options.headless)
    require_nats()
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


def require_nats(hint: str = INSTALL_HINT) -> None:
    """Raises CommandMissing if the packages of the extra `fleet` are not installed."""
    try:
        __import__("nats")
        __import__("nkeys")
    except ImportError as error:
        raise CommandMissing(
            f"a fleet needs the package {error.name or 'nats'}, which is not installed",
            hint=hint,
        ) from error
