"""What a server serves: an ASGI application that can also say no, and end."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from synapse.core.errors import SynapseError
from synapse.dialects.dialect import WireAnswer
from synapse.transports.asgi import Receive, Scope, Send
from synapse.transports.http import HttpLimits


class ServedApp(Protocol):
    """An application: HttpApp, or something around one."""

    @property
    def limits(self) -> HttpLimits: ...

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]: ...

    def close(self) -> None:
        """End all streams."""
        ...

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        """Word an error for somebody whose bytes never became a whole request; `scope` is its head, if that came."""
        ...
