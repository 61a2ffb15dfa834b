"""Ports of this test process alone: for agents that are stopped and started again, and for ports that must be free.

An agent without `--port` gets one from its profile's range, and so do the agents of other tests, other test runs and
the developer on the same machine: while it is stopped, any of them may take its port. So may an outgoing connection,
if the port is an ephemeral one, which `bind(("127.0.0.1", 0))` finds.
"""

from __future__ import annotations

import socket
from functools import cache
from itertools import cycle
from random import sample

SIZE = 100
BLOCKS = range(24000, 32000, SIZE)
"""Above the ports that agents get by themselves, and below the ephemeral ones of Linux (32768) and macOS (49152)."""


def own_ports() -> range:
    """The ports that only this process uses."""
    marker = _marker()
    return range(marker.getsockname()[1], marker.getsockname()[1] + SIZE)


def own_port() -> int:
    """One of these ports, on which nothing listens; another one each time."""
    return next(port for port in _turns() if _is_free(port))


@cache
def _marker() -> socket.socket:
    """The UDP port with the number of the first: other test processes see it, and it goes when this process ends."""
    for first in sample(BLOCKS, len(BLOCKS)):
        marker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            marker.bind(("127.0.0.1", first))
        except OSError:
            marker.close()
            continue
        return marker
    raise AssertionError(f"{len(BLOCKS)} test processes run at once")


@cache
def _turns() -> cycle[int]:
    return cycle(own_ports())


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
