"""Where a gateway listens, and how it is found: its own folder beside the registry, because it is no agent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse import __version__
from synapse.core.agent import AgentEntry
from synapse.core.clock import Clock
from synapse.core.errors import PortTaken
from synapse.registries.files import FileRegistry
from synapse.registries.processes import UNKNOWN, own_namespace, start_time
from synapse.runtime.access_settings import AccessSettings
from synapse.runtime.gateway_config import GatewayConfig
from synapse.runtime.loopback import is_loopback
from synapse.runtime.place import Place, take_socket
from synapse.runtime.settings import Settings
from synapse.transports.credentials import loopback_hosts
from synapse.transports.listener import bind_port
from synapse.transports.web_names import Addresses

GATEWAY: Final = "gateway"
FOLDER: Final = "gateways"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPlan:
    """What a gateway is started with."""

    config: GatewayConfig
    access: AccessSettings
    settings: Settings
    place: Place


def gateways(home: Path) -> FileRegistry:
    """The gateways of this user that run now."""
    return FileRegistry(home / FOLDER)


def take_gateway_place(config: GatewayConfig, settings: Settings, clock: Clock, *, tls: bool) -> Place:
    """Take the port, and a Unix socket for this user's own commands.

    Raises PortTaken or InvalidSettings.
    """
    try:
        tcp = bind_port(config.port, "127.0.0.1" if config.host == "localhost" else config.host)
    except PortTaken as error:
        raise _taken(config.port, gateways(settings.home)) from error
    try:
        port = tcp.getsockname()[1]
        agent_id = f"synapse-{GATEWAY}-{port}"
        unix = take_socket(agent_id, settings)
    except BaseException:
        tcp.close()
        raise
    entry = AgentEntry(
        agent_id,
        GATEWAY,
        port=port,
        pid=os.getpid(),
        pid_started=start_time(os.getpid()) or UNKNOWN,
        pid_namespace=own_namespace(),
        socket=str(unix.path),
        endpoint=config.public_url or own_url(config.host, port, tls=tls),
        working_dir=str(Path.cwd()),
        started_at=clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        version=__version__,
    )
    return Place(entry=entry, tcp=tcp, unix=unix)


def _taken(port: int, known: FileRegistry) -> PortTaken:
    if any(entry.port == port for entry in known.entries()):
        return PortTaken(
            f"port {port} is taken by a gateway that runs already",
            hint="`synapse stop gateway` ends it; a second one needs another --port and --grpc-port",
        )
    return PortTaken(f"port {port} is taken by another program", hint="choose another one with --port")


def own_url(host: str, port: int, *, tls: bool) -> str:
    """The address of a gateway that was given no public one."""
    return f"{'https' if tls else 'http'}://{'localhost' if is_loopback(host) else host}:{port}"


def gateway_addresses(config: GatewayConfig, url: str, port: int) -> Addresses:
    """What a gateway calls itself in its cards; a public address that was given counts alone."""
    if config.public_url:
        return Addresses(url)
    everywhere = config.host in _EVERYWHERE
    own = loopback_hosts(port) if everywhere or is_loopback(config.host) else frozenset({f"{config.host}:{port}"})
    return Addresses(url, own, behind_proxy=config.behind_proxy)


_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - only compared
