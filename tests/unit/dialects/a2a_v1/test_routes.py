"""The operations of A2A 1.0 answer as their callers asked, and errors follow the table of 1.0.1, row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synapse.core import errors
from synapse.core.errors import (
    ExtensionRequired,
    InvalidField,
    MethodNotAllowed,
    SynapseError,
    TaskNotFound,
    Unauthenticated,
    VersionNotSupported,
)
from synapse.core.events import StateChanged, Update
from synapse.core.message import Artifact, TextPart
from synapse.core.store import TaskPage
from synapse.core.task import TaskState
from synapse.dialects.a2a_v1.routes import ERROR_SHAPES, ErrorShape, encode_error, encode_fault, error_shape
from synapse.dialects.dialect import AnyCall, Call, StreamCall
from synapse.dialects.paths import A2A_V1_OPERATIONS, A2A_V1_PREFIXES, ONLY_IN_0_3, TENANT, a2a_v1_paths
from tests.samples.tasks import UPDATED, a_message, a_task
from tests.unit.dialects.a2a_v1.samples import DIALECT, MESSAGE, ROUTES, rest, rpc
from tests.unit.dialects.all_errors import ALL_ERRORS, blank

SEND: dict[str, Any] = {"message": MESSAGE}
HISTORY = (a_message(message_id="m-1"), a_message(message_id="m-2"))


def told(call: AnyCall, result: Any) -> Any:
    assert isinstance(call, Call)
    return json.loads(call.encode(result))


def test_every_operation_of_the_paths_has_its_routes() -> None:
    assert set(ROUTES) == set(a2a_v1_paths())
    with_tenant = sum(TENANT in prefix for prefix in A2A_V1_PREFIXES)
    known = sum(len(places) for places in A2A_V1_OPERATIONS.values())
    assert len(a2a_v1_paths()) == len(A2A_V1_PREFIXES) * known - with_tenant * len(A2A_V1_OPERATIONS[ONLY_IN_0_3])
    assert {route.media_type for route in ROUTES.values()} == {b"application/a2a+json"}


def test_a_sent_message_is_answered_with_a_task_and_the_requested_length_of_history() -> None:
    task = a_task(history=HISTORY)

    assert len(told(rpc("SendMessage", SEND), task)["task"]["history"]) == 2
    one = {**SEND, "configuration": {"historyLength": 1}}
    assert len(told(rest("POST", "/message:send", one), task)["task"]["history"]) == 1
    none = {**SEND, "configuration": {"historyLength": 0}}
    assert "history" not in told(rpc("SendMessage", none), task)["task"]


def test_a_task_is_answered_bare() -> None:
    task = a_task(history=HISTORY)

    assert told(rpc("GetTask", {"id": task.id}), task)["id"] == task.id
    cut = rest("GET", "/tasks/{id}", query="historyLength=1", id=task.id)
    assert [message["messageId"] for message in told(cut, task)["history"]] == ["m-2"]
    assert told(rest("POST", "/tasks/{id}:cancel", id=task.id), task)["id"] == task.id


def test_a_list_has_the_requested_page_size_history_and_artifacts() -> None:
    artifact = Artifact(artifact_id="a", parts=(TextPart(text="x"),))
    page = TaskPage((a_task(history=HISTORY, artifacts=(artifact,)),), "", 1)

    plain = told(rpc("ListTasks", {}), page)
    assert (plain["pageSize"], plain["totalSize"], plain["nextPageToken"]) == (50, 1, "")
    assert "artifacts" not in plain["tasks"][0]
    full = told(rest("GET", "/tasks", query="includeArtifacts=true&pageSize=5&historyLength=0"), page)
    assert full["pageSize"] == 5
    assert full["tasks"][0]["artifacts"]
    assert "history" not in full["tasks"][0]


def test_events_of_a_stream_have_an_id_and_no_name() -> None:
    call = rpc("SubscribeToTask", {"id": "t"})
    assert isinstance(call, StreamCall)
    task = a_task(state=TaskState.COMPLETED)

    event = call.encode(Update(9, StateChanged(task_id=task.id, at=UPDATED, state=task.state), task))

    assert event is not None
    assert (event.id, event.name) == ("9", "")
    assert "statusUpdate" in json.loads(event.data)


def test_the_first_event_has_the_requested_length_of_history() -> None:
    call = rpc("SendStreamingMessage", {**SEND, "configuration": {"historyLength": 1}})
    assert isinstance(call, StreamCall)

    event = call.encode(Update(9, None, a_task(history=HISTORY)))

    assert event is not None
    assert len(json.loads(event.data)["task"]["history"]) == 1


def test_the_dialect_has_its_name() -> None:
    assert DIALECT.name == "a2a_v1"


# The specification's table: error, JSON-RPC code, gRPC status, HTTP status, reason.
TABLE = [
    ("TaskNotFound", -32001, "NOT_FOUND", 404, "TASK_NOT_FOUND"),
    ("TaskNotCancelable", -32002, "FAILED_PRECONDITION", 400, "TASK_NOT_CANCELABLE"),
    ("PushNotSupported", -32003, "FAILED_PRECONDITION", 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ("UnsupportedOperation", -32004, "FAILED_PRECONDITION", 400, "UNSUPPORTED_OPERATION"),
    ("TaskFinished", -32004, "FAILED_PRECONDITION", 400, "UNSUPPORTED_OPERATION"),
    ("UnsupportedMediaType", -32005, "INVALID_ARGUMENT", 400, "CONTENT_TYPE_NOT_SUPPORTED"),
    ("ExternalAgentFailed", -32006, "INTERNAL", 500, "INVALID_AGENT_RESPONSE"),
    ("ExtendedCardMissing", -32007, "FAILED_PRECONDITION", 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    ("ExtensionRequired", -32008, "FAILED_PRECONDITION", 400, "EXTENSION_SUPPORT_REQUIRED"),
    ("VersionNotSupported", -32009, "FAILED_PRECONDITION", 400, "VERSION_NOT_SUPPORTED"),
    ("MalformedJson", -32700, "INVALID_ARGUMENT", 400, "INVALID_REQUEST"),
    ("MalformedCall", -32600, "INVALID_ARGUMENT", 400, "INVALID_REQUEST"),
    ("RouteNotFound", -32601, "NOT_FOUND", 404, "METHOD_NOT_FOUND"),
    ("InvalidRequest", -32602, "INVALID_ARGUMENT", 400, "INVALID_PARAMS"),
    ("InvalidField", -32602, "INVALID_ARGUMENT", 400, "INVALID_PARAMS"),
    ("InternalFailure", -32603, "INTERNAL", 500, "INTERNAL_ERROR"),
    ("Unauthenticated", -32000, "UNAUTHENTICATED", 401, "UNAUTHENTICATED"),
    ("SenderMismatch", -32000, "PERMISSION_DENIED", 403, "PERMISSION_DENIED"),
    ("QueueFull", -32000, "RESOURCE_EXHAUSTED", 429, "QUEUE_FULL"),
]


@pytest.mark.parametrize(("name", "code", "status", "http", "reason"), TABLE)
def test_each_error_has_its_row_of_the_specification(name: str, code: int, status: str, http: int, reason: str) -> None:
    kind = next(kind for kind in ALL_ERRORS if kind.__name__ == name)

    assert error_shape(kind) == ErrorShape(code, status, http, reason)


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_its_details_over_rest(kind: type[SynapseError]) -> None:
    answer = encode_error(blank(kind))

    told = json.loads(answer.body)["error"]
    assert set(told) == {"code", "status", "message", "details"}
    assert told["code"] == answer.status >= 400
    assert told["message"] == "what happened"
    info = told["details"][0]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert info["domain"] == "a2a-protocol.org"
    assert info["reason"] == info["reason"].upper()
    assert all(isinstance(value, str) for value in info.get("metadata", {}).values())
    assert answer.media_type == b"application/a2a+json"


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_its_details_over_json_rpc(kind: type[SynapseError]) -> None:
    error = blank(kind)
    told = json.loads(encode_fault(error))

    assert set(told) == {"code", "message", "data"}
    assert -32768 <= told["code"] <= -32000
    assert told["data"] == json.loads(encode_error(error).body)["error"]["details"]


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_only_our_own_defects_are_internal_errors(kind: type[SynapseError]) -> None:
    internal = error_shape(kind).reason == "INTERNAL_ERROR"

    assert internal == (kind.__name__ in ("SynapseError", "InternalFailure"))


def test_an_error_without_a_row_gets_the_row_of_its_parent() -> None:
    class NewRefusal(errors.QueueFull):
        """Not known to the table."""

    assert NewRefusal not in ERROR_SHAPES
    assert error_shape(NewRefusal).http == 429


def test_a_wrong_field_is_named_in_a_detail_of_its_own() -> None:
    details = json.loads(encode_error(InvalidField("message.parts", "must not be empty")).body)["error"]["details"]

    assert details[1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": "must not be empty"}],
    }


def test_the_hint_is_in_the_metadata() -> None:
    told = json.loads(encode_fault(VersionNotSupported("2.0", ("1.0", "0.3"))))

    assert told["message"] == "A2A version '2.0' is not supported"
    assert told["data"][0]["metadata"] == {"hint": "this agent speaks 1.0 and 0.3"}
    assert "metadata" not in json.loads(encode_fault(TaskNotFound("x")))["data"][0]
    assert "urn:a, urn:b" in str(ExtensionRequired(("urn:b", "urn:a")))


def test_headers_name_the_allowed_methods_and_the_challenge() -> None:
    assert encode_error(MethodNotAllowed("PUT", "/tasks", ["GET", "POST"])).headers == ((b"allow", b"GET, POST"),)
    assert encode_error(Unauthenticated()).headers == ((b"www-authenticate", b"Bearer"),)
    assert encode_error(TaskNotFound("x")).headers == ()
