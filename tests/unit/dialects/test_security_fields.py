"""Cards and challenges name the credentials that a gateway accepts, as the SDKs expect them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

from synapse.core.caller import GATEWAY_MACHINE, GATEWAY_SCOPE, AuthMethods
from synapse.core.errors import (
    AgentExited,
    CredentialsRefused,
    Forbidden,
    ForeignOrigin,
    QueueFull,
    RateLimited,
    SynapseError,
    Unauthenticated,
    WaitTimedOut,
)
from synapse.core.task import Task
from synapse.dialects.a2a_v0_3 import routes as former_errors
from synapse.dialects.a2a_v0_3.encode import PROTO_JSON
from synapse.dialects.a2a_v0_3.encode import security_fields as former_fields
from synapse.dialects.a2a_v1 import encode as current_encode
from synapse.dialects.a2a_v1 import routes as current_errors
from synapse.dialects.a2a_v1.encode import security_fields
from synapse.dialects.hub import encode as hub_errors
from synapse.dialects.supervisor import routes as supervisor_errors
from synapse.dialects.synapse import encode as own_errors
from synapse.dialects.task_json import task_object
from tests.samples.tasks import a_task

ALL = AuthMethods(api_keys=True, jwt_issuer="https://i", jwt_scopes=("synapse:read",), custom="Our badge")
DIALECTS = [own_errors, current_errors, former_errors, supervisor_errors, hub_errors]


SHOWN = [
    current_encode.task_object,
    PROTO_JSON.task_object,
    task_object,
]


@pytest.mark.parametrize("shown", SHOWN, ids=["1.0", "0.3", "own"])
def test_a_task_does_not_tell_whose_it_is_at_another_gateway(shown: Callable[[Task], Any]) -> None:
    task = a_task(metadata={"ttl": 60, GATEWAY_SCOPE: "key:ci", GATEWAY_MACHINE: "hub"})

    told = shown(task)["metadata"]

    assert told["ttl"] == 60
    assert told.keys().isdisjoint({GATEWAY_SCOPE, GATEWAY_MACHINE})


def test_a_1_0_card_names_the_schemes_as_the_oracle_does() -> None:
    told = security_fields(ALL)

    card = ParseDict(told, a2a_pb2.AgentCard())
    again = MessageToDict(card)
    assert again["securitySchemes"] == told["securitySchemes"]
    assert [list(requirement["schemes"]) for requirement in again["securityRequirements"]] == [
        ["apiKey"],
        ["apiKeyBearer"],
        ["jwt"],
    ]
    assert told["securityRequirements"][2] == {"schemes": {"jwt": {"list": ["synapse:read"]}}}


def test_a_0_3_card_names_the_schemes_as_openapi_does() -> None:
    told = former_fields(ALL)

    assert told["securitySchemes"]["apiKey"] == {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "An API key of this gateway",
    }
    assert told["securitySchemes"]["jwt"]["bearerFormat"] == "JWT"
    assert told["securitySchemes"]["custom"]["description"] == "Our badge"
    assert told["security"] == [{"apiKey": []}, {"apiKeyBearer": []}, {"jwt": ["synapse:read"]}]


@pytest.mark.parametrize("fields", [security_fields, former_fields])
def test_a_gateway_without_credentials_names_no_scheme(fields: Any) -> None:
    assert fields(AuthMethods()) == {}


@pytest.mark.parametrize("fields", [security_fields, former_fields])
def test_a_card_names_only_the_configured_schemes(fields: Any) -> None:
    assert list(fields(AuthMethods(api_keys=True))["securitySchemes"]) == ["apiKey", "apiKeyBearer"]
    assert list(fields(AuthMethods(jwt_issuer="https://i"))["securitySchemes"]) == ["jwt"]
    custom = fields(AuthMethods(custom="Our badge"))
    assert list(custom) == ["securitySchemes"], "the standard has no scheme for it, so none is required by name"


def test_a_challenge_names_every_method() -> None:
    assert ALL.challenge("invalid_token") == (
        'Bearer realm="synapse", error="invalid_token", ApiKey realm="synapse", header="X-API-Key", '
        'Custom realm="synapse"'
    )
    assert AuthMethods(jwt_issuer="https://i").challenge() == 'Bearer realm="synapse"'
    assert AuthMethods().challenge() == 'Bearer realm="synapse"'


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.__name__.split(".")[-2])
def test_every_dialect_has_the_challenge_the_refusal_and_the_time_to_wait(dialect: Any) -> None:
    refused = dialect.encode_error(CredentialsRefused("no", challenge='Bearer realm="x"'))
    assert refused.status == 401
    assert (b"www-authenticate", b'Bearer realm="x"') in refused.headers
    assert (b"www-authenticate", b"Bearer") in dialect.encode_error(Unauthenticated()).headers

    forbidden = dialect.encode_error(Forbidden("these credentials do not allow to send"))
    assert forbidden.status == 403
    assert "do not allow to send" in json.dumps(json.loads(forbidden.body))

    limited = dialect.encode_error(RateLimited("too many requests", seconds=1.2))
    assert limited.status == 429
    assert (b"retry-after", b"2") in limited.headers


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (CredentialsRefused("no", challenge="Bearer"), "UnauthenticatedError"),
        (Unauthenticated("no"), "UnauthenticatedError"),
        (Forbidden("no"), "PermissionDeniedError"),
        (ForeignOrigin("no"), "PermissionDeniedError"),
        (RateLimited("no", seconds=1), "RateLimitedError"),
        (QueueFull("no"), "QueueFullError"),
        (AgentExited("no"), "AgentUnavailableError"),
        (WaitTimedOut("no"), "TimeoutError"),
    ],
)
def test_0_3_does_not_call_a_refusal_an_internal_error(error: SynapseError, name: str) -> None:
    assert json.loads(former_errors.encode_error(error).body)["type"] == name
    assert json.loads(former_errors.encode_fault(error))["code"] == -32000, "a refusal by a rule of the server"
