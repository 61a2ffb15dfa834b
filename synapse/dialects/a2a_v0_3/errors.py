"""How A2A 0.3 says that something is wrong: a JSON-RPC code, or in REST a status and the error's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from synapse.core import access_errors, errors, wire_errors
from synapse.core.errors import SynapseError
from synapse.core.wire_errors import InvalidField
from synapse.dialects.dialect import WireAnswer, error_headers
from synapse.dialects.proto_json import to_json


class Fault(NamedTuple):
    """One row: the JSON-RPC code, the HTTP status, and the name that REST clients know the error by."""

    code: int
    http: int
    name: str


# -32000 is JSON-RPC's code for what a server refuses by rules of its own; A2A 0.3 has no code and no name for these.
FAULTS: Final[Mapping[type[SynapseError], Fault]] = {
    errors.SynapseError: Fault(-32603, 500, "InternalError"),
    errors.InvalidRequest: Fault(-32602, 400, "InvalidParamsError"),
    errors.BodyTooLarge: Fault(-32600, 413, "InvalidRequestError"),
    errors.BodyTooSlow: Fault(-32600, 408, "InvalidRequestError"),
    errors.UnsupportedMediaType: Fault(-32005, 415, "ContentTypeNotSupportedError"),
    errors.MethodNotAllowed: Fault(-32601, 405, "MethodNotFoundError"),
    errors.UnsupportedOperation: Fault(-32004, 400, "UnsupportedOperationError"),
    wire_errors.MalformedJson: Fault(-32700, 400, "JSONParseError"),
    wire_errors.MalformedCall: Fault(-32600, 400, "InvalidRequestError"),
    wire_errors.PushNotSupported: Fault(-32003, 400, "PushNotificationNotSupportedError"),
    wire_errors.ExtendedCardMissing: Fault(-32007, 404, "AuthenticatedExtendedCardNotConfiguredError"),
    errors.NotFound: Fault(-32602, 404, "InvalidParamsError"),
    errors.TaskNotFound: Fault(-32001, 404, "TaskNotFoundError"),
    errors.RouteNotFound: Fault(-32601, 404, "MethodNotFoundError"),
    errors.Conflict: Fault(-32004, 409, "UnsupportedOperationError"),
    errors.TaskNotCancelable: Fault(-32002, 409, "TaskNotCancelableError"),
    errors.MessageIdReused: Fault(-32602, 409, "InvalidParamsError"),
    errors.QueueFull: Fault(-32000, 429, "QueueFullError"),
    access_errors.RateLimited: Fault(-32000, 429, "RateLimitedError"),
    errors.AccessDenied: Fault(-32000, 403, "PermissionDeniedError"),
    errors.Unauthenticated: Fault(-32000, 401, "UnauthenticatedError"),
    errors.AgentFailed: Fault(-32000, 503, "AgentUnavailableError"),
    errors.OutcomeUnknown: Fault(-32000, 503, "OutcomeUnknownError"),
    errors.ExternalAgentFailed: Fault(-32006, 502, "InvalidAgentResponseError"),
    errors.WaitTimedOut: Fault(-32000, 504, "TimeoutError"),
    errors.WaitingForPerson: Fault(-32000, 409, "WaitingForPersonError"),
    errors.StoreFailed: Fault(-32603, 503, "InternalError"),
}


def fault_of(kind: type[SynapseError]) -> Fault:
    """The row of the nearest class that has one."""
    return next(FAULTS[ancestor] for ancestor in kind.__mro__ if ancestor in FAULTS)


def encode_error(error: SynapseError) -> WireAnswer:
    """The REST answer that tells `error`."""
    fault = fault_of(type(error))
    return WireAnswer(fault.http, to_json({"type": fault.name, "message": str(error)}), error_headers(error))


def encode_fault(error: SynapseError) -> bytes:
    """The error object of JSON-RPC that tells `error`."""
    told: dict[str, Any] = {"code": fault_of(type(error)).code, "message": str(error)}
    data = {"hint": error.hint} if error.hint else {}
    if isinstance(error, InvalidField):
        data["field"] = error.field
    return to_json({**told, "data": data} if data else told)
