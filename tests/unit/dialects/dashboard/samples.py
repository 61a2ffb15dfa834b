"""Tasks and requests of the dashboard, to be changed where a test needs it."""

from __future__ import annotations

import json
from typing import Any

from synapse.core.task import Task
from synapse.dialects.dashboard.routes import dashboard_dialect
from synapse.dialects.dialect import AnyCall, StreamRoute, WireRequest
from synapse.dialects.paths import DASHBOARD_OPERATIONS
from tests.samples.calls import json_bytes, rest_call, routes_of

NAME = "ada"


def agent_name(_task: Task) -> str:
    return NAME


DIALECT = dashboard_dialect(agent_name)
ROUTES = routes_of(DIALECT)
(EVENTS,) = (route for route in DIALECT.routes if isinstance(route, StreamRoute))


def wire(operation: str, body: object = None, *, query: str = "", headers: Any = (), **params: str) -> WireRequest:
    """Returns a request to one of the operations."""
    method, path = DASHBOARD_OPERATIONS[operation]
    return WireRequest(method, path, params, query.encode(), headers, json_bytes(body))


def ask(operation: str, body: object = None, **more: Any) -> AnyCall:
    """Returns what a request to one of the operations asks for."""
    return rest_call(ROUTES, wire(operation, body, **more))


def decoded(body: bytes) -> Any:
    return json.loads(body)
