"""A real host or gateway answers any HTTP request soon, as the sender's fault, and shows no internal details.

SYNAPSE_HOSTILE_REQUESTS is the number of requests to each; `scripts/clients` sends more than usual.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synapse.core.agent import AgentEntry
from synapse.host.routes import host_dialects
from tests.conformance.real_gateway import IN_PROCESS, gateway
from tests.conformance.real_hosts import scripted_host
from tests.conformance.wire_client import Reply, WireClient
from tests.property.test_a2a_hostile import METHODS, PARAMS
from tests.property.test_contract_hostile import HUB_BODY, SUPERVISOR_BODY
from tests.unit.dialects.synapse.test_hostile_bodies import BODY, JSON, near

pytestmark = pytest.mark.integration

REQUESTS: Final = int(os.environ.get("SYNAPSE_HOSTILE_REQUESTS", "200"))
NOT_TRIED: Final = ("/external", "/attach", "/ws", "/status/subscribe", "/status/watch", "/dashboard/events")
"""Paths that call other machines, that are not plain requests, and the streams that end with their server."""
INSIDE: Final = (b"Traceback", b"sqlite", b".py", b"site-packages", b"0x7")
"""Texts that only internal details contain."""


@dataclass(frozen=True)
class Served:
    """A server under test: its address, paths and ids."""

    client: WireClient
    places: tuple[tuple[str, str], ...]
    ids: tuple[str, ...]
    secret: bytes
    """What no answer may contain: a gateway's callers are strangers, those of a host on this machine are its user."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    home = tmp_path_factory.mktemp("x")
    with scripted_host(home) as host, gateway(home, IN_PROCESS, "--no-auth") as running:
        there = WireClient(running.entry.port)
        document = there.request("GET", "/openapi.json").json
        mounted = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
        own = [(route.method, route.path) for dialect in host_dialects_of(host) for route in dialect.routes]
        here = WireClient(host.port)
        yield {
            "host": Served(here, tried(own), (made(here, "/message:send"), "none"), b"Traceback"),
            "gateway": Served(
                there,
                tried(place for place in mounted if place != ("POST", "/agents")),
                (made(there, "/agents/conf/v1/message:send"), "conf", "tck", "conf:none"),
                str(home).encode(),
            ),
        }


def host_dialects_of(entry: AgentEntry) -> Any:
    return host_dialects(entry, title="Scripted", pty_wrapped=False)


def tried(places: Any) -> tuple[tuple[str, str], ...]:
    return tuple((method, path) for method, path in places if not path.startswith(NOT_TRIED))


def made(client: WireClient, path: str) -> str:
    """Returns the id of a task that has ended."""
    message = {"messageId": "hostile-first", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    reply = client.request("POST", path, {"message": message}, {"A2A-Version": "1.0"})
    return str(reply.json["task"]["id"])


def rpc_call(method: str, params: Any, call_id: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}


def tool_call(tool: object, arguments: Any, token: Any, call_id: object) -> dict[str, Any]:
    return rpc_call("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": token}}, call_id)


CALLS = st.builds(rpc_call, METHODS, near(PARAMS), st.integers() | st.text(max_size=3) | st.none())
TOOL_CALLS = st.builds(
    tool_call,
    st.sampled_from(["agents", "send", "status", "cancel", "reply", 7]),
    near({"to": "tck", "text": "hi", "wait": "none", "idempotency_key": "k", "of": "tck", "task": "none"}),
    JSON,
    JSON,
)
BODIES = st.one_of(
    TOOL_CALLS.map(json.dumps),
    st.lists(TOOL_CALLS, max_size=3).map(json.dumps),
    *(near(body).map(json.dumps) for body in (PARAMS, SUPERVISOR_BODY, HUB_BODY, BODY)),
    CALLS.map(json.dumps),
    st.sampled_from(["", "null", "[" * 5000, '{"a":' * 100, '"\\ud800"', "1e400", '{"message":{"content":"\\u0000"}}']),
).map(str.encode) | st.binary(max_size=40)
SEGMENTS = st.sampled_from(["none", "%ff", "%00", "%2e%2e", "a%2Fb", "a:b", "x" * 300, "{id}", "%F0%9F%92%A9", "'--"])
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "A2A-Version": st.sampled_from(["1.0", "0.3", "1.0.7", "9", "x", "1.0,0.3"]),
        "Accept": st.sampled_from(["text/event-stream", "application/json", "*/*", "x"]),
        "Content-Type": st.sampled_from(["application/json", "text/plain", "application/a2a+json", "x"]),
        "Last-Event-ID": st.sampled_from(["0", "7", "x", "-1", "9" * 30]),
        "traceparent": st.sampled_from(["00-" + "a" * 32 + "-" + "b" * 16 + "-01", "x"]),
        "Authorization": st.sampled_from(["Bearer x", "Basic eA==", "x"]),
        "MCP-Protocol-Version": st.sampled_from(["2026-07-28", "2025-06-18", "x"]),
        "Mcp-Method": st.sampled_from(["tools/call", "tools/list", "x"]),
        "Mcp-Name": st.sampled_from(["send", "=?base64?c2VuZA==?=", "=?base64?!?=", "x"]),
        "Origin": st.sampled_from(["http://evil.example.com", "null"]),
    },
)
QUERIES = st.sampled_from(
    ["", "?pageSize=3", "?pageSize=x", "?A2A-Version=1.0", "?%ff=%ff", "?status=failed", "?metadata=%7B", "?limit=-1"]
)


@st.composite
def requests_of(draw: st.DrawFn, target: Served) -> tuple[str, str, bytes, dict[str, str]]:
    method, path = draw(st.sampled_from(target.places))
    while "{" in path:
        segment = draw(st.sampled_from(target.ids) | SEGMENTS)
        path = re.sub(r"\{\w+\}", segment.replace("\\", "").replace("{", "%7B"), path, count=1)
    wrong = draw(st.sampled_from([False, False, False, True]))
    if wrong:
        method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"]))
    return method, path + draw(QUERIES), draw(BODIES), draw(HEADERS)


@pytest.mark.parametrize("where", ["host", "gateway"])
@settings(
    max_examples=REQUESTS,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_every_request_is_answered_without_internal_details(
    where: str, served: dict[str, Served], data: st.DataObject
) -> None:
    target = served[where]
    method, path, body, headers = data.draw(requests_of(target))

    reply = target.client.request(method, path, body if method in ("POST", "PUT", "PATCH") else None, headers)

    # The user, as whom this gateway takes every caller, may see the folders of agents there.
    check(reply, b"Traceback" if path.startswith("/dashboard") else target.secret)


def check(reply: Reply, secret: bytes) -> None:
    assert reply.status < 500, reply.body
    is_page = reply.headers.get("content-type", "").startswith("text/html")
    # Only documents name classes; an answer to a caller never does.
    if not is_page and b'"openapi":' not in reply.body:
        assert not [word for word in INSIDE if word in reply.body], reply.body
    assert secret not in reply.body
    assert b'"code":-32603' not in reply.body


def test_host_and_gateway_work_as_before_afterwards(served: dict[str, Served]) -> None:
    assert served["gateway"].client.request("GET", "/readyz").status == 200
    assert made_again(served["host"].client, "/message:send")
    assert made_again(served["gateway"].client, "/agents/tck/v1/message:send")


def made_again(client: WireClient, path: str) -> bool:
    message = {"messageId": "hostile-last", "role": "ROLE_USER", "parts": [{"text": "still there?"}]}
    reply = client.request("POST", path, {"message": message}, {"A2A-Version": "1.0"})
    return bool(reply.json["task"]["status"]["state"] == "TASK_STATE_COMPLETED")
