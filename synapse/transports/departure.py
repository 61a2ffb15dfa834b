"""Whether the other side of a connection has hung up, asked without reading what it sent before."""

from __future__ import annotations

import asyncio
import select
from typing import Final

# Only Linux tells of an end that lies behind unread bytes; elsewhere it shows when both directions have ended.
_ENDS: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_left(transport: asyncio.BaseTransport) -> bool:
    """True when nothing more will come from there."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return True
    asked = select.poll()
    asked.register(connection.fileno(), _ENDS)
    return bool(asked.poll(0))
