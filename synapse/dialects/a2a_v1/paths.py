"""Where A2A 1.0 listens. Nothing else is here, so that a host can lay out its paths before it loads the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME: Final = "a2a_v1"
MEDIA_TYPE: Final = b"application/a2a+json"
CARD_PATH: Final = "/.well-known/agent-card.json"

TENANT: Final = "tenant"
PREFIXES: Final = ("", "/v1", f"/{{{TENANT}}}", f"/v1/{{{TENANT}}}")
"""Each path stands there with and without /v1, because 0.3 has it there: the version that a request names decides,
wherever it was sent. Clients put the tenant of an interface in front of each path (1.0 §11.3); an address of ours names
its agent already, so that the tenant chooses nothing more."""
ONLY_IN_0_3: Final = "only_in_0_3"

# 1.0 §11.3; the text has POST for subscribing and the protobuf GET, so both are taken.
OPERATIONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
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
        for prefix in PREFIXES
        for operation, places in OPERATIONS.items()
        for method, path in places
        if operation != ONLY_IN_0_3 or TENANT not in prefix
    )


def paths() -> tuple[tuple[str, str], ...]:
    """Every method and path."""
    return tuple((method, path) for method, path, _ in operations())
