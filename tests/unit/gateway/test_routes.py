"""On the gateway's shared paths each request is answered in its own dialect, and each card for its own reader."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from synapse.core.caller import AuthMethods
from synapse.core.errors import InvalidRequest, SynapseError
from synapse.core.events import Update
from synapse.core.extension import Extension
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.push import PushConfig
from synapse.core.requests import (
    CancelTask,
    ForAgent,
    GetAgent,
    GetTask,
    ListAgents,
    ListedAgent,
    RegisterAgent,
    RemoveAgent,
    SendAndWait,
    SendMessage,
    SubscribeTask,
)
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskId, TaskState
from synapse.dialects.dialect import Call, CallRoute, DocumentRoute, StreamCall, WireAnswer, WireRequest
from synapse.gateway.cards import GatewayCards, is_discovery
from synapse.gateway.config import AgentConfig
from synapse.gateway.routes import GatewayChoice, gateway_dialects
from synapse.server.app import first_endpoint
from synapse.server.middleware import Addresses
from synapse.server.routing import Endpoint, RouteTable
from synapse.tasks.admission import MODES

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LISTED = ListedAgent(id="ada", name="Synapse Dummy", description="d", version="1", agent_type="dummy", state="ready")
KEYS = AuthMethods(api_keys=True)


def cards(methods: AuthMethods = KEYS, **switches: bool) -> GatewayCards:
    return GatewayCards(
        addresses=Addresses("https://a.example"),
        methods=methods,
        config_of=lambda name: AgentConfig(id=name, **switches),  # type: ignore[arg-type]  # all of them are switches
        grpc_port=8001,
    )


DIALECTS = gateway_dialects(cards())
TABLE = RouteTable(DIALECTS)
CHOICE = GatewayChoice(DIALECTS)
SUPERVISOR_BODY = {"message": {"content": "hi", "role": "user"}}
CURRENT_BODY = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
FORMER_BODY = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}}


def chosen(
    method: str, path: str, body: object = None, headers: Any = (), query: bytes = b""
) -> tuple[Endpoint, WireRequest]:
    match = TABLE.match(method, path.encode())
    content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    first, *others = match.endpoints
    wire = WireRequest(method, path, match.params(first), query, headers, content)
    endpoint = CHOICE(wire, match.endpoints) if others else first
    return endpoint, wire._replace(params=match.params(endpoint))


def asked(*arguments: Any, **more: Any) -> Any:
    endpoint, wire = chosen(*arguments, **more)
    assert isinstance(endpoint.route, CallRoute)
    return endpoint.route.ask(wire)


def task(dialect: str) -> Task:
    said = Message(message_id=MessageId("m"), role=Role.USER, parts=(TextPart(text="hi"),))
    return Task(
        id=TaskId("t"),
        agent_id="synapse-dummy-8190",
        inbox="ada",
        context_id="c",
        scope="local",
        dialect=dialect,
        state=TaskState.COMPLETED,
        history=(said,),
        created_at=AT,
        updated_at=AT,
        version=1,
    )


@pytest.mark.parametrize(
    ("body", "headers", "dialect"),
    [
        (SUPERVISOR_BODY, (), "supervisor"),
        (CURRENT_BODY, (), "a2a_v1"),
        (FORMER_BODY, (), "a2a_v0_3"),
        (SUPERVISOR_BODY, ((b"a2a-version", b"1.0"),), "a2a_v1"),
        (CURRENT_BODY, ((b"a2a-version", b"0.3"),), "a2a_v0_3"),
        (b"{nonsense", (), "supervisor"),
        ({}, (), "supervisor"),
    ],
)
def test_a_message_is_read_in_the_dialect_that_it_speaks(body: object, headers: Any, dialect: str) -> None:
    endpoint, _ = chosen("POST", "/agents/ada/v1/message:send", body, headers)
    assert endpoint.dialect.name == dialect


def test_a_message_is_for_the_agent_of_the_path() -> None:
    request: object = asked("POST", "/agents/ada/v1/message:send", CURRENT_BODY).request
    assert isinstance(request, ForAgent)
    to_agent = cast("ForAgent[object]", request)
    assert (to_agent.agent, type(to_agent.request)) == ("ada", SendAndWait)
    at_once = asked("POST", "/agents/ada/v1/message:send", SUPERVISOR_BODY).request
    assert isinstance(at_once.request, SendMessage)


def cached(path: str, headers: Any = (), *, public: bool) -> tuple[str, str]:
    open_cards = replace(cards(), is_public=is_discovery) if public else cards()
    match = RouteTable(gateway_dialects(open_cards)).match("GET", path.encode())
    endpoint = match.endpoints[0]
    call = cast("CallRoute", endpoint.route).ask(WireRequest("GET", path, match.params(endpoint), b"", headers))
    assert isinstance(call, Call)
    told = dict(call.answer(LISTED).headers if call.answer else call.headers)
    return told[b"cache-control"].decode(), told.get(b"vary", b"").decode()


CARD = "/agents/ada/.well-known/agent-card.json"
KEY = ((b"x-api-key", b"sk_1"),)
BEARER = ((b"authorization", b"Bearer x"),)
WHO = "A2A-Version, Authorization, X-API-Key"


@pytest.mark.parametrize(
    ("path", "headers", "public", "kept"),
    [
        (CARD, (), True, ("public, max-age=10", WHO)),
        (CARD, KEY, True, ("private, max-age=10", WHO)),
        (CARD, BEARER, True, ("private, max-age=10", WHO)),
        (CARD, (), False, ("private, max-age=10", WHO)),
        (CARD, KEY, False, ("private, max-age=10", WHO)),
        ("/.well-known/agent-cards/ada.json", BEARER, False, ("private, max-age=10", WHO)),
        ("/agents/ada/v1/extendedAgentCard", BEARER, True, ("private, no-cache", WHO)),
        ("/agents/ada/v1/card", KEY, True, ("private, no-cache", WHO)),
        ("/agents/list.json", KEY, True, ("no-store", "")),
    ],
)
def test_caches_share_no_card_that_needed_credentials(
    path: str, headers: Any, public: bool, kept: tuple[str, str]
) -> None:
    assert cached(path, headers, public=public) == kept


def test_an_unknown_version_is_refused_in_the_standard_form() -> None:
    endpoint, wire = chosen("GET", "/agents/ada/v1/tasks/t", headers=((b"a2a-version", b"9.0"),))
    assert isinstance(endpoint.route, DocumentRoute)
    assert b"VERSION_NOT_SUPPORTED" in endpoint.route.answer(wire).body


@pytest.mark.parametrize(
    ("dialect", "has"),
    [("supervisor", '"id":"ada:t"'), ("hub", '"id":"ada:t"'), ("synapse", '"id":"ada:t"'), ("a2a_v1", '"id":"t"')],
)
def test_without_a_version_a_task_is_in_the_dialect_that_created_it(dialect: str, has: str) -> None:
    call = asked("GET", "/agents/ada/v1/tasks/t")
    assert call.request == ForAgent("ada", GetTask("t", exact=True))
    assert has in call.encode(task(dialect)).decode()


def test_a_task_of_0_3_stays_in_0_3_unless_a_version_is_named() -> None:
    former = asked("GET", "/agents/ada/v1/tasks/ada:t").encode(task("a2a_v0_3"))
    assert json.loads(former)["status"]["state"] == "TASK_STATE_COMPLETED"
    demanded = asked("GET", "/agents/ada/v1/tasks/t", query=b"A2A-Version=1.0").encode(task("supervisor"))
    assert json.loads(demanded)["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_list_without_a_version_is_the_supervisors() -> None:
    page = asked("GET", "/agents/ada/v1/tasks").encode(TaskPage((task("a2a_v1"),), "", 1))
    assert json.loads(page)["tasks"][0]["id"] == "ada:t"


@pytest.mark.parametrize("body", [None, {}])
def test_canceling_and_following_go_by_the_task_too(body: object) -> None:
    cancel = asked("POST", "/agents/ada/v1/tasks/ada:t:cancel", body)
    assert cancel.request == ForAgent("ada", CancelTask("t", exact=True))
    assert json.loads(cancel.encode(task("a2a_v1")))["id"] == "t"
    follow = asked("POST", "/agents/ada/v1/tasks/t:subscribe", body)
    assert isinstance(follow, StreamCall)
    assert follow.request == ForAgent("ada", SubscribeTask(task_id="t"))
    event = follow.encode(Update(7, None, task("a2a_v1")))
    assert event is not None
    assert json.loads(event.data)["task"]["id"] == "t"


@pytest.mark.parametrize("path", ["/agents/ada/v1", "/agents/ada/v1/", "/agents/ada", "/agents/ada/"])
@pytest.mark.parametrize(("method", "is_former"), [("GetTask", False), ("tasks/get", True)])
def test_json_rpc_of_both_versions_is_served_at_each_base(path: str, method: str, is_former: bool) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "t"}}
    call = asked("POST", path, body)
    assert call.request == ForAgent("ada", GetTask("t", exact=True), frozenset())
    assert ("kind" in json.loads(call.encode(task("a2a_v1")))["result"]) == is_former


@pytest.mark.parametrize("method", ["GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"])
def test_the_extended_card_is_a_method_too(method: str) -> None:
    call = asked("POST", "/agents/ada/v1", {"jsonrpc": "2.0", "id": 1, "method": method})
    assert call.request == GetAgent("ada")
    assert json.loads(call.encode(LISTED))["result"]["name"] == "Synapse Dummy"


CARD_PATHS = [
    "/agents/ada/.well-known/agent-card.json",
    "/agents/ada/v1/.well-known/agent-card.json",
    "/.well-known/agent-cards/ada.json",
    "/agents/ada/v1/card",
    "/agents/ada/v1/extendedAgentCard",
]


def card(
    path: str = CARD_PATHS[0], version: str = "", etag: str = "", made_by: GatewayCards | None = None
) -> WireAnswer:
    headers = (*(((b"a2a-version", version.encode()),) if version else ()), (b"if-none-match", etag.encode()))
    endpoint, wire = chosen("GET", path, headers=headers)
    if made_by is not None:
        return made_by.answer(wire, LISTED)
    assert isinstance(endpoint.route, CallRoute)
    call = endpoint.route.ask(wire)
    assert isinstance(call, Call)
    assert call.request == GetAgent("ada")
    assert call.answer is not None
    return call.answer(LISTED)


def test_webhooks_without_a_version_are_in_the_dialect_that_set_them() -> None:
    config = PushConfig(id="mine", url="https://example.com/h", dialect="a2a_v0_3")
    one = "/agents/ada/v1/tasks/t/pushNotificationConfigs/mine"

    assert json.loads(asked("GET", one).encode(config))["name"].endswith("/mine"), "0.3 calls the segment otherwise"
    several = asked("GET", one.removesuffix("/mine")).encode
    assert list(json.loads(several((config,)))) == ["configs"]
    assert json.loads(several(())) == []


def test_a_webhook_as_rest_of_0_3_sets_it_is_understood_without_a_version() -> None:
    body = {"config": {"name": "", "pushNotificationConfig": {"url": "https://example.com/h"}}}

    assert chosen("POST", "/agents/ada/v1/tasks/t/pushNotificationConfigs", body)[0].dialect.name == "a2a_v0_3"


def test_the_default_agents_card_names_grpc_of_0_3_which_knows_no_tenant() -> None:
    for default, named in (("ada", True), ("bob", False)):
        made_by = replace(cards(), default_agent=default)
        interfaces = json.loads(card(version="0.3", made_by=made_by).body)["additionalInterfaces"]
        assert ({"url": "https://a.example:8001", "transport": "GRPC"} in interfaces) is named


@pytest.mark.parametrize("path", CARD_PATHS)
def test_each_card_path_gives_the_card_once(path: str) -> None:
    first = card(path)
    etag = dict(first.headers)[b"etag"].decode()
    assert first.status == 200
    assert card(path, etag=etag).status == 304


def test_without_a_version_one_card_is_for_all() -> None:
    common = json.loads(card().body)
    assert (common["id"], common["endpoints"]) == ("ada", {"a2a": "https://a.example/agents/ada/v1"})
    assert common["url"] == "https://a.example/agents/ada"
    assert [(one["protocolBinding"], one["protocolVersion"], one["url"]) for one in common["supportedInterfaces"]] == [
        ("JSONRPC", "1.0", "https://a.example/agents/ada/v1"),
        ("HTTP+JSON", "1.0", "https://a.example/agents/ada/v1"),
        ("JSONRPC", "0.3", "https://a.example/agents/ada"),
        ("HTTP+JSON", "0.3", "https://a.example/agents/ada"),
        ("GRPC", "1.0", "a.example:8001"),
    ]
    scheme = common["securitySchemes"]["apiKey"]
    assert (scheme["type"], "apiKeySecurityScheme" in scheme) == ("apiKey", True)


def test_a_version_gets_its_pure_card() -> None:
    current, former = json.loads(card(version="1.0").body), json.loads(card(version="0.3").body)
    assert "url" not in current
    assert current["capabilities"]["extendedAgentCard"] is True
    assert "securityRequirements" in current
    assert "supportedInterfaces" not in former
    assert former["supportsAuthenticatedExtendedCard"] is True
    open_to_all = json.loads(card(version="0.3", made_by=cards(AuthMethods())).body)
    assert open_to_all["supportsAuthenticatedExtendedCard"] is False, "nobody is authenticated there"
    assert json.loads(card(made_by=cards(AuthMethods())).body)["supportsAuthenticatedExtendedCard"] is False
    assert "security" in former


@pytest.mark.parametrize(
    ("agent", "taken", "given"),
    [
        (LISTED, [*MODES, "*/*"], [*MODES]),
        (replace(LISTED, input_modes=("text/plain",)), ["text/plain"], [*MODES]),
        (replace(LISTED, input_modes=("text",), output_modes=("image/png",)), ["text"], ["image/png"]),
    ],
)
def test_a_card_says_what_its_agent_takes_and_gives(agent: ListedAgent, taken: list[str], given: list[str]) -> None:
    for version in ("1.0", "0.3", ""):
        shown = json.loads(cards().body(agent, version))
        assert (shown["defaultInputModes"], shown["defaultOutputModes"]) == (taken, given)


def test_a_card_declares_the_extensions_of_its_agent() -> None:
    plan = Extension(uri="urn:plan", required=True, params={"depth": 2})
    for version in ("1.0", "0.3", ""):
        shown = json.loads(cards().body(replace(LISTED, extensions=(plan,)), version))
        assert shown["capabilities"]["extensions"] == [{"uri": "urn:plan", "required": True, "params": {"depth": 2}}]
        assert "extensions" not in json.loads(cards().body(LISTED, version))["capabilities"]


@pytest.mark.parametrize(
    ("body", "headers", "extensions"),
    [
        (SUPERVISOR_BODY, (), None),
        (CURRENT_BODY, (), frozenset[str]()),
        (CURRENT_BODY, ((b"a2a-extensions", b"urn:a"),), frozenset({"urn:a"})),
        (FORMER_BODY, ((b"x-a2a-extensions", b"urn:a"),), frozenset({"urn:a"})),
    ],
)
def test_extensions_are_named_in_the_standard_and_nowhere_else(body: object, headers: Any, extensions: object) -> None:
    request = asked("POST", "/agents/ada/v1/message:send", body, headers).request
    assert isinstance(request, ForAgent)
    assert request.extensions == extensions


def test_switches_and_missing_authentication_remove_fields_from_a_card() -> None:
    bare = cards(AuthMethods(), advertise_grpc=False, advertise_0_3=False, advertise_supervisor=False)
    only = json.loads(card(made_by=bare).body)
    assert {one["protocolVersion"] for one in only["supportedInterfaces"]} == {"1.0"}
    assert not {"endpoints", "url", "securitySchemes"} & set(only)


def test_the_directory_lists_agents() -> None:
    call = asked("GET", "/agents/list.json")
    assert call.request == ListAgents()
    assert json.loads(call.encode((LISTED,)))["agents"][0]["cardUrl"] == "/agents/ada/v1/card"


def test_agents_are_registered_and_removed() -> None:
    call = asked("POST", "/agents", {"url": "https://x.example", "id": "x"})
    assert (call.request, call.status) == (RegisterAgent(url="https://x.example", agent="x"), 201)
    assert json.loads(call.encode(replace(LISTED, id="x")))["endpoint"] == "/agents/x/v1"
    gone = asked("DELETE", "/agents/x")
    assert (gone.request, gone.status, gone.encode(None)) == (RemoveAgent("x"), 204, b"")
    for body in (b"{", {"id": "x"}, {"url": "https://x.example", "more": 1}):
        with pytest.raises(InvalidRequest):
            asked("POST", "/agents", body)


@pytest.mark.parametrize(
    ("path", "version", "words"),
    [
        ("/agents/ada/v1/nothing", "", b"-32"),
        ("/agents/list.json", "", b"-32"),
        ("/.well-known/x", "", b"-32"),
        ("/agents/ada/v1/nothing", "1.0", b'"status"'),
    ],
)
def test_errors_without_a_route_are_in_the_dialect_of_the_path(path: str, version: str, words: bytes) -> None:
    nowhere = [
        Endpoint(dialect, DocumentRoute(method="", path="", answer=lambda _: WireAnswer(404, b"")))
        for dialect in DIALECTS
    ]
    headers = ((b"a2a-version", version.encode()),) if version else ()
    endpoint = CHOICE(WireRequest("GET", path, headers=headers), nowhere)
    assert words in endpoint.dialect.encode_error(SynapseError("x")).body
    assert first_endpoint(WireRequest("GET", path), nowhere) is nowhere[0]


def test_only_plain_discovery_can_be_public() -> None:
    assert all(is_discovery(path) for path in ("/agents/list.json", *CARD_PATHS[:3]))
    assert not any(is_discovery(path) for path in (*CARD_PATHS[3:], "/agents", "/agents/ada/v1/tasks"))
