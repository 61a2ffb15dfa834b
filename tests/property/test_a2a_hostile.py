"""Whatever is sent to the paths of A2A: an answer that blames the sender, and never one that blames us."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from synapse.core.agent import AgentEntry
from synapse.core.errors import TaskNotFound
from synapse.host.routes import DialectChoice, host_dialects
from synapse.server.app import HttpApp
from tests.unit.dialects.synapse.test_hostile_bodies import near
from tests.unit.server.exchange import ME, Exchange, FixedService

ENTRY = AgentEntry("synapse-codex-8120", "codex", port=8120, endpoint="http://localhost:8120", inbox="codex")
DIALECTS = host_dialects(ENTRY, title="Codex", pty_wrapped=True)

PARTS: list[dict[str, Any]] = [
    {"text": "t", "filename": "f", "mediaType": "m", "metadata": {}},
    {"raw": "aGk="},
    {"url": "u"},
    {"data": {"a": 1}},
    {"kind": "text", "text": "t"},
    {"kind": "file", "file": {"bytes": "aGk=", "uri": "u", "name": "n", "mimeType": "m", "fileWithBytes": "aGk="}},
    {"data": {"data": {}}},
]
MESSAGE: dict[str, Any] = {
    "messageId": "m",
    "message_id": "m",
    "role": "ROLE_USER",
    "parts": PARTS,
    "content": PARTS,
    "contextId": "c",
    "taskId": "t",
    "metadata": {},
    "extensions": ["e"],
    "referenceTaskIds": ["t"],
}
CONFIGURATION: dict[str, Any] = {
    "acceptedOutputModes": ["text/plain"],
    "taskPushNotificationConfig": {"url": "u"},
    "pushNotificationConfig": {"url": "u"},
    "historyLength": 1,
    "history_length": "1",
    "returnImmediately": True,
    "blocking": True,
}
PARAMS: dict[str, Any] = {
    "id": "t",
    "tenant": "",
    "message": MESSAGE,
    "request": MESSAGE,
    "configuration": CONFIGURATION,
    "metadata": {},
    "status": "TASK_STATE_WORKING",
    "pageSize": 3,
    "pageToken": "1.2",
    "historyLength": 0,
    "statusTimestampAfter": "2026-01-15T10:30:00Z",
    "includeArtifacts": True,
}
METHODS = st.sampled_from(
    [
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
        "ListTasks",
        "CancelTask",
        "SubscribeToTask",
        "GetExtendedAgentCard",
        "CreateTaskPushNotificationConfig",
        "message/send",
        "message/stream",
        "tasks/get",
        "tasks/cancel",
        "tasks/resubscribe",
        "tasks/pushNotificationConfig/set",
        "nothing",
    ]
)
PLACES = st.sampled_from(
    [(route.method, route.path) for dialect in DIALECTS[1:] for route in dialect.routes]
    + [("PUT", "/message:send"), ("GET", "/tasks/%ff"), ("POST", "//"), ("GET", "/v1"), ("DELETE", "/")]
)
VERSIONS = st.sampled_from(["", "1.0", "0.3", "1.0.7", "2.0", "x"]) | st.text(
    st.characters(max_codepoint=255), max_size=5
)
QUERIES = st.sampled_from(
    [b"", b"pageSize=3", b"historyLength=x", b"A2A-Version=1.0", b"a2a-version=%ff", b"status=UNRECOGNIZED"]
) | st.binary(max_size=20)


async def answer(exchange: Exchange) -> Exchange:
    app = HttpApp(FixedService(TaskNotFound("t")), DIALECTS, admit=lambda _: ME, choose=DialectChoice(DIALECTS))
    return await exchange.run(app)


def check(exchange: Exchange) -> None:
    assert exchange.status < 500
    if exchange.status == 200 and exchange.body.startswith(b"{"):
        assert exchange.json.get("error", {}).get("code") != -32603


@settings(max_examples=300, deadline=None)
@given(place=PLACES, version=VERSIONS, query=QUERIES, body=near(PARAMS) | st.binary(max_size=60))
async def test_any_rest_request_is_answered(place: tuple[str, str], version: str, query: bytes, body: Any) -> None:
    method, path = place
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"a2a_version": version} if version else {}
    exchange = Exchange(
        method,
        path.replace("{id}", "t").replace("{config}", "c"),
        content,
        query=query,
        content_type="application/json",
        last_event_id="7",
        **named,
    )

    check(await answer(exchange))


@settings(max_examples=300, deadline=None)
@given(method=METHODS, version=VERSIONS, params=near(PARAMS), call_id=st.integers() | st.text(max_size=3) | st.none())
async def test_any_call_is_answered_with_its_id(method: str, version: str, params: Any, call_id: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}).encode()
    assume(b"Infinity" not in body and b"NaN" not in body)  # which Python writes, but is no JSON
    named = {"a2a_version": version} if version else {}
    exchange = await answer(Exchange("POST", "/", body, query=b"", content_type="application/json", **named))

    check(exchange)
    told = exchange.json if exchange.body.startswith(b"{") else json.loads(exchange.body.removeprefix(b"data: "))
    assert told["id"] == call_id
    assert "error" in told


@settings(max_examples=200, deadline=None)
@given(body=near({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": PARAMS}) | st.binary(max_size=60))
async def test_anything_at_the_door_of_json_rpc_is_answered(body: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    exchange = await answer(Exchange("POST", "/", content, query=b"", content_type="application/json"))

    check(exchange)
    assert exchange.json["jsonrpc"] == "2.0"
