"""What the OpenAPI document says in words about each request, and of which shape its body or its query is.

A request is named by its method and its path, without the names of the parameters: dialects that share a path may
call them differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from synapse.dialects.a2a_v0_3 import paths as former_paths
from synapse.dialects.a2a_v0_3 import shapes as former
from synapse.dialects.a2a_v1 import paths as current_paths
from synapse.dialects.a2a_v1 import shapes as current
from synapse.dialects.hub import paths as hub_paths
from synapse.dialects.hub import shapes as hub
from synapse.dialects.supervisor import paths as supervisor_paths
from synapse.dialects.supervisor import shapes as supervisor
from synapse.transports.probes import HEALTH_PATH, READY_PATH

_V1: Final = "/agents/{}/v1"
OPERATIONS: Final = "operations"
"""What the paths for whoever keeps the gateway running are called together."""
PROBES: Final[Mapping[str, str]] = {
    HEALTH_PATH: "Whether the process answers.",
    READY_PATH: "Whether requests can be served now.",
}

SENTENCES: Final[Mapping[str, str]] = {
    f"POST {_V1}/message:send": "Send a message to the agent, or more for a task that asks.",
    f"POST {_V1}/message:stream": "Send a message, and follow what comes of it.",
    f"GET {_V1}/tasks": "The tasks of the agent, the last changed first.",
    f"GET {_V1}/tasks/{{}}": "One task.",
    f"POST {_V1}/tasks/{{}}:cancel": "Stop a task.",
    f"GET {_V1}/tasks/{{}}:subscribe": "Follow a task; `Last-Event-ID` goes on after an event.",
    f"POST {_V1}/tasks/{{}}:subscribe": "Follow a task; `Last-Event-ID` goes on after an event.",
    f"POST {_V1}/tasks/{{}}/pushNotificationConfigs": "Tell a webhook what happens to the task.",
    f"GET {_V1}/tasks/{{}}/pushNotificationConfigs": "The webhooks of the task.",
    f"GET {_V1}/tasks/{{}}/pushNotificationConfigs/{{}}": "One webhook of the task.",
    f"DELETE {_V1}/tasks/{{}}/pushNotificationConfigs/{{}}": "Tell the webhook nothing more.",
    f"GET {_V1}/card": "The agent's card, for callers who are known.",
    f"GET {_V1}/extendedAgentCard": "The agent's card, for callers who are known.",
    f"GET {_V1}/.well-known/agent-card.json": "The agent's card.",
    "GET /agents/{}/.well-known/agent-card.json": "The agent's card.",
    "GET /.well-known/agent-card.json": "The card of the default agent.",
    "GET /.well-known/agent-cards/{}": "The agent's card; the name may end in `.json`.",
    f"POST {_V1}": "JSON-RPC of A2A 1.0 and 0.3: the method tells which.",
    "POST /agents/{}": "JSON-RPC of A2A 1.0 and 0.3: the method tells which.",
    "GET /agents/list.json": "Who is here.",
    "GET /agents": "Who is here, by their cards.",
    "GET /agents/{}": "The card of one agent.",
    "POST /agents": "Register an agent from elsewhere, by the address of its card.",
    "DELETE /agents/{}": "Forget an agent from elsewhere.",
    "POST /agents/{}/messages": "Send a message; with `stream` the answer is a stream.",
    "GET /messages/{}": "A message by its id, with the task that it belongs to.",
    "GET /tasks": "The tasks of all agents, the last changed first.",
    "GET /tasks/{}": "One task; with `Accept: text/event-stream` all that comes of it.",
    "PUT /tasks/{}": "Replace the task's metadata, or move it to another state.",
    "DELETE /tasks/{}": "Cancel what runs, and take the task out of all views.",
    "POST /ws/ticket": "Something that admits the caller to one WebSocket at `/ws`; for browsers.",
    "GET /status": "Who the gateway is.",
    "GET /metrics": "Figures for Prometheus.",
    "GET /openapi.json": "This document.",
    "GET /docs": "The same as a page for people.",
}
STREAMS: Final = frozenset(
    {
        f"POST {_V1}/message:stream",
        f"GET {_V1}/tasks/{{}}:subscribe",
        f"POST {_V1}/tasks/{{}}:subscribe",
    }
)
OTHER_MEDIA: Final[Mapping[str, str]] = {"GET /metrics": "text/plain", "GET /docs": "text/html"}

DIALECTS: Final[Mapping[str, str]] = {
    supervisor_paths.NAME: "The supervisor contract: spoken when no version is named.",
    current_paths.NAME: "A2A 1.0: spoken with `A2A-Version: 1.0`, or to a message with `parts` and a `ROLE_…`.",
    former_paths.NAME: "A2A 0.3: spoken with `A2A-Version: 0.3`, or to a message as 0.3 writes it.",
    "jsonrpc": "A2A 1.0 and 0.3 as JSON-RPC 2.0.",
    hub_paths.NAME: "The hub: all agents and tasks at one place.",
    "discovery": "Who is here, and agents from elsewhere.",
    "gateway_status": "The gateway itself.",
    OPERATIONS: "For whoever keeps the gateway running.",
}

SHAPES: Final[Mapping[tuple[str, str], Any]] = {
    (supervisor_paths.NAME, f"POST {_V1}/message:send"): supervisor.SendShape,
    (supervisor_paths.NAME, f"POST {_V1}/message:stream"): supervisor.SendShape,
    (supervisor_paths.NAME, f"GET {_V1}/tasks"): supervisor.ListShape,
    (supervisor_paths.NAME, f"GET {_V1}/tasks/{{}}"): supervisor.GetShape,
    (supervisor_paths.NAME, f"POST {_V1}/tasks/{{}}/pushNotificationConfigs"): supervisor.SetPushShape,
    (current_paths.NAME, f"POST {_V1}/message:send"): current.SendShape,
    (current_paths.NAME, f"POST {_V1}/message:stream"): current.SendShape,
    (current_paths.NAME, f"GET {_V1}/tasks"): current.ListShape,
    (current_paths.NAME, f"POST {_V1}/tasks/{{}}/pushNotificationConfigs"): current.PushShape,
    (former_paths.NAME, f"POST {_V1}/message:send"): former.ProtoSendShape,
    (former_paths.NAME, f"POST {_V1}/message:stream"): former.ProtoSendShape,
    (hub_paths.NAME, "POST /agents/{}/messages"): hub.MessageShape,
    (hub_paths.NAME, "GET /tasks"): hub.ListShape,
    (hub_paths.NAME, "PUT /tasks/{}"): hub.ChangeShape,
}
"""Of a GET the shape is that of its query."""
