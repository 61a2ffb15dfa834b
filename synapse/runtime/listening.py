"""The host's HTTP side: its dialects on the Unix socket and the TCP port, with the gate in front.

Importing this file costs what uvicorn and the dialects cost; a host does it after its agent was started.
"""

from __future__ import annotations

import os
from typing import Final

from synapse.registries.files import FileRegistry
from synapse.runtime.file_limit import open_file_limit
from synapse.runtime.host_dialects import DialectChoice, host_dialects
from synapse.runtime.place import Place
from synapse.runtime.running_agent import RunningAgent
from synapse.runtime.settings import Settings
from synapse.runtime.token import own_token
from synapse.transports.acceptor import limits_within
from synapse.transports.credentials import Gate, loopback_hosts
from synapse.transports.http import HttpApp, HttpLimits, Service
from synapse.transports.server import Server

MOST_UNPROVEN: Final = 64
"""Connections of other users, who need the token to be heard."""
MOST_UNPROVEN_PER_USER: Final = 32


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
    limits = limits_within(open_file_limit(), unproven=MOST_UNPROVEN, per_source=MOST_UNPROVEN_PER_USER)
    return Server(app, [place.tcp, place.unix.socket], limits=limits)
