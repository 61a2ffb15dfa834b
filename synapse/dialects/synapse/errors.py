"""How the synapse dialect says that something is wrong: `{"error": {"code", "message", "hint"}}` and an HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from synapse.core import access_errors, errors
from synapse.core.errors import SynapseError
from synapse.dialects.dialect import WireAnswer, error_headers
from synapse.dialects.synapse.projection import to_json

STATUS: Final[Mapping[type[SynapseError], int]] = {
    errors.SynapseError: 500,
    errors.InvalidRequest: 400,
    errors.BodyTooLarge: 413,
    errors.BodyTooSlow: 408,
    errors.UnsupportedMediaType: 415,
    errors.MethodNotAllowed: 405,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.QueueFull: 429,
    access_errors.RateLimited: 429,
    errors.AccessDenied: 403,
    errors.Unauthenticated: 401,
    errors.AgentFailed: 503,
    errors.AgentNotResponding: 502,
    errors.ExternalAgentFailed: 502,
    errors.WaitTimedOut: 504,
    errors.WaitingForPerson: 409,
    errors.StoreFailed: 503,
}


def encode_error(error: SynapseError) -> WireAnswer:
    """The answer that tells `error`."""
    body = {"error": {"code": error.code, "message": str(error), "hint": error.hint}}
    return WireAnswer(status_of(type(error)), to_json(body), error_headers(error))


def status_of(kind: type[SynapseError]) -> int:
    """The status of the nearest class that has a row."""
    return next(STATUS[ancestor] for ancestor in kind.__mro__ if ancestor in STATUS)
