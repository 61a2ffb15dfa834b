"""Where the hub dialect listens. Nothing else is here, so that a gateway can lay out its paths before it loads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME: Final = "hub"
WEBSOCKET_PATH: Final = "/ws"

OPERATIONS: Final[Mapping[str, tuple[str, str]]] = {
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


def paths() -> tuple[tuple[str, str], ...]:
    """Every method and path."""
    return tuple(OPERATIONS.values())
