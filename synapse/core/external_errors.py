"""What can go wrong with the addresses of agents from elsewhere; the same tree as `core.errors`.

InvalidRequest
└── InvalidField
    └── NoAgentThere              somebody registers an address where no agent is found
AgentFailed
└── ExternalAgentFailed
    └── ExternalAddressRefused    an agent that was registered leads to an address that is not called
"""

from __future__ import annotations

from synapse.core.errors import ExternalAgentFailed
from synapse.core.wire_errors import InvalidField


class NoAgentThere(InvalidField):
    """No agent was found at the address that was given."""

    code = "no_agent_there"

    def __init__(self, why: str, *, hint: str = "") -> None:
        super().__init__("url", why, hint=hint)


class ExternalAddressRefused(ExternalAgentFailed):
    """The external agent leads to an address that is not called."""

    code = "external_address_refused"
