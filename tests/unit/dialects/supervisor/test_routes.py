"""The supervisor's errors have codes of its tables, and its push configurations have routes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

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
from synapse.core.push import PushConfig
from synapse.core.requests import DeletePushConfig, GetPushConfig, ListPushConfigs, SetPushConfig
from synapse.dialects.dialect import Call
from synapse.dialects.supervisor.routes import TITLES, ErrorShape, encode_error, error_shape
from tests.samples.calls import told
from tests.unit.dialects.all_errors import ALL_ERRORS, blank
from tests.unit.dialects.supervisor.samples import AGENT, TASK_ID, ask

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
def test_each_error_has_its_row_of_the_tables(name: str, code: int, http: int) -> None:
    kind = next(kind for kind in ALL_ERRORS if kind.__name__ == name)

    assert error_shape(kind) == ErrorShape(code, http)


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_an_object_of_the_documents_form(kind: type[SynapseError]) -> None:
    answer = encode_error(blank(kind))

    error = json.loads(answer.body)["error"]
    assert list(error) == ["code", "message", "data"]
    assert error["message"] == TITLES[error["code"]]
    assert error["data"].startswith("what happened")
    assert answer.status in (400, 401, 403, 404, 405, 429, 500)


def test_every_code_of_the_tables_is_used() -> None:
    assert {error_shape(kind).code for kind in ALL_ERRORS} == set(TITLES)


def test_the_hint_follows_the_message_of_an_error() -> None:
    error = json.loads(encode_error(InvalidField("status", "is no state", hint="use running")).body)["error"]

    assert error["data"] == "status: is no state; use running"
    assert json.loads(encode_error(TaskNotFound("x")).body)["error"]["data"] == "no task 'x'"


def test_headers_name_the_allowed_methods_and_the_challenge() -> None:
    assert encode_error(MethodNotAllowed("PUT", "/tasks", ["GET", "POST"])).headers == ((b"allow", b"GET, POST"),)
    assert encode_error(Unauthenticated()).headers == ((b"www-authenticate", b"Bearer"),)
    refused = CredentialsRefused(challenge='Bearer realm="synapse"')
    assert encode_error(refused).headers == ((b"www-authenticate", b'Bearer realm="synapse"'),)
    assert encode_error(RateLimited("too many", seconds=2.1)).headers == ((b"retry-after", b"3"),)
    assert encode_error(Forbidden()).headers == ()
    assert encode_error(MalformedJson()).headers == ()


def test_an_error_without_a_row_gets_the_row_of_its_parent() -> None:
    class NewRefusal(errors.QueueFull):
        """Not known to the table."""

    assert error_shape(NewRefusal).http == 429


GLOBAL_ID = f"{AGENT}:{TASK_ID}"
CONFIGS = "/tasks/{id}/pushNotificationConfigs"
CONFIG = "/tasks/{id}/pushNotificationConfigs/{configId}"
PLAIN = PushConfig(id="c-1", url="https://x.example", dialect="supervisor")


@pytest.mark.parametrize("path_id", [TASK_ID, GLOBAL_ID])
@pytest.mark.parametrize("body_id", [{}, {"taskId": TASK_ID}, {"taskId": GLOBAL_ID}])
def test_a_webhook_is_set_for_the_task_of_the_address(path_id: str, body_id: dict[str, Any]) -> None:
    body = {**body_id, "pushNotificationConfig": {"id": "c-1", "url": "https://x.example"}}
    call = ask("POST", CONFIGS, body, id=path_id)

    assert call.request == SetPushConfig(task_id=TASK_ID, config=PLAIN)
    assert told(call, PLAIN)["taskId"] == GLOBAL_ID


def test_a_body_that_names_another_task_is_refused() -> None:
    with pytest.raises(InvalidField, match="taskId"):
        ask("POST", CONFIGS, {"taskId": "agent2:t", "pushNotificationConfig": {"url": "u"}}, id=TASK_ID)


def test_a_body_without_a_webhook_is_refused() -> None:
    with pytest.raises(InvalidField, match="pushNotificationConfig"):
        ask("POST", CONFIGS, {"taskId": TASK_ID}, id=TASK_ID)


def test_webhooks_are_read_listed_and_deleted() -> None:
    assert ask("GET", CONFIG, id=GLOBAL_ID, configId="c-1").request == GetPushConfig(task_id=TASK_ID, config_id="c-1")
    assert ask("GET", CONFIGS, id=GLOBAL_ID).request == ListPushConfigs(task_id=TASK_ID)
    delete = ask("DELETE", CONFIG, id=GLOBAL_ID, configId="c-1")
    assert delete.request == DeletePushConfig(task_id=TASK_ID, config_id="c-1")
    assert isinstance(delete, Call)
    assert (delete.status, delete.encode(None)) == (200, b"")


def test_a_configuration_is_shown_in_full() -> None:
    whole = replace(PLAIN, token="t", scheme="basic", credentials="c")

    assert told(ask("GET", CONFIGS, id=TASK_ID), (whole,))[0]["pushNotificationConfig"] == {
        "id": "c-1",
        "url": "https://x.example",
        "token": "t",
        "authentication": {"schemes": ["basic"], "credentials": "c"},
    }


def test_absent_fields_of_a_configuration_are_left_out() -> None:
    assert told(ask("GET", CONFIG, id=TASK_ID, configId="c-1"), PLAIN) == {
        "taskId": GLOBAL_ID,
        "pushNotificationConfig": {"id": "c-1", "url": "https://x.example"},
    }
    assert told(ask("GET", CONFIGS, id=TASK_ID), ()) == []
