"""Which dialect of a host answers, for each path and request."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.events import Update
from synapse.core.requests import CancelTask, GetTask, ListTasks, SendAndWait, SendMessage
from synapse.core.store import TaskPage
from synapse.core.task import TaskState
from synapse.host.routes import DialectChoice, host_dialects
from synapse.server.app import HttpApp
from tests.samples.tasks import a_task
from tests.unit.server.exchange import ME, Exchange, FixedService

ENTRY = AgentEntry("synapse-codex-8120", "codex", port=8120, endpoint="http://localhost:8120", inbox="codex")
TASK = a_task(state=TaskState.COMPLETED)
NEW = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "t"}]}}
OLD = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "t"}]}}
JSON = "application/json"


def app(service: FixedService, *, advertise_0_3: bool = True) -> HttpApp:
    dialects = host_dialects(ENTRY, title="Codex", pty_wrapped=True, advertise_0_3=advertise_0_3)
    return HttpApp(service, dialects, admit=lambda _: ME, choose=DialectChoice(dialects))


async def ask(exchange: Exchange, result: object = TASK) -> tuple[Exchange, FixedService]:
    service = FixedService(result)
    return await exchange.run(app(service)), service


def get(path: str, version: str = "", query: bytes = b"", **headers: str) -> Exchange:
    return Exchange("GET", path, query=query, **named(version), **headers)


def post(path: str, body: object, version: str = "") -> Exchange:
    return Exchange("POST", path, json.dumps(body).encode(), query=b"", content_type=JSON, **named(version))


def named(version: str) -> dict[str, str]:
    return {"a2a_version": version} if version else {}


def dialect_of(answer: dict[str, Any]) -> str:
    """The dialect of an encoded task, or of an answer with one."""
    told: dict[str, Any] = answer.get("task", answer)
    status = told["status"]
    if isinstance(status, str):
        return "synapse"
    return "0.3" if any("content" in message for message in told["history"]) else "1.0"


@pytest.mark.parametrize(
    ("version", "path", "dialect"),
    [
        ("", "/tasks/t", "synapse"),
        ("1.0", "/tasks/t", "1.0"),
        ("0.3", "/tasks/t", "0.3"),
        ("", "/v1/tasks/t", "0.3"),
        ("1.0", "/v1/tasks/t", "1.0"),
        ("0.3", "/v1/tasks/t", "0.3"),
    ],
)
async def test_the_version_decides_alone_and_without_one_the_path(version: str, path: str, dialect: str) -> None:
    by_header, service = await ask(get(path, version))
    by_query, _ = await ask(get(path, query=f"A2A-Version={version}".encode() if version else b""))

    assert (by_header.status, dialect_of(by_header.json)) == (200, dialect)
    assert by_query.json == by_header.json
    assert service.asked == [(GetTask("t", exact=dialect != "synapse"), ME)]


async def test_a_list_without_a_version_is_ours() -> None:
    ours, _ = await ask(Exchange("GET", "/tasks"), TaskPage((TASK,), "", 1))
    standard, service = await ask(Exchange("GET", "/tasks", a2a_version="1.0"), TaskPage((TASK,), "", 1))
    former, _ = await ask(Exchange("GET", "/tasks", a2a_version="0.3"))

    assert set(ours.json) == {"tasks", "next_cursor"}
    assert set(standard.json) == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    assert service.asked == [(ListTasks(), ME)]
    assert (former.status, former.json["type"]) == (404, "MethodNotFoundError")


@pytest.mark.parametrize("path", ["/tasks", "/tasks/t", "/message:send", "/v1/tasks/t", "/nowhere", "/tasks/t:cancel"])
async def test_an_unknown_version_is_refused_in_the_standard_form(path: str) -> None:
    method = "POST" if path.endswith(("send", "cancel")) else "GET"
    refused, service = await ask(Exchange(method, path, a2a_version="2.0"))

    assert service.asked == []
    told = refused.json["error"]
    reason = told["details"][0]["reason"]
    assert reason == ("METHOD_NOT_FOUND" if path == "/nowhere" else "VERSION_NOT_SUPPORTED")
    assert refused.headers[b"content-type"] == b"application/a2a+json"


@pytest.mark.parametrize("path", ["/message:send", "/v1/message:send"])
@pytest.mark.parametrize(
    ("version", "body", "dialect"),
    [
        ("", NEW, "1.0"),
        ("", OLD, "0.3"),
        ("1.0", NEW, "1.0"),
        ("0.3", OLD, "0.3"),
    ],
)
async def test_without_a_version_the_message_decides(
    path: str, version: str, body: dict[str, Any], dialect: str
) -> None:
    answered, service = await ask(post(path, body, version))

    assert dialect_of(answered.json) == dialect
    ((request, _),) = service.asked
    assert isinstance(request, SendAndWait | SendMessage)


@pytest.mark.parametrize(
    ("version", "body", "form"),
    [("1.0", OLD, "details"), ("0.3", NEW, "type"), ("", {"message": {"content": "text"}}, "details")],
)
async def test_a_message_of_another_dialect_than_was_named_is_refused(version: str, body: Any, form: str) -> None:
    refused, service = await ask(post("/message:send", body, version))

    assert refused.status == 400
    assert form in refused.json.get("error", refused.json)
    assert service.asked == []


@pytest.mark.parametrize(
    ("made_in", "path", "dialect"),
    [
        ("a2a_v1", "/tasks/t:cancel", "1.0"),
        ("a2a_v0_3", "/tasks/t:cancel", "0.3"),
        ("synapse", "/tasks/t:cancel", "1.0"),
        ("a2a_v1", "/v1/tasks/t:cancel", "0.3"),
    ],
)
async def test_without_a_version_and_a_message_the_task_decides(made_in: str, path: str, dialect: str) -> None:
    answered, service = await ask(Exchange("POST", path), replace(TASK, dialect=made_in))

    assert dialect_of(answered.json) == dialect
    assert service.asked == [(CancelTask("t", exact=True), ME)]


@pytest.mark.parametrize(("made_in", "dialect"), [("a2a_v1", "1.0"), ("a2a_v0_3", "0.3")])
async def test_a_stream_too_is_in_the_dialect_of_its_task(made_in: str, dialect: str) -> None:
    service = FixedService(None)
    service.result = service.follow()
    service.feed.put_nowait(Update(1, None, replace(TASK, dialect=made_in)))
    service.feed.put_nowait(None)
    exchange = await Exchange("GET", "/tasks/t:subscribe").run(app(service))

    assert dialect_of(json.loads(exchange.body.decode().partition("data: ")[2])) == dialect


async def test_errors_without_a_route_are_in_the_dialect_of_the_request() -> None:
    ours, _ = await ask(Exchange("GET", "/nowhere"))
    standard, _ = await ask(Exchange("GET", "/nowhere", a2a_version="1.0"))
    former, _ = await ask(Exchange("GET", "/nowhere", a2a_version="0.3"))
    malformed, _ = await ask(Exchange("GET", "/nowhere", query=b"a2a-version=%ff"))

    assert ours.code == "route_not_found"
    assert standard.json["error"]["status"] == "NOT_FOUND"
    assert former.json["type"] == "MethodNotFoundError"
    assert malformed.json["error"]["status"] == "NOT_FOUND"


async def test_json_rpc_takes_both_versions_at_the_root() -> None:
    async def call(method: str, params: Any) -> Exchange:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await ask(Exchange("POST", "/", json.dumps(body).encode(), content_type=JSON)))[0]

    assert (await call("GetTask", {"id": "t"})).json["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (await call("tasks/get", {"id": "t"})).json["result"]["status"]["state"] == "completed"


async def card(version: str = "", **headers: str) -> Exchange:
    return (await ask(get("/.well-known/agent-card.json", version, b"", **headers)))[0]


async def test_the_card_is_for_both_versions_unless_one_is_named() -> None:
    both, new, old, other = await card(), await card("1.0"), await card("0.3"), await card("7.0")

    assert both.json.keys() == new.json.keys() | old.json.keys()
    assert "preferredTransport" not in new.json
    assert "supportedInterfaces" not in old.json
    assert other.json == new.json
    assert new.json["name"] == "Synapse Codex"
    assert {interface["url"] for interface in new.json["supportedInterfaces"]} == {"http://localhost:8120"}


async def test_a_card_for_strict_readers_says_nothing_of_the_former_version() -> None:
    exchange = get("/.well-known/agent-card.json")
    told = (await exchange.run(app(FixedService(TASK), advertise_0_3=False))).json

    assert told == (await card("1.0")).json | {"supportedInterfaces": told["supportedInterfaces"]}
    assert {interface["protocolVersion"] for interface in told["supportedInterfaces"]} == {"1.0"}


async def test_a_card_that_is_known_is_not_sent_again() -> None:
    tag = (await card("1.0")).headers[b"etag"].decode()

    assert (await card("1.0", if_none_match=tag)).status == 304
    assert (await card("0.3", if_none_match=tag)).status == 200


def test_a2a_is_loaded_by_its_first_request() -> None:
    program = """
import sys
from synapse.core.agent import AgentEntry
from synapse.host.routes import host_dialects
dialects = host_dialects(AgentEntry("a", "b", endpoint="http://localhost:1"), title="T", pty_wrapped=True)
loaded = lambda: sorted(name for name in sys.modules if name.startswith("synapse.dialects.a2a") and "." in name[17:])
before = loaded()
from synapse.core.errors import InternalFailure
dialects[1].encode_error(InternalFailure())
print([name for name in before if not name.endswith(".paths")], "synapse.dialects.a2a_v1.decode" in loaded())
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True, timeout=30
    )

    assert said.stdout.split("\n")[0] == "[] True"
