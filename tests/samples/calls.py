"""Asks a dialect what a request means, and what it would answer."""

from __future__ import annotations

import json
from typing import Any

from synapse.dialects.dialect import Call, CallRoute, Dialect, StreamCall, WireRequest

Routes = dict[tuple[str, str], CallRoute]


def rpc_call(dialect: Dialect, method: str, params: object, headers: dict[str, str]) -> Call | StreamCall:
    """Return what a JSON-RPC call asks for; `a_header` stands for `a-header`."""
    assert dialect.rpc is not None
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return dialect.rpc.methods[method](json_bytes(params), WireRequest("POST", "/", headers=named))


def routes_of(dialect: Dialect) -> Routes:
    """Return the routes of a dialect that are calls, by method and path."""
    return {(route.method, route.path): route for route in dialect.routes if isinstance(route, CallRoute)}


def rest_call(routes: Routes, request: WireRequest) -> Call | StreamCall:
    """Return what a request to one of the routes asks for."""
    asked = routes[request.method, request.path].ask(request)
    assert isinstance(asked, Call | StreamCall)
    return asked


def told(call: Call | StreamCall, result: Any) -> Any:
    """Return the answer that tells `result`, as JSON."""
    assert isinstance(call, Call)
    return json.loads(call.encode(result))


def json_bytes(body: object) -> bytes:
    """Return the body of a request: nothing, bytes as they are, or anything else as JSON."""
    return b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
