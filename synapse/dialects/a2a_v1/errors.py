"""How A2A 1.0 says that something is wrong: the table of 1.0.1, with ErrorInfo, for JSON-RPC and for REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from synapse.core import access_errors, errors, wire_errors
from synapse.core.errors import SynapseError
from synapse.core.wire_errors import InvalidField
from synapse.dialects.a2a_v1.paths import MEDIA_TYPE
from synapse.dialects.dialect import WireAnswer, error_headers
from synapse.dialects.proto_json import to_json

DOMAIN: Final = "a2a-protocol.org"

_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST: Final = "type.googleapis.com/google.rpc.BadRequest"


class Fault(NamedTuple):
    """One row: the JSON-RPC code, the status of gRPC and REST bodies, the HTTP status, and ErrorInfo's reason."""

    code: int
    status: str
    http: int
    reason: str


# -32000 is JSON-RPC's code for what a server refuses by rules of its own; A2A has none for these.
FAULTS: Final[Mapping[type[SynapseError], Fault]] = {
    errors.SynapseError: Fault(-32603, "INTERNAL", 500, "INTERNAL_ERROR"),
    errors.InvalidRequest: Fault(-32602, "INVALID_ARGUMENT", 400, "INVALID_PARAMS"),
    errors.BodyTooLarge: Fault(-32600, "INVALID_ARGUMENT", 413, "INVALID_REQUEST"),
    errors.BodyTooSlow: Fault(-32600, "DEADLINE_EXCEEDED", 408, "INVALID_REQUEST"),
    errors.UnsupportedMediaType: Fault(-32005, "INVALID_ARGUMENT", 400, "CONTENT_TYPE_NOT_SUPPORTED"),
    errors.MethodNotAllowed: Fault(-32601, "UNIMPLEMENTED", 405, "METHOD_NOT_FOUND"),
    errors.UnsupportedOperation: Fault(-32004, "FAILED_PRECONDITION", 400, "UNSUPPORTED_OPERATION"),
    wire_errors.MalformedJson: Fault(-32700, "INVALID_ARGUMENT", 400, "INVALID_REQUEST"),
    wire_errors.MalformedCall: Fault(-32600, "INVALID_ARGUMENT", 400, "INVALID_REQUEST"),
    wire_errors.PushNotSupported: Fault(-32003, "FAILED_PRECONDITION", 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    wire_errors.ExtendedCardMissing: Fault(-32007, "FAILED_PRECONDITION", 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    wire_errors.ExtensionRequired: Fault(-32008, "FAILED_PRECONDITION", 400, "EXTENSION_SUPPORT_REQUIRED"),
    wire_errors.VersionNotSupported: Fault(-32009, "FAILED_PRECONDITION", 400, "VERSION_NOT_SUPPORTED"),
    errors.NotFound: Fault(-32602, "NOT_FOUND", 404, "NOT_FOUND"),
    errors.TaskNotFound: Fault(-32001, "NOT_FOUND", 404, "TASK_NOT_FOUND"),
    errors.RouteNotFound: Fault(-32601, "NOT_FOUND", 404, "METHOD_NOT_FOUND"),
    # A message to a finished task, or to one that did not ask for it (1.0 §3.1.1).
    errors.Conflict: Fault(-32004, "FAILED_PRECONDITION", 400, "UNSUPPORTED_OPERATION"),
    errors.TaskNotCancelable: Fault(-32002, "FAILED_PRECONDITION", 400, "TASK_NOT_CANCELABLE"),
    errors.MessageIdReused: Fault(-32602, "INVALID_ARGUMENT", 400, "INVALID_PARAMS"),
    errors.VersionConflict: Fault(-32000, "ABORTED", 409, "VERSION_CONFLICT"),
    errors.QueueFull: Fault(-32000, "RESOURCE_EXHAUSTED", 429, "QUEUE_FULL"),
    errors.QuotaExceeded: Fault(-32000, "RESOURCE_EXHAUSTED", 429, "QUOTA_EXCEEDED"),
    errors.FeedLagged: Fault(-32000, "ABORTED", 409, "FEED_LAGGED"),
    access_errors.RateLimited: Fault(-32000, "RESOURCE_EXHAUSTED", 429, "RATE_LIMITED"),
    errors.AccessDenied: Fault(-32000, "PERMISSION_DENIED", 403, "PERMISSION_DENIED"),
    errors.Unauthenticated: Fault(-32000, "UNAUTHENTICATED", 401, "UNAUTHENTICATED"),
    errors.AgentFailed: Fault(-32000, "UNAVAILABLE", 503, "AGENT_UNAVAILABLE"),
    errors.OutcomeUnknown: Fault(-32000, "UNAVAILABLE", 503, "OUTCOME_UNKNOWN"),
    errors.ExternalAgentFailed: Fault(-32006, "INTERNAL", 500, "INVALID_AGENT_RESPONSE"),
    errors.WaitTimedOut: Fault(-32000, "DEADLINE_EXCEEDED", 504, "TIMEOUT"),
    errors.WaitingForPerson: Fault(-32000, "FAILED_PRECONDITION", 409, "WAITING_FOR_PERSON"),
    errors.StoreFailed: Fault(-32603, "UNAVAILABLE", 503, "STORE_FAILED"),
}


def fault_of(kind: type[SynapseError]) -> Fault:
    """The row of the nearest class that has one."""
    return next(FAULTS[ancestor] for ancestor in kind.__mro__ if ancestor in FAULTS)


def encode_error(error: SynapseError) -> WireAnswer:
    """The REST answer that tells `error`."""
    fault = fault_of(type(error))
    body = {"code": fault.http, "status": fault.status, "message": str(error), "details": _details(error, fault)}
    return WireAnswer(fault.http, to_json({"error": body}), error_headers(error), MEDIA_TYPE)


def encode_fault(error: SynapseError) -> bytes:
    """The error object of JSON-RPC that tells `error`."""
    fault = fault_of(type(error))
    return to_json({"code": fault.code, "message": str(error), "data": _details(error, fault)})


def _details(error: SynapseError, fault: Fault) -> list[dict[str, Any]]:
    info: dict[str, Any] = {"@type": _ERROR_INFO, "reason": fault.reason, "domain": DOMAIN}
    if error.hint:
        info["metadata"] = {"hint": error.hint}
    if not isinstance(error, InvalidField):
        return [info]
    violation = {"field": error.field, "description": error.why}
    return [info, {"@type": _BAD_REQUEST, "fieldViolations": [violation]}]
