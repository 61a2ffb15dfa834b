"""Where A2A 1.0 listens. Nothing else is here, so that a host can lay out its paths before it loads the dialect.

Where A2A 0.3 listens. Nothing else is here, so that a host can lay out its paths before it loads the dialect.

Where the hub dialect listens. Nothing else is here, so that a gateway can lay out its paths before it loads it.

Where the supervisor dialect listens, below the address of one agent. Nothing else is here, so that it loads late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

A2A_V1: Final = "a2a_v1"
MEDIA_TYPE: Final = b"application/a2a+json"
CARD_PATH: Final = "/.well-known/agent-card.json"

TENANT: Final = "tenant"
A2A_V1_PREFIXES: Final = ("", "/v1", f"/{{{TENANT}}}", f"/v1/{{{TENANT}}}")
"""Each path stands there with and without /v1, because 0.3 has it there: the version that a request names decides,
wherever it was sent. Clients put the tenant of an interface in front of each path (1.0 §11.3); an address of ours names
its agent already, so that the tenant chooses nothing more."""
ONLY_IN_0_3: Final = "only_in_0_3"

# 1.0 §11.3; the text has POST for subscribing and the protobuf GET, so both are taken.
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


def operations() -> tuple[tuple[str, str, str], ...]:
    """Every method and path, each with the operation that it asks for."""
    return tuple(
        (method, prefix + path, operation)
        for prefix in A2A_V1_PREFIXES
        for operation, places in A2A_V1_OPERATIONS.items()
        for method, path in places
        if operation != ONLY_IN_0_3 or TENANT not in prefix
    )


def a2a_v1_paths() -> tuple[tuple[str, str], ...]:
    """Every method and path."""
    return tuple((method, path) for method, path, _ in operations())


A2A_V0_3: Final = "a2a_v0_3"

A2A_V0_3_PREFIXES: Final = ("/v1", "")
"""Its paths begin with /v1; they stand also at the root, because 1.0 has them there: the version that a request names
decides, wherever it was sent."""

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
"""What only 1.0 has is refused here in the words of 0.3, to those who ask for it in 0.3."""


def a2a_v0_3_paths() -> tuple[tuple[str, str], ...]:
    """Every method and path."""
    return tuple(
        (method, prefix + path)
        for prefix in A2A_V0_3_PREFIXES
        for places in A2A_V0_3_OPERATIONS.values()
        for method, path in places
    )


HUB: Final = "hub"
WEBSOCKET_PATH: Final = "/ws"

HUB_OPERATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "list_agents": ("GET", "/agents"),
    "get_agent": ("GET", "/agents/{agentId}"),
    "send": ("POST", "/agents/{agentId}/messages"),
    "get_message": ("GET", "/messages/{messageId}"),
    "list_tasks": ("GET", "/tasks"),
    "get_task": ("GET", "/tasks/{taskId}"),
    "change_task": ("PUT", "/tasks/{taskId}"),
    "delete_task": ("DELETE", "/tasks/{taskId}"),
    # Ours, beside the document's: browsers set no header at a WebSocket's handshake.
    "issue_ticket": ("POST", f"{WEBSOCKET_PATH}/ticket"),
}


def hub_paths() -> tuple[tuple[str, str], ...]:
    """Every method and path."""
    return tuple(HUB_OPERATIONS.values())


SUPERVISOR: Final = "supervisor"
AGENT: Final = "agentId"
"""The name of the segment, in front of all these paths, that says which agent is meant."""

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


def supervisor_paths() -> tuple[tuple[str, str], ...]:
    """Every method and path."""
    return tuple(SUPERVISOR_OPERATIONS.values())
