"""What hooks of the agent's own CLI report to the host, and who may."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import AccessDenied, UnsupportedOperation
from synapse.core.message import Json
from synapse.core.requests import ReportSignal


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDoor:
    """Where reports go, and the secret of the launch that they bring."""

    secret: str
    receive: Callable[[Json], asyncio.Future[Json] | None]
    """Takes a report; returns what its hook is answered, where it waits for that."""


class HookReports:
    """Takes reports for one agent. Without a door its CLI has no hooks."""

    def __init__(self, me: AgentEntry, door: HookDoor | None) -> None:
        self._me = me
        self._door = door

    async def take(self, request: ReportSignal, caller: Caller) -> Any:
        """Pass a report on; return what its hook is answered, as soon as that is known: nothing, or a future.

        Raises:
            UnsupportedOperation: nobody listens.
            AccessDenied: it does not come from the agent's own CLI.
        """
        if self._door is None:
            raise UnsupportedOperation("this agent's CLI reports nothing by hooks")
        # On the Unix socket the kernel proves the agent; a connection on the port proves only the user.
        is_own = caller.agent_id == self._me.agent_id or self._brings_secret(request.secret)
        if not is_own:
            raise AccessDenied("only the agent's own CLI reports here")
        return self._door.receive(request.payload)

    def _brings_secret(self, given: str) -> bool:
        return self._door is not None and hmac.compare_digest(given.encode(), self._door.secret.encode())
