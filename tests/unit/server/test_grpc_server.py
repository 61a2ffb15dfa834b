"""Every error has the gRPC status of A2A's table, and ErrorInfo in the trailer."""

from __future__ import annotations

from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped

from synapse.core.errors import (
    CredentialsRefused,
    Forbidden,
    InvalidField,
    RateLimited,
    SynapseError,
    TaskNotFound,
    VersionNotSupported,
)
from synapse.dialects.a2a_v1.routes import error_shape
from synapse.server.grpc_server import DETAILS, GrpcStatus, grpc_status
from tests.unit.dialects.all_errors import ALL_ERRORS, blank


def rich(told: GrpcStatus) -> Any:
    """Returns the google.rpc.Status in the trailer, as clients read it."""
    status: Any = status_pb2.Status()
    status.ParseFromString(dict(told.trailers)[DETAILS])
    return status


def info(told: GrpcStatus) -> Any:
    found = error_details_pb2.ErrorInfo()
    assert rich(told).details[0].Unpack(found)
    return found


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_a_reason(kind: type[SynapseError]) -> None:
    told = grpc_status(blank(kind))

    assert grpc.StatusCode[told.status].value[0] == told.number == rich(told).code
    assert rich(told).message == "what happened"
    assert (info(told).reason, info(told).domain) == (error_shape(kind).reason, "a2a-protocol.org")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TaskNotFound("t-1"), "NOT_FOUND"),
        (VersionNotSupported("9.9", ["1.0"]), "FAILED_PRECONDITION"),
        (CredentialsRefused("no", challenge="Bearer"), "UNAUTHENTICATED"),
        (Forbidden("no"), "PERMISSION_DENIED"),
        (RateLimited("slowly", seconds=2.5), "RESOURCE_EXHAUSTED"),
    ],
)
def test_errors_that_callers_act_upon_have_their_own_status(error: SynapseError, status: str) -> None:
    assert grpc_status(error).status == status


def test_a_wrong_field_is_named() -> None:
    violations = error_details_pb2.BadRequest()

    assert rich(grpc_status(InvalidField("pageSize", "is too large"))).details[1].Unpack(violations)

    assert [(one.field, one.description) for one in violations.field_violations] == [("pageSize", "is too large")]


def test_the_trailer_says_when_to_retry() -> None:
    assert ("retry-after", "3") in grpc_status(RateLimited("slowly", seconds=2.5)).trailers


def test_the_trailer_has_the_challenge() -> None:
    assert ("www-authenticate", "Bearer") in grpc_status(CredentialsRefused("no", challenge="Bearer")).trailers
