"""What a wire can do: read a request, and word an answer as a stream or in one piece."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from synapse.calibration.acts import Refuse
from synapse.calibration.asked import Asked, Body
from synapse.calibration.tool_calls import ToolCall


class Wire(Protocol):
    """One vendor's API. `number` makes the ids of an answer unique."""

    def read(self, body: Body, path: str, /) -> Asked: ...

    def say(self, asked: Asked, pieces: Iterator[str], number: int, /) -> Iterator[bytes]:
        """The events of a streamed text; a piece is asked for when the one before it was sent."""
        ...

    def call(self, asked: Asked, call: ToolCall, number: int, /) -> Iterator[bytes]:
        """The events of a streamed tool call."""
        ...

    def whole(self, asked: Asked, text: str, number: int, /) -> dict[str, Any]:
        """A text that is not streamed."""
        ...

    def refuse(self, refusal: Refuse, /) -> dict[str, Any]:
        """The body of an error."""
        ...


def server_event(data: dict[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
