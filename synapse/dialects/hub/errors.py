"""How the hub dialect says that something is wrong: `{"error": {"code", "message", "details"}}` and an HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from synapse.core import access_errors, errors
from synapse.core.errors import SynapseError
from synapse.core.wire_errors import InvalidField
from synapse.dialects.dialect import WireAnswer, error_headers
from synapse.dialects.proto_json import to_json


class Fault(NamedTuple):
    """One row: the code, and the HTTP status."""

    code: str
    http: int


# Seven codes are the document's "common" ones; NOT_FOUND and RATE_LIMITED are for what it has no word for.
FAULTS: Final[Mapping[type[SynapseError], Fault]] = {
    errors.SynapseError: Fault("INTERNAL_SERVER_ERROR", 500),
    errors.InvalidRequest: Fault("INVALID_REQUEST", 400),
    errors.BodyTooLarge: Fault("INVALID_REQUEST", 413),
    errors.BodyTooSlow: Fault("INVALID_REQUEST", 408),
    errors.UnsupportedMediaType: Fault("INVALID_REQUEST", 415),
    errors.MethodNotAllowed: Fault("INVALID_REQUEST", 405),
    errors.NotFound: Fault("NOT_FOUND", 404),
    errors.AgentNotFound: Fault("AGENT_NOT_FOUND", 404),
    errors.ExternalAgentNotFound: Fault("AGENT_NOT_FOUND", 404),
    errors.TaskNotFound: Fault("TASK_NOT_FOUND", 404),
    errors.Conflict: Fault("INVALID_REQUEST", 409),
    errors.QueueFull: Fault("RATE_LIMITED", 429),
    access_errors.RateLimited: Fault("RATE_LIMITED", 429),
    errors.AccessDenied: Fault("AUTHORIZATION_ERROR", 403),
    errors.Unauthenticated: Fault("AUTHENTICATION_ERROR", 401),
    errors.AgentFailed: Fault("AGENT_EXECUTION_ERROR", 502),
    errors.WaitTimedOut: Fault("AGENT_EXECUTION_ERROR", 504),
    errors.WaitingForPerson: Fault("AGENT_EXECUTION_ERROR", 409),
    errors.StoreFailed: Fault("INTERNAL_SERVER_ERROR", 503),
}


def fault_of(kind: type[SynapseError]) -> Fault:
    """The row of the nearest class that has one."""
    return next(FAULTS[ancestor] for ancestor in kind.__mro__ if ancestor in FAULTS)


def encode_error(error: SynapseError) -> WireAnswer:
    """The answer that tells `error`."""
    return WireAnswer(fault_of(type(error)).http, to_json({"error": error_object(error)}), error_headers(error))


def error_object(error: SynapseError) -> dict[str, Any]:
    details: dict[str, str] = {}
    if isinstance(error, InvalidField) and error.field:
        details["field"] = error.field
    if error.hint:
        details["hint"] = error.hint
    told: dict[str, Any] = {"code": fault_of(type(error)).code, "message": str(error)}
    return {**told, "details": details} if details else told
