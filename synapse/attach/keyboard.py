"""The keys of somebody who looks on: what their terminal answers by itself is not among them.

The program's queries reach every terminal that shows it, and each would answer. One answer is right, and the agent's
own terminal has given it already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from synapse.terminal.keys import Key, KeyParser, Kind

_ESCAPE_SECONDS: Final = 0.05
"""A sequence that is cut comes whole within this time, or it was the Escape key."""


class Keyboard:
    """Passes a viewer's keys on, without the answers of their terminal."""

    def __init__(self, pass_on: Callable[[bytes], None]) -> None:
        self._pass_on = pass_on
        self._parser = KeyParser()
        self._timer: asyncio.TimerHandle | None = None

    def receive(self, data: bytes) -> None:
        self.close()
        self._pass(self._parser.feed(data))
        if self._parser.pending:
            self._timer = asyncio.get_running_loop().call_later(_ESCAPE_SECONDS, self._flush)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        self._pass(self._parser.flush())

    def _pass(self, keys: list[Key]) -> None:
        data = b"".join(key.raw for key in keys if key.kind is not Kind.REPORT)
        if data:
            self._pass_on(data)
