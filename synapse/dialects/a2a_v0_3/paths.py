"""Where A2A 0.3 listens. Nothing else is here, so that a host can lay out its paths before it loads the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME: Final = "a2a_v0_3"

PREFIXES: Final = ("/v1", "")
"""Its paths begin with /v1; they stand also at the root, because 1.0 has them there: the version that a request names
decides, wherever it was sent."""

OPERATIONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
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


def paths() -> tuple[tuple[str, str], ...]:
    """Every method and path."""
    return tuple(
        (method, prefix + path) for prefix in PREFIXES for places in OPERATIONS.values() for method, path in places
    )
