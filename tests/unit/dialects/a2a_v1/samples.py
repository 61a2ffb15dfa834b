"""Requests of A2A 1.0, to be changed where a test needs it."""

from __future__ import annotations

from typing import Any

from synapse.dialects.a2a_v1.routes import a2a_v1_dialect
from synapse.dialects.dialect import Call, StreamCall, WireRequest
from tests.samples.calls import json_bytes, rest_call, routes_of, rpc_call

MESSAGE: dict[str, Any] = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}

DIALECT = a2a_v1_dialect()
ROUTES = routes_of(DIALECT)


def rpc(method: str, params: object = None, **headers: str) -> Call | StreamCall:
    return rpc_call(DIALECT, method, params, headers)


def rest(method: str, path: str, body: object = None, query: str = "", **params: str) -> Call | StreamCall:
    return rest_call(ROUTES, WireRequest(method, path, params, query.encode(), (), json_bytes(body)))
