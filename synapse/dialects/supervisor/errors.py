"""How the supervisor dialect says that something is wrong: a JSON-RPC error object, and one of its HTTP statuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from synapse.core import access_errors, errors, wire_errors
from synapse.core.errors import SynapseError
from synapse.dialects.dialect import WireAnswer, error_headers
from synapse.dialects.proto_json import to_json

# The names of the document's two tables, as its one example writes them out.
TITLES: Final[Mapping[int, str]] = {
    -32700: "Parse error",
    -32600: "Invalid Request",
    -32601: "Method not found",
    -32602: "Invalid params",
    -32603: "Internal error",
    -32001: "Task not found error",
    -32002: "Task not cancelable error",
    -32003: "Push notification not supported error",
    -32004: "Unsupported operation error",
    -32005: "Content type not supported error",
}


class Fault(NamedTuple):
    """One row: a code of the document's tables, and the HTTP status."""

    code: int
    http: int


# The document has no code for callers who are refused. What is forbidden is, for this caller, an operation that is not
# supported; who is not known, or asks too often, sends requests that are not valid now.
FAULTS: Final[Mapping[type[SynapseError], Fault]] = {
    errors.SynapseError: Fault(-32603, 500),
    errors.InvalidRequest: Fault(-32602, 400),
    errors.BodyTooLarge: Fault(-32600, 400),
    errors.BodyTooSlow: Fault(-32600, 400),
    errors.UnsupportedMediaType: Fault(-32005, 400),
    errors.MethodNotAllowed: Fault(-32601, 405),
    errors.UnsupportedOperation: Fault(-32004, 400),
    wire_errors.MalformedJson: Fault(-32700, 400),
    wire_errors.MalformedCall: Fault(-32600, 400),
    wire_errors.PushNotSupported: Fault(-32003, 400),
    errors.NotFound: Fault(-32602, 404),
    errors.TaskNotFound: Fault(-32001, 404),
    errors.RouteNotFound: Fault(-32601, 404),
    errors.Conflict: Fault(-32004, 400),
    errors.TaskNotCancelable: Fault(-32002, 400),
    errors.MessageIdReused: Fault(-32602, 400),
    errors.QueueFull: Fault(-32600, 429),
    access_errors.RateLimited: Fault(-32600, 429),
    errors.AccessDenied: Fault(-32004, 403),
    errors.Unauthenticated: Fault(-32600, 401),
}


def fault_of(kind: type[SynapseError]) -> Fault:
    """The row of the nearest class that has one."""
    return next(FAULTS[ancestor] for ancestor in kind.__mro__ if ancestor in FAULTS)


def encode_error(error: SynapseError) -> WireAnswer:
    """The answer that tells `error`: the document's name of it, then what happened and what to do about it."""
    fault = fault_of(type(error))
    data = f"{error}; {error.hint}" if error.hint else str(error)
    body: dict[str, Any] = {"code": fault.code, "message": TITLES[fault.code], "data": data}
    return WireAnswer(fault.http, to_json({"error": body}), error_headers(error))
