"""Every error is told in the supervisor's form, with a code of its tables."""

from __future__ import annotations

import json

import pytest

from synapse.core import errors
from synapse.core.errors import (
    CredentialsRefused,
    Forbidden,
    InvalidField,
    MalformedJson,
    MethodNotAllowed,
    RateLimited,
    SynapseError,
    TaskNotFound,
    Unauthenticated,
)
from synapse.dialects.supervisor.routes import TITLES, ErrorShape, encode_error, fault_of
from tests.unit.dialects.all_errors import ALL_ERRORS, blank

TABLE = [
    ("MalformedJson", -32700, 400),
    ("MalformedCall", -32600, 400),
    ("RouteNotFound", -32601, 404),
    ("InvalidRequest", -32602, 400),
    ("InvalidField", -32602, 400),
    ("InternalFailure", -32603, 500),
    ("TaskNotFound", -32001, 404),
    ("PushConfigNotFound", -32001, 404),
    ("TaskNotCancelable", -32002, 400),
    ("PushNotSupported", -32003, 400),
    ("UnsupportedOperation", -32004, 400),
    ("TaskFinished", -32004, 400),
    ("UnsupportedMediaType", -32005, 400),
    ("AgentNotFound", -32602, 404),
    ("CredentialsRefused", -32600, 401),
    ("Forbidden", -32004, 403),
    ("PersonRequired", -32004, 403),
    ("ForeignOrigin", -32004, 403),
    ("RateLimited", -32600, 429),
    ("QueueFull", -32600, 429),
    ("AgentExited", -32603, 500),
    ("StoreFailed", -32603, 500),
]


@pytest.mark.parametrize(("name", "code", "http"), TABLE)
def test_the_row_of_the_tables(name: str, code: int, http: int) -> None:
    kind = next(kind for kind in ALL_ERRORS if kind.__name__ == name)

    assert fault_of(kind) == ErrorShape(code, http)


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_an_object_of_the_documents_form(kind: type[SynapseError]) -> None:
    answer = encode_error(blank(kind))

    error = json.loads(answer.body)["error"]
    assert list(error) == ["code", "message", "data"]
    assert error["message"] == TITLES[error["code"]]
    assert error["data"].startswith("what happened")
    assert answer.status in (400, 401, 403, 404, 405, 429, 500)


def test_every_code_of_the_tables_is_used() -> None:
    assert {fault_of(kind).code for kind in ALL_ERRORS} == set(TITLES)


def test_what_to_do_next_stands_behind_what_happened() -> None:
    error = json.loads(encode_error(InvalidField("status", "is no state", hint="use running")).body)["error"]

    assert error["data"] == "status: is no state; use running"
    assert json.loads(encode_error(TaskNotFound("x")).body)["error"]["data"] == "no task 'x'"


def test_headers_say_what_is_allowed_and_how_to_introduce_oneself() -> None:
    assert encode_error(MethodNotAllowed("PUT", "/tasks", ["GET", "POST"])).headers == ((b"allow", b"GET, POST"),)
    assert encode_error(Unauthenticated()).headers == ((b"www-authenticate", b"Bearer"),)
    refused = CredentialsRefused(challenge='Bearer realm="synapse"')
    assert encode_error(refused).headers == ((b"www-authenticate", b'Bearer realm="synapse"'),)
    assert encode_error(RateLimited("too many", seconds=2.1)).headers == ((b"retry-after", b"3"),)
    assert encode_error(Forbidden()).headers == ()
    assert encode_error(MalformedJson()).headers == ()


def test_an_error_made_elsewhere_gets_the_row_of_its_family() -> None:
    class NewRefusal(errors.QueueFull):
        """Not known to the table."""

    assert fault_of(NewRefusal).http == 429
