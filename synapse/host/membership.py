"""What a person says of an agent at its start: what it is for, its team, and who may send messages to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidRequest
from synapse.tasks.senders import THE_TEAM, check_accepts

ROLE: Final = "--role"
TEAM: Final = "--team"
ACCEPT_FROM: Final = "--accept-from"
MAX_ROLE: Final = 8000
"""The most characters of a role: it is part of the agent's first message, and of its card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The role of an agent, its team, and the senders that it accepts; no senders means that it accepts all."""

    role: str = ""
    team: str = ""
    accepts: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """Returns the options of the host's command line. Joined by `=`, because a role may begin with `-`."""
        return [
            *([f"{ROLE}={self.role}"] if self.role else []),
            *([f"{TEAM}={self.team}"] if self.team else []),
            *(f"{ACCEPT_FROM}={sender}" for sender in self.accepts),
        ]

    def write_to(self, entry: AgentEntry) -> None:
        """Writes the membership into the agent's registry entry."""
        entry.role, entry.team, entry.accepts = self.role, self.team, " ".join(self.accepts)


NO_MEMBERSHIP: Final = Membership()


def membership_of(entry: AgentEntry) -> Membership:
    """Returns the membership in an agent's registry entry."""
    return Membership(role=entry.role, team=entry.team, accepts=tuple(entry.accepts.split()))


def new_membership(role: str, team: str, accepts: Sequence[str]) -> Membership:
    """Returns the membership that a person asks for.

    Raises InvalidRequest for a role that is too long, and for senders that are none.
    """
    if len(role) > MAX_ROLE:
        raise InvalidRequest(f"the role has {len(role)} characters", hint=f"it may have {MAX_ROLE}")
    check_accepts(accepts)
    if THE_TEAM in accepts and not team:
        raise InvalidRequest(
            f"{ACCEPT_FROM} {THE_TEAM}: the agent is of no team", hint="name the agents; `synapse up` starts a team"
        )
    return Membership(role=role.strip(), team=team, accepts=tuple(accepts))
