"""What A2A requires of the wire itself: versions, content types, cards, and errors with their codes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.real_hosts import scripted_host
from tests.conformance.wire_client import Reply, WireClient

pytestmark = pytest.mark.integration

CARD = "/.well-known/agent-card.json"
ONE = {"A2A-Version": "1.0"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    with scripted_host(tmp_path_factory.mktemp("w")) as entry:
        yield WireClient(entry.port)


def message(**change: Any) -> dict[str, Any]:
    return {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "hi"}], **change}}


def call(host: WireClient, body: object, **headers: str) -> dict[str, Any]:
    named = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    reply = host.request("POST", "/", body, named)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    answer: dict[str, Any] = reply.json
    return answer


def rpc(method: str, params: Any = None, call_id: Any = 7) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "method": method, **({} if params is None else {"params": params})}


def reason(reply: Reply) -> str:
    return str(reply.json["error"]["details"][0]["reason"])


@pytest.mark.parametrize("version", ["1.0", "1.0.1"])
def test_a_version_is_named_in_a_header_or_in_the_query(host: WireClient, version: str) -> None:
    by_header = host.request("GET", "/tasks", headers={"A2A-Version": version})
    by_query = host.request("GET", f"/tasks?A2A-Version={version}")

    assert set(by_header.json) == set(by_query.json) == {"tasks", "nextPageToken", "pageSize", "totalSize"}


@pytest.mark.parametrize("version", ["1.7", "2.0", "99.0", "0.1", "latest"])
def test_a_version_that_is_not_spoken_is_refused_everywhere(host: WireClient, version: str) -> None:
    headers = {"A2A-Version": version, "Content-Type": "application/json"}
    for method, path, body in (
        ("GET", "/tasks", None),
        ("GET", "/tasks/some-task", None),
        ("POST", "/message:send", message()),
        ("POST", "/message:stream", message()),
        ("DELETE", "/tasks/t/pushNotificationConfigs/c", None),
        ("GET", "/v1/tasks/some-task", None),
    ):
        reply = host.request(method, path, body, headers)
        assert (reply.status, reason(reply)) == (400, "VERSION_NOT_SUPPORTED"), path
    told = call(host, rpc("SendMessage", message()), A2A_Version=version)
    assert (told["id"], told["error"]["code"]) == (7, -32009)


def test_a_call_without_a_version_is_known_by_its_method(host: WireClient) -> None:
    new = call(host, rpc("SendMessage", message()))
    old_message = {**message(role="user", parts=[{"kind": "text", "text": "hi"}])}
    old = call(host, rpc("message/send", old_message))

    assert new["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert old["result"]["status"]["state"] == "completed"


def test_a_method_of_another_version_is_not_found(host: WireClient) -> None:
    assert call(host, rpc("message/send", {}), A2A_Version="1.0")["error"]["code"] == -32601
    assert call(host, rpc("SendMessage", message()), A2A_Version="0.3")["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("body", "code", "call_id"),
    [
        (b"{", -32700, None),
        (b"[]", -32600, None),
        ({"id": 3, "method": "GetTask"}, -32600, 3),
        (rpc("DoSomething"), -32601, 7),
        (rpc("tasks/doSomething", call_id="x"), -32601, "x"),
        (rpc("GetTask"), -32602, 7),
        (rpc("GetTask", []), -32602, 7),
        (rpc("GetTask", {"id": "no-such-task"}), -32001, 7),
        (rpc("SendMessage", {"message": {}}), -32602, 7),
        (rpc("SendStreamingMessage", {"message": {}}), -32602, 7),
        (rpc("SubscribeToTask", {"id": "no-such-task"}), -32001, 7),
    ],
)
def test_each_mistake_of_json_rpc_has_its_code(host: WireClient, body: object, code: int, call_id: object) -> None:
    told = call(host, body)

    assert (told["error"]["code"], told["id"]) == (code, call_id)
    assert told["error"]["data"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "word"),
    [
        ("POST", "/message:send", b"{", 400, "INVALID_REQUEST"),
        ("POST", "/message:send", {"message": {}}, 400, "INVALID_PARAMS"),
        ("POST", "/message:send", {}, 400, "INVALID_PARAMS"),
        ("POST", "/message:stream", {"message": {}}, 400, "INVALID_PARAMS"),
        ("GET", "/tasks/no-such-task", None, 404, "TASK_NOT_FOUND"),
        ("POST", "/tasks/no-such-task:cancel", None, 404, "TASK_NOT_FOUND"),
        ("GET", "/tasks/no-such-task:subscribe", None, 404, "TASK_NOT_FOUND"),
        ("GET", "/tasks?pageSize=0", None, 400, "INVALID_PARAMS"),
        ("GET", "/nowhere", None, 404, "METHOD_NOT_FOUND"),
        ("PUT", "/message:send", {}, 405, "METHOD_NOT_FOUND"),
        ("GET", "/extendedAgentCard", None, 400, "UNSUPPORTED_OPERATION"),
    ],
)
def test_each_mistake_of_rest_has_its_status_and_reason(
    host: WireClient, method: str, path: str, body: object, status: int, word: str
) -> None:
    reply = host.request(method, path, body, ONE)

    assert (reply.status, reason(reply)) == (status, word)
    assert reply.json["error"]["code"] == status
    assert reply.headers["content-type"] == "application/a2a+json"


def test_a_wrong_field_is_named(host: WireClient) -> None:
    reply = host.request("POST", "/message:send", message(parts=[]), ONE)

    assert reply.json["error"]["details"][1]["fieldViolations"] == [
        {"field": "message.parts", "description": "must not be empty"}
    ]


@pytest.mark.parametrize("media_type", ["application/json", "application/a2a+json", "application/json; charset=utf-8"])
def test_both_content_types_of_json_are_accepted(host: WireClient, media_type: str) -> None:
    reply = host.request("POST", "/message:send", message(), {**ONE, "Content-Type": media_type})

    assert (reply.status, reply.headers["content-type"]) == (200, "application/a2a+json")


def test_other_content_types_are_refused(host: WireClient) -> None:
    by_rest = host.request("POST", "/message:send", message(), {**ONE, "Content-Type": "text/plain"})
    by_rpc = call(host, rpc("SendMessage", message()), Content_Type="text/plain")

    assert (by_rest.status, reason(by_rest)) == (400, "CONTENT_TYPE_NOT_SUPPORTED")
    assert by_rpc["error"]["code"] == -32005


def test_a_slash_at_the_end_is_ignored(host: WireClient) -> None:
    assert host.request("POST", "/message:send/", message(), ONE).status == 200
    assert host.request("GET", "/tasks/", headers=ONE).status == 200


def test_unknown_fields_are_ignored(host: WireClient) -> None:
    body = {**message(future=1), "tenant": "", "more": {"a": 1}}

    assert host.request("POST", "/message:send", body, ONE).status == 200


def test_the_card_can_be_cached_and_revalidated(host: WireClient) -> None:
    card = host.request("GET", CARD)
    again = host.request("GET", CARD, headers={"If-None-Match": card.headers["etag"]})

    assert card.json["supportedInterfaces"][0]["url"] == f"http://localhost:{host.port}"
    assert "max-age=" in card.headers["cache-control"]
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == card.headers["etag"]
    assert host.request("HEAD", CARD).headers["etag"] == card.headers["etag"]


def test_the_old_path_of_the_card_has_the_synapse_card(host: WireClient) -> None:
    assert "synapse" in host.request("GET", "/.well-known/agent.json").json["extensions"]


def test_the_paths_of_our_own_dialect_are_not_touched(host: WireClient) -> None:
    made = host.request(
        "POST", "/tasks/send", {"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
    ).json["task"]

    assert host.request("GET", f"/tasks/{made['id'][:8]}").json["id"] == made["id"]
    assert set(host.request("GET", "/tasks").json) == {"tasks", "next_cursor"}
    assert host.request("GET", "/nowhere").code == "route_not_found"


def test_parts_of_0_3_say_what_they_are(host: WireClient) -> None:
    """0.3 §6.5: `kind` is required in every part; a part without it is one of 1.0, or invalid."""
    told = call(host, rpc("message/send", message(role="user", parts=[{"text": "hi"}])))

    assert (told["error"]["code"], told["error"]["data"]["field"]) == (-32602, "message.parts[0].kind")
