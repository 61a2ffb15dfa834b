"""The methods and paths of the standard and gateway dialects: A2A 1.0, A2A 0.3, hub, supervisor, MCP and dashboard.

Hosts and gateways lay out their routes from these tables at start, and load the dialects themselves with the first
request. Therefore this module imports nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

A2A_V1: Final = "a2a_v1"
A2A_V0_3: Final = "a2a_v0_3"
HUB: Final = "hub"
SUPERVISOR: Final = "supervisor"
MCP: Final = "mcp"
DASHBOARD: Final = "dashboard"

MEDIA_TYPE: Final = b"application/a2a+json"
CARD_PATH: Final = "/.well-known/agent-card.json"

TENANT: Final = "tenant"
A2A_V1_PREFIXES: Final = ("", "/v1", f"/{{{TENANT}}}", f"/v1/{{{TENANT}}}")
"""Every path is served with and without /v1, where 0.3 has it: the version that a request names decides, wherever it
was sent. Clients put the tenant of an interface in front of each path (1.0 §11.3); the tenant is ignored, because our
addresses name the agent already."""
ONLY_IN_0_3: Final = "only_in_0_3"

# 1.0 §11.3. The text subscribes with POST and the protobuf with GET, so both are served.
A2A_V1_OPERATIONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "send": (("POST", "/message:send"),),
    "stream": (("POST", "/message:stream"),),
    "list": (("GET", "/tasks"),),
    "get": (("GET", "/tasks/{id}"),),
    "cancel": (("POST", "/tasks/{id}:cancel"),),
    "subscribe": (("GET", "/tasks/{id}:subscribe"), ("POST", "/tasks/{id}:subscribe")),
    "push_set": (("POST", "/tasks/{id}/pushNotificationConfigs"),),
    "push_list": (("GET", "/tasks/{id}/pushNotificationConfigs"),),
    "push_get": (("GET", "/tasks/{id}/pushNotificationConfigs/{config}"),),
    "push_delete": (("DELETE", "/tasks/{id}/pushNotificationConfigs/{config}"),),
    "extended_card": (("GET", "/extendedAgentCard"),),
    ONLY_IN_0_3: (("GET", "/card"),),
}


def a2a_v1_operations() -> tuple[tuple[str, str, str], ...]:
    """Returns every (method, path, operation) of A2A 1.0."""
    return tuple(
        (method, prefix + path, operation)
        for prefix in A2A_V1_PREFIXES
        for operation, places in A2A_V1_OPERATIONS.items()
        for method, path in places
        if operation != ONLY_IN_0_3 or TENANT not in prefix
    )


def a2a_v1_paths() -> tuple[tuple[str, str], ...]:
    """Returns every (method, path) of A2A 1.0."""
    return tuple((method, path) for method, path, _ in a2a_v1_operations())


A2A_V0_3_PREFIXES: Final = ("/v1", "")
"""The paths of 0.3 begin with /v1. They are served at the root too, where 1.0 has them: the version that a request
names decides, wherever it was sent."""

A2A_V0_3_OPERATIONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "send": (("POST", "/message:send"),),
    "stream": (("POST", "/message:stream"),),
    "get": (("GET", "/tasks/{id}"),),
    "cancel": (("POST", "/tasks/{id}:cancel"),),
    "subscribe": (("GET", "/tasks/{id}:subscribe"), ("POST", "/tasks/{id}:subscribe")),
    "push_set": (("POST", "/tasks/{id}/pushNotificationConfigs"),),
    "push_list": (("GET", "/tasks/{id}/pushNotificationConfigs"),),
    "push_get": (("GET", "/tasks/{id}/pushNotificationConfigs/{config}"),),
    "push_delete": (("DELETE", "/tasks/{id}/pushNotificationConfigs/{config}"),),
    "extended_card": (("GET", "/card"),),
    "only_in_1_0": (
        ("GET", "/tasks"),
        ("GET", "/extendedAgentCard"),
        ("POST", "/{tenant}/message:send"),
        ("POST", "/{tenant}/message:stream"),
        ("GET", "/{tenant}/tasks"),
        ("GET", "/{tenant}/tasks/{id}"),
        ("POST", "/{tenant}/tasks/{id}:cancel"),
        ("GET", "/{tenant}/tasks/{id}:subscribe"),
        ("POST", "/{tenant}/tasks/{id}:subscribe"),
        ("POST", "/{tenant}/tasks/{id}/pushNotificationConfigs"),
        ("GET", "/{tenant}/tasks/{id}/pushNotificationConfigs"),
        ("GET", "/{tenant}/tasks/{id}/pushNotificationConfigs/{config}"),
        ("DELETE", "/{tenant}/tasks/{id}/pushNotificationConfigs/{config}"),
        ("GET", "/{tenant}/extendedAgentCard"),
    ),
}
"""`only_in_1_0` holds the paths of 1.0 alone: a request that names version 0.3 gets an error of 0.3 there."""


def a2a_v0_3_paths() -> tuple[tuple[str, str], ...]:
    """Returns every (method, path) of A2A 0.3."""
    return tuple(
        (method, prefix + path)
        for prefix in A2A_V0_3_PREFIXES
        for places in A2A_V0_3_OPERATIONS.values()
        for method, path in places
    )


WEBSOCKET_PATH: Final = "/ws"
MCP_PATH: Final = "/mcp"
DASHBOARD_PATHS: Final = "/dashboard/"
"""What the gateway's own page asks is below this path, and no other requests may show a browser's session."""
SESSION_PATH: Final = f"{DASHBOARD_PATHS}session"
LINKS_PATH: Final = f"{DASHBOARD_PATHS}links"

HUB_OPERATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "list_agents": ("GET", "/agents"),
    "get_agent": ("GET", "/agents/{agentId}"),
    "send": ("POST", "/agents/{agentId}/messages"),
    "get_message": ("GET", "/messages/{messageId}"),
    "list_tasks": ("GET", "/tasks"),
    "get_task": ("GET", "/tasks/{taskId}"),
    "change_task": ("PUT", "/tasks/{taskId}"),
    "delete_task": ("DELETE", "/tasks/{taskId}"),
    # An addition to the document: browsers cannot set headers in a WebSocket's handshake.
    "issue_ticket": ("POST", f"{WEBSOCKET_PATH}/ticket"),
}

DASHBOARD_OPERATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "overview": ("GET", f"{DASHBOARD_PATHS}overview"),
    "events": ("GET", f"{DASHBOARD_PATHS}events"),
    "agent": ("GET", f"{DASHBOARD_PATHS}agents/{{agentId}}"),
    "screen": ("GET", f"{DASHBOARD_PATHS}agents/{{agentId}}/screen"),
    "send": ("POST", f"{DASHBOARD_PATHS}agents/{{agentId}}/messages"),
    "answer_agent": ("POST", f"{DASHBOARD_PATHS}agents/{{agentId}}/answer"),
    "seen": ("POST", f"{DASHBOARD_PATHS}agents/{{agentId}}/seen"),
    "tasks": ("GET", f"{DASHBOARD_PATHS}tasks"),
    "task": ("GET", f"{DASHBOARD_PATHS}tasks/{{taskId}}"),
    "timeline": ("GET", f"{DASHBOARD_PATHS}tasks/{{taskId}}/timeline"),
    "task_events": ("GET", f"{DASHBOARD_PATHS}tasks/{{taskId}}/events"),
    "file": ("GET", f"{DASHBOARD_PATHS}tasks/{{taskId}}/files/{{number}}"),
    "answer": ("POST", f"{DASHBOARD_PATHS}tasks/{{taskId}}/answer"),
    "cancel": ("POST", f"{DASHBOARD_PATHS}tasks/{{taskId}}/cancel"),
    "resolve": ("POST", f"{DASHBOARD_PATHS}tasks/{{taskId}}/resolve"),
    "figures": ("GET", f"{DASHBOARD_PATHS}figures"),
}

# Below the address of one agent, which names it.
SUPERVISOR_OPERATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "list": ("GET", "/tasks"),
    "get": ("GET", "/tasks/{id}"),
    "cancel": ("POST", "/tasks/{id}:cancel"),
    "subscribe": ("POST", "/tasks/{id}:subscribe"),
    "set_push": ("POST", "/tasks/{id}/pushNotificationConfigs"),
    "list_push": ("GET", "/tasks/{id}/pushNotificationConfigs"),
    "get_push": ("GET", "/tasks/{id}/pushNotificationConfigs/{configId}"),
    "delete_push": ("DELETE", "/tasks/{id}/pushNotificationConfigs/{configId}"),
}
