"""The agents that have hosts of their own, as a gateway sees them: who is in the registry, asked over Unix sockets."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Final

import msgspec

from synapse.core.agent import EXITED, AgentEntry
from synapse.core.caller import Caller
from synapse.core.clock import Clock
from synapse.core.errors import AgentNotResponding, OutcomeUnknown
from synapse.core.extension import from_text
from synapse.core.requests import Commanded, Request, SendMessage
from synapse.dialects.synapse.commands import PATH, decode_done, decode_failure, encode_command
from synapse.registries.files import FileRegistry
from synapse.service.gateway_directory import GatewayAgent
from synapse.transports.client import NoAnswer
from synapse.transports.host_client import HostClient

FRESH_SECONDS: Final = 1.0
"""How long it is believed that a host lives which has not taken its entry away."""
STATUS_SECONDS: Final = 2.0


class HostAgents:
    """Implements `AgentSource` over the registry. Reading it costs a file for each agent, so that is done only when
    the folder has changed, and once a second for hosts that could not say goodbye. Those that live in the gateway `me`
    itself are no hosts.
    """

    def __init__(self, registry: FileRegistry, client: HostClient, clock: Clock, *, me: str) -> None:
        self._me = me
        self._registry = registry
        self._folder = registry.folder
        self._client = client
        self._clock = clock
        self._agents: tuple[GatewayAgent, ...] = ()
        self._changed = 0
        self._read_at = float("-inf")

    def __call__(self) -> tuple[GatewayAgent, ...]:
        now, changed = self._clock.monotonic(), _changed(self._folder)
        if changed != self._changed or now - self._read_at > FRESH_SECONDS:
            self._agents = tuple(self._agent(one) for one in self._registry.entries() if one.gateway != self._me)
            self._changed, self._read_at = changed, now
        return self._agents

    def _agent(self, entry: AgentEntry) -> GatewayAgent:
        return GatewayAgent(
            entry=entry,
            command=partial(self._command, entry),
            state=partial(self._state, entry),
            extensions=from_text(entry.extensions),
        )

    async def _command(self, entry: AgentEntry, request: Request, caller: Caller) -> Commanded:
        try:
            answer = await self._client.ask(entry.socket, "POST", PATH, encode_command(request, caller))
            if answer.status >= 400:
                raise decode_failure(answer.body)
            return decode_done(answer.body)
        except (NoAnswer, ValueError) as silence:
            # Whoever asks next looks into the registry again.
            self._read_at = float("-inf")
            if isinstance(silence, NoAnswer) and not silence.sent:
                raise AgentNotResponding(entry.agent_id, entry.port, entry.agent_type) from silence
            message_id = request.message.message_id if isinstance(request, SendMessage) else ""
            raise OutcomeUnknown(entry.agent_id, entry.port, entry.agent_type, message_id) from silence

    async def _state(self, entry: AgentEntry) -> str:
        try:
            answer = await self._client.ask(entry.socket, "GET", "/status", seconds=STATUS_SECONDS)
            status: dict[str, Any] = msgspec.json.decode(answer.body, type=dict[str, Any])
        except (NoAnswer, ValueError):
            return EXITED
        return str(status.get("state", EXITED))


def _changed(folder: str) -> int:
    try:
        # Each request comes by here more than once, and `Path.stat` takes half as long again.
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - see above
    except OSError:
        return 0
