"""The host's HTTP side: its dialects on the Unix socket and the TCP port, with the gate in front.

Importing this file costs what uvicorn and the dialects cost; a host does it after its agent was started.
"""

from __future__ import annotations

import os

from synapse.registries.files import FileRegistry
from synapse.runtime.host_dialects import DialectChoice, host_dialects
from synapse.runtime.place import Place
from synapse.runtime.running_agent import RunningAgent
from synapse.runtime.settings import Settings
from synapse.runtime.token import own_token
from synapse.transports.credentials import Gate, loopback_hosts
from synapse.transports.http import HttpApp, HttpLimits, Service
from synapse.transports.server import Server


def open_server(
    place: Place, agent: RunningAgent, service: Service, registry: FileRegistry, settings: Settings
) -> Server:
    """Return the server of a host; it listens already, and answers once it is served."""
    entry = place.entry
    dialects = host_dialects(
        entry, title=agent.title, pty_wrapped=agent.pty_wrapped, advertise_0_3=settings.advertise_0_3
    )
    gate = Gate(
        uid=os.getuid(),
        hosts=loopback_hosts(entry.port),
        # Ourselves in any case: our file is not there yet, and somebody may remove it.
        entries=lambda: (*registry.entries(), entry),
        token=own_token(settings.home),
        terminal_decides=settings.terminal_decides,
    )
    app = HttpApp(
        service,
        dialects,
        admit=gate.admit,
        choose=DialectChoice(dialects),
        websockets=agent.websockets,
        limits=HttpLimits(max_body_bytes=settings.max_body_bytes),
    )
    return Server(app, [place.tcp, place.unix.socket])
