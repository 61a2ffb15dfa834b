"""Tasks and requests of A2A 0.3, to be changed where a test needs it."""

from __future__ import annotations

from typing import Any

from synapse.core.task import Task
from synapse.dialects.a2a_v0_3.routes import a2a_v0_3_dialect
from synapse.dialects.dialect import AnyCall, WireRequest
from tests.samples import tasks
from tests.samples.calls import json_bytes, rest_call, routes_of, rpc_call

AT = tasks.UPDATED
RPC_MESSAGE: dict[str, Any] = {
    "kind": "message",
    "messageId": "m-1",
    "role": "user",
    "parts": [{"kind": "text", "text": "hello"}],
}
REST_MESSAGE: dict[str, Any] = {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": "hello"}]}

DIALECT = a2a_v0_3_dialect()
ROUTES = routes_of(DIALECT)


def a_task(**changes: Any) -> Task:
    return tasks.a_task(**{"dialect": DIALECT.name, "created_at": AT, **changes})


def a_question() -> Task:
    """Returns a task whose agent asks for something."""
    return tasks.a_question(dialect=DIALECT.name, created_at=AT)


def rpc(method: str, params: object = None, **headers: str) -> AnyCall:
    return rpc_call(DIALECT, method, params, headers)


def rest(method: str, path: str, body: object = None, query: str = "", **params: str) -> AnyCall:
    return rest_call(ROUTES, WireRequest(method, path, params, query.encode(), (), json_bytes(body)))
