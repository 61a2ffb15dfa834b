"""The event loop of hosts, and of commands that read the store."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine, as `asyncio.run` does.

    The standard loop is woken from other threads by a socket, on which a sandbox may forbid to send: it would never
    learn that the store has answered.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop: about twice as fast as the standard one for what a host does."""
    import uvloop  # noqa: PLC0415 - only those who need it pay for it

    return uvloop.new_event_loop()
