"""Who asks: proven by the connection, not claimed in the request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOCAL_SCOPE: Final = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The one on whose behalf a request runs.

    `agent_id` is set when the process ancestry of the connecting pid proves an agent. `scope` says whose tasks it sees.
    """

    scope: str = LOCAL_SCOPE
    agent_id: str = ""
    pid: int = 0
    via_socket: bool = False

    @property
    def is_agent(self) -> bool:
        return bool(self.agent_id)
