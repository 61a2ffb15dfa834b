"""`synapse gateway`: serves all agents at one address, in the foreground."""

from __future__ import annotations

import os
from argparse import SUPPRESS, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from synapse.cli.output import print_notice
from synapse.cli.parser import VerbParser
from synapse.cli.person import launch_settings, objection, require_deciding_person
from synapse.cli.trust import settings_here
from synapse.client.hosts import current_folder
from synapse.config.settings import Settings, load_home
from synapse.services.consent import is_installed_gateway

if TYPE_CHECKING:
    from synapse.gateway.config import GatewayPlan
    from synapse.gateway.gateway import Gateway

EXAMPLES = """
synapse gateway
synapse gateway --port 9000 --config gateway.toml
synapse gateway --no-auth                        this machine only, to try it out
synapse keys create my-laptop                    create a key for a caller
synapse start gateway                            in the background; `synapse stop gateway` stops it
"""
START_ACTION = "start a gateway"


def run_gateway(arguments: list[str]) -> int:
    """Serves until Ctrl-C or `synapse stop gateway`; returns the exit code."""
    parser = VerbParser("gateway", examples=EXAMPLES, json=False)
    add_gateway_options(parser)
    # `synapse start gateway` adds these; it reads the errors as JSON.
    for hidden in ("--headless", "--json"):
        parser.add_argument(hidden, action="store_true", help=SUPPRESS)
    options = parser.parse_args(arguments)
    # A service has no terminal; the person ran `synapse service install` in theirs.
    if objection() or not is_installed_gateway(load_home(os.environ, current_folder()), arguments):
        # Nor has a gateway in the background; the person ran `synapse start gateway` in theirs.
        require_deciding_person(START_ACTION, judges_starter=options.headless)
    plan = _plan(options, settings_here(load=launch_settings, asks=not options.headless))
    from synapse.config import process
    from synapse.config.systemd import take_notifier
    from synapse.gateway.gateway import run_gateway

    notify_ready = take_notifier()

    def introduce(gateway: Gateway) -> None:
        _introduce(gateway)
        notify_ready(f"Listening on {gateway.url}")

    process.log_to(plan.settings.logs, plan.identity.entry.agent_id)
    process.run(run_gateway(plan, introduce))
    if not options.headless:
        print_notice("The gateway has stopped.")
    return 0


def add_gateway_options(parser: VerbParser) -> None:
    """Adds the options of a gateway, for the foreground and the background."""
    parser.add_argument("--host", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="the HTTP port (8000)")
    parser.add_argument("--grpc-port", type=int, metavar="PORT", help="the gRPC port (8001)")
    parser.add_argument("--config", metavar="FILE", help="the settings file (gateway.toml in the state folder)")
    parser.add_argument("--public-url", metavar="URL", help="the address that agent cards show")
    parser.add_argument(
        "--no-auth", action="store_true", help="accept callers of this machine without a key; loopback only"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="the TLS certificate (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key (PEM)")
    parser.add_argument("--behind-proxy", action="store_true", help="a proxy in front terminates TLS")


def _plan(options: Namespace, settings: Settings) -> GatewayPlan:
    from synapse.auth.settings import ACCESS_KEYS, check_exposure, read_access
    from synapse.config.process import SystemClock
    from synapse.gateway.autostart import check_startable
    from synapse.gateway.config import FILE, GatewayPlan, load_config, require_file, reserve_gateway

    path = Path(options.config).absolute() if options.config else settings.home / FILE
    if options.config:
        require_file(path)
    names = ("host", "port", "grpc_port", "public_url")
    switches = {name: True for name in ("no_auth", "behind_proxy") if getattr(options, name)}
    config = load_config(path, {**{name: getattr(options, name) for name in names}, **switches})
    check_startable(config.agents, path)
    access = read_access({key: value for key in ACCESS_KEYS if (value := getattr(config, key))}, path)
    access = replace(access, no_auth=config.no_auth)
    if options.tls_cert or options.tls_key:
        access = replace(access, tls_cert=_file(options.tls_cert), tls_key=_file(options.tls_key))
    check_exposure(config.host, access)
    if config.allow_private_webhooks:
        settings = replace(settings, allow_private_webhooks=True)
    identity = reserve_gateway(config, settings, SystemClock(), tls=access.tls_cert is not None)
    return GatewayPlan(config=config, access=access, settings=settings, identity=identity)


def _file(name: str | None) -> Path | None:
    return Path(name).absolute() if name else None


def _introduce(gateway: Gateway) -> None:
    """Prints the gateway's addresses, its agents, and what to do next."""
    agents = ", ".join(agent.name for agent in gateway.directory.agents()) or "none yet"
    print_notice(f"Gateway listening on {gateway.url}, and gRPC at {gateway.grpc_url}  (Ctrl-C stops it)")
    print_notice(f"Agents: {agents}")
    if gateway.auth.methods.api_keys:
        print_notice("Callers need a key:  synapse keys create NAME")
    print_notice("In a browser:  synapse dashboard")
