"""The event loop of a host."""

from __future__ import annotations

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop: about twice as fast as the standard one for what a host does."""
    import uvloop  # noqa: PLC0415 - only a host pays for it

    return uvloop.new_event_loop()
