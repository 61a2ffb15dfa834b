"""The OpenAPI document and its page: complete, valid, and built from the routing tables."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NoReturn

import pytest

from synapse.auth.sessions import LONGEST, SessionFile
from synapse.core.caller import AuthMethods
from synapse.core.errors import Forbidden
from synapse.core.override import override
from synapse.dialects.dashboard.routes import dashboard_dialect
from synapse.dialects.dialect import Dialect, WireRequest
from synapse.dialects.hub.routes import hub_dialect
from synapse.gateway.cards import GatewayCards, is_discovery
from synapse.gateway.config import GatewayConfig
from synapse.gateway.mcp import mcp_dialect
from synapse.gateway.metrics import Metrics
from synapse.gateway.openapi import SENTENCES, SHAPES, key_of, operations_dialect, public_paths
from synapse.gateway.routes import gateway_dialects
from synapse.gateway.service import StreamLimit
from synapse.gateway.sessions import SessionPages
from synapse.server.middleware import Addresses
from tests.fakes.clock import FakeClock

KEYS = AuthMethods(api_keys=True)
URL = "https://agents.example.com"


def refuse() -> NoReturn:
    raise Forbidden("no link is made here")


def all_dialects() -> list[Dialect]:
    clock = FakeClock()
    sessions = SessionFile(Path(), clock)
    cards = GatewayCards(addresses=Addresses(URL), methods=KEYS, config_of=GatewayConfig().agent)
    served = gateway_dialects(
        cards,
        hub_dialect(lambda _: "", KEYS),
        mcp_dialect(lambda _: "", lambda _: None, StreamLimit(1).acquire, most_wait=1),
        dashboard_dialect(lambda _: ""),
        SessionPages(sessions, clock, url=URL, cookie="", idle=LONGEST, max_body_bytes=0, refuse_link=refuse).dialect(),
    )
    return [*served, operations_dialect(Metrics(), served, KEYS, URL)]


def answer(path: str) -> Any:
    routes = {route.path: route for route in all_dialects()[-1].routes}
    return routes[path].answer(WireRequest("GET", path))  # type: ignore[union-attr]  # these two answer by themselves


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer("/openapi.json").body)
    return found


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_is_listed_once_with_all_its_dialects(document: dict[str, Any]) -> None:
    shown = {re.sub(r"\{\w+\}", "{}", name): operation for name, operation in operations(document).items()}

    probes = {"GET /healthz", "GET /readyz"}
    routes = [route for dialect in all_dialects() for route in dialect.routes]
    assert shown.keys() - probes == {key_of(route) for route in routes if "{tenant}" not in route.path}
    assert "{tenant}" in document["info"]["description"]
    assert [shown[probe]["security"] for probe in probes] == [[], []], "they need no credentials"
    for dialect in all_dialects():
        for route in (one for one in dialect.routes if "{tenant}" not in one.path):
            assert dialect.name in shown[key_of(route)]["tags"]


def test_no_text_and_no_shape_is_left_over() -> None:
    keys = {key_of(route) for dialect in all_dialects() for route in dialect.routes}

    assert SENTENCES.keys() - keys == {"GET /status"}, "that one is served beside them"
    assert {key for _, key in SHAPES} <= keys


def test_references_resolve_and_ids_are_unique(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    schemas = document["components"]["schemas"]

    for reference in re.findall(r'"#/components/schemas/([^"]+)"', text):
        assert reference in schemas
    ids = [operation["operationId"] for operation in operations(document).values()]
    assert len(set(ids)) == len(ids)
    for name, operation in operations(document).items():
        in_path = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        assert in_path == re.findall(r"\{(\w+)\}", name)
        names = [one["name"] for one in operation["parameters"]]
        assert len(set(names)) == len(names)


def test_bodies_queries_and_methods_are_described(document: dict[str, Any]) -> None:
    shown = operations(document)

    send = shown["POST /agents/{agentId}/v1/message:send"]["requestBody"]["content"]["application/json"]["schema"]
    assert [one["$ref"].rpartition("/")[2] for one in send["anyOf"]] == [
        "supervisor.SendShape",
        "a2a_v1.SendShape",
        "a2a_v0_3.ProtoSendShape",
    ]
    queried = {one["name"] for one in shown["GET /agents/{agentId}/v1/tasks"]["parameters"] if one["in"] == "query"}
    assert queried >= {"pageSize", "lastUpdatedAfter", "statusTimestampAfter"}
    listed = {one["name"] for one in shown["GET /dashboard/tasks"]["parameters"] if one["in"] == "query"}
    assert listed == {"agent", "state", "from", "search", "context", "limit", "cursor"}
    assert "text/event-stream" in shown["GET /dashboard/events"]["responses"]["2XX"]["content"]
    call = shown["POST /agents/{agentId}/v1"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"SendMessage", "message/send"} <= set(call["properties"]["method"]["enum"])


def test_what_sends_a_message_takes_the_header_that_keeps_it_for_another_machine(document: dict[str, Any]) -> None:
    taking = {
        name
        for name, operation in operations(document).items()
        if "Synapse-Queue" in [one["name"] for one in operation["parameters"] if one["in"] == "header"]
    }

    assert taking == {
        "POST /agents/{agentId}/v1/message:send",
        "POST /agents/{agentId}/v1/message:stream",
        "POST /agents/{agentId}/v1",
        "POST /agents/{agentId}",
        "POST /agents/{agentId}/messages",
        "POST /mcp",
        "POST /dashboard/agents/{agentId}/messages",
    }


def test_the_document_names_the_credentials_and_the_address(document: dict[str, Any]) -> None:
    assert document["security"] == [{"apiKey": []}, {"bearer": []}]
    assert document["servers"] == [{"url": URL}]


class _Page(HTMLParser):
    """Collects what a page would load, and checks that its tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing_from_elsewhere() -> None:
    told = answer("/docs")
    page = _Page()
    page.feed(told.body.decode())

    assert page.open == []
    assert page.loads == ["openapi.json"]
    assert (b"<code>/ws</code>" in told.body, b"`" in told.body.partition(b"<pre>")[0]) == (True, False)
    assert b"<script" not in told.body
    assert b"default-src 'none'" in dict(told.headers)[b"content-security-policy"]
    assert b"/agents/{agentId}/v1/message:send" in told.body


@pytest.mark.parametrize(
    ("discovery", "metrics", "public"),
    [
        (False, False, set[str]()),
        (True, False, {"/openapi.json", "/docs", "/agents/list.json"}),
        (False, True, {"/metrics"}),
    ],
)
def test_the_settings_decide_which_paths_are_public(discovery: bool, metrics: bool, public: set[str]) -> None:
    is_public = public_paths(discovery=is_discovery if discovery else None, metrics=metrics)

    paths = ("/openapi.json", "/docs", "/metrics", "/agents/list.json", "/tasks", "/agents/ada/v1/card")
    assert {path for path in paths if is_public(path)} == public
