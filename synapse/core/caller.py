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

    @property
    def is_person(self) -> bool:
        """Nothing speaks for an agent. Only the socket tells whose process calls, so nobody is a person elsewhere."""
        return self.via_socket and not self.agent_id
