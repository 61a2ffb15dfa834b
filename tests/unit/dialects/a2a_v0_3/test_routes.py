"""How A2A 0.3 reports errors."""

from __future__ import annotations

import json

import pytest

from synapse.core.errors import InvalidField, MethodNotAllowed, SynapseError, TaskNotFound, Unauthenticated
from synapse.dialects.a2a_v0_3.routes import encode_error, encode_fault, error_shape
from tests.unit.dialects.all_errors import ALL_ERRORS, blank

# -32000 is JSON-RPC's code for errors that a server defines itself; the SDK's types accept it.
KNOWN_CODES = {-32000, -32700, -32600, -32601, -32602, -32603, -32001, -32002, -32003, -32004, -32005, -32006, -32007}
TABLE = [
    ("TaskNotFound", -32001),
    ("TaskNotCancelable", -32002),
    ("PushNotSupported", -32003),
    ("UnsupportedOperation", -32004),
    ("TaskFinished", -32004),
    ("UnsupportedMediaType", -32005),
    ("ExternalAgentFailed", -32006),
    ("ExtendedCardMissing", -32007),
    ("MalformedJson", -32700),
    ("MalformedCall", -32600),
    ("RouteNotFound", -32601),
    ("InvalidField", -32602),
    ("InternalFailure", -32603),
    ("AccessDenied", -32000),
    ("Unauthenticated", -32000),
]


@pytest.mark.parametrize(("name", "code"), TABLE)
def test_errors_have_the_codes_of_the_specification(name: str, code: int) -> None:
    kind = next(kind for kind in ALL_ERRORS if kind.__name__ == name)

    assert error_shape(kind).code == code


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_that_clients_of_this_version_know(kind: type[SynapseError]) -> None:
    told = json.loads(encode_fault(blank(kind)))

    assert told["code"] in KNOWN_CODES
    assert told["message"] == "what happened"


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_its_name_over_rest(kind: type[SynapseError]) -> None:
    answer = encode_error(blank(kind))

    told = json.loads(answer.body)
    assert set(told) == {"type", "message"}
    assert told["type"].endswith("Error")
    assert 400 <= answer.status <= 599


def test_an_error_has_data_only_for_a_hint_or_a_field() -> None:
    assert json.loads(encode_fault(InvalidField("f", "w", hint="h")))["data"] == {"hint": "h", "field": "f"}
    assert "data" not in json.loads(encode_fault(TaskNotFound("x")))


def test_headers_name_the_allowed_methods_and_the_challenge() -> None:
    assert encode_error(MethodNotAllowed("PUT", "/tasks", ["GET", "POST"])).headers == ((b"allow", b"GET, POST"),)
    assert encode_error(Unauthenticated()).headers == ((b"www-authenticate", b"Bearer"),)
