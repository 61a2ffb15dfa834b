"""Every error is told in the hub's form; the document's codes are all there."""

from __future__ import annotations

import json

import pytest

from synapse.core import errors
from synapse.core.errors import (
    CredentialsRefused,
    Forbidden,
    InvalidField,
    MethodNotAllowed,
    RateLimited,
    SynapseError,
    TaskNotFound,
    Unauthenticated,
)
from synapse.dialects.hub.encode import ErrorShape, encode_error, fault_of
from tests.unit.dialects.all_errors import ALL_ERRORS, blank

COMMON = {
    "AGENT_NOT_FOUND",
    "TASK_NOT_FOUND",
    "INVALID_REQUEST",
    "AUTHENTICATION_ERROR",
    "AUTHORIZATION_ERROR",
    "AGENT_EXECUTION_ERROR",
    "INTERNAL_SERVER_ERROR",
}
TABLE = [
    ("AgentNotFound", "AGENT_NOT_FOUND", 404),
    ("TaskNotFound", "TASK_NOT_FOUND", 404),
    ("NotFound", "NOT_FOUND", 404),
    ("RouteNotFound", "NOT_FOUND", 404),
    ("InvalidRequest", "INVALID_REQUEST", 400),
    ("InvalidField", "INVALID_REQUEST", 400),
    ("MalformedJson", "INVALID_REQUEST", 400),
    ("BodyTooLarge", "INVALID_REQUEST", 413),
    ("UnsupportedMediaType", "INVALID_REQUEST", 415),
    ("IllegalTransition", "INVALID_REQUEST", 409),
    ("CredentialsRefused", "AUTHENTICATION_ERROR", 401),
    ("Forbidden", "AUTHORIZATION_ERROR", 403),
    ("RateLimited", "RATE_LIMITED", 429),
    ("QueueFull", "RATE_LIMITED", 429),
    ("AgentExited", "AGENT_EXECUTION_ERROR", 502),
    ("InternalFailure", "INTERNAL_SERVER_ERROR", 500),
    ("StoreLocked", "INTERNAL_SERVER_ERROR", 503),
]


@pytest.mark.parametrize(("name", "code", "http"), TABLE)
def test_the_row_of_the_table(name: str, code: str, http: int) -> None:
    kind = next(kind for kind in ALL_ERRORS if kind.__name__ == name)

    assert fault_of(kind) == ErrorShape(code, http)


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_an_object_of_the_documents_form(kind: type[SynapseError]) -> None:
    answer = encode_error(blank(kind))

    error = json.loads(answer.body)["error"]
    assert list(error)[:2] == ["code", "message"]
    assert set(error) <= {"code", "message", "details"}
    assert error["message"] == "what happened"
    assert 400 <= answer.status <= 504


def test_every_common_code_is_used() -> None:
    assert {fault_of(kind).code for kind in ALL_ERRORS} == {*COMMON, "NOT_FOUND", "RATE_LIMITED"}


def test_details_name_the_field_and_what_to_do() -> None:
    error = json.loads(encode_error(InvalidField("state", "is no state", hint="use pending")).body)["error"]
    whole = json.loads(encode_error(InvalidField("", "nothing to change")).body)["error"]

    assert error["details"] == {"field": "state", "hint": "use pending"}
    assert "details" not in whole


def test_headers_say_what_is_allowed_and_how_to_introduce_oneself() -> None:
    assert encode_error(MethodNotAllowed("POST", "/tasks", ["GET"])).headers == ((b"allow", b"GET"),)
    assert encode_error(Unauthenticated()).headers == ((b"www-authenticate", b"Bearer"),)
    refused = CredentialsRefused(challenge='Bearer realm="synapse"')
    assert encode_error(refused).headers == ((b"www-authenticate", b'Bearer realm="synapse"'),)
    assert encode_error(RateLimited("too many", seconds=0.2)).headers == ((b"retry-after", b"1"),)
    assert encode_error(Forbidden()).headers == ()
    assert encode_error(TaskNotFound("x")).headers == ()


def test_an_error_made_elsewhere_gets_the_row_of_its_family() -> None:
    class NewRefusal(errors.AgentFailed):
        """Not known to the table."""

    assert fault_of(NewRefusal).code == "AGENT_EXECUTION_ERROR"
