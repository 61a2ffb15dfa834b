"""Where the supervisor dialect listens, below the address of one agent. Nothing else is here, so that it loads late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME: Final = "supervisor"
AGENT: Final = "agentId"
"""The name of the segment, in front of all these paths, that says which agent is meant."""

OPERATIONS: Final[Mapping[str, tuple[str, str]]] = {
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


def paths() -> tuple[tuple[str, str], ...]:
    """Every method and path."""
    return tuple(OPERATIONS.values())
