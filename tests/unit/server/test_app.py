"""HttpApp turns a request into an answer, over a table of dialects and a service that does nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import ForeignOrigin, QueueFull, SynapseError, TaskNotFound
from synapse.core.requests import CancelTask, GetTask, SendMessage
from synapse.dialects.dialect import Dialect, Route, WireAnswer, WireRequest
from synapse.dialects.synapse.routes import CardFacts, agent_card, synapse_dialect
from synapse.dialects.task_json import task_object
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits, Scope
from synapse.server.routing import Endpoint
from tests.unit.dialects.synapse.samples import a_task
from tests.unit.server.exchange import ME, Exchange, FixedService

FACTS = CardFacts(agent_id="synapse-claude-8100", agent_type="claude", title="Claude", url="http://localhost:8100")
DIALECT = synapse_dialect(FACTS)
HELLO = b'{"message": {"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}}'
JSON = "application/json"


def app(service: FixedService, *dialects: Dialect, **more: int) -> HttpApp:
    return HttpApp(service, dialects or (DIALECT,), admit=lambda _: ME, limits=HttpLimits(**more))


async def ask(exchange: Exchange, result: object = None, **limits: int) -> Exchange:
    return await exchange.run(app(FixedService(result), **limits))


async def test_a_message_reaches_the_service_and_its_task_comes_back() -> None:
    service = FixedService(a_task())
    exchange = Exchange("POST", "/tasks/send-priority", HELLO, query=b"priority=5", content_type=JSON)

    await exchange.run(app(service))

    ((request, caller),) = service.asked
    assert isinstance(request, SendMessage)
    assert (request.message.text, request.priority, caller) == ("Hello!", 5, ME)
    assert exchange.status == 200
    assert exchange.json == {"task": task_object(a_task())}
    assert exchange.headers == {b"content-type": b"application/json", b"content-length": b"%d" % len(exchange.body)}


async def test_a_task_is_read_by_the_id_in_the_path() -> None:
    service = FixedService(a_task())
    exchange = Exchange("GET", "/tasks/550e8400")

    await exchange.run(app(service))

    assert service.asked == [(GetTask("550e8400"), ME)]
    assert exchange.json == task_object(a_task())


async def test_a_post_without_parameters_needs_no_body() -> None:
    service = FixedService(a_task())

    await Exchange("POST", "/tasks/550e8400/cancel").run(app(service))

    assert service.asked == [(CancelTask("550e8400"), ME)]


async def test_the_card_is_answered_without_the_service() -> None:
    service = FixedService(AssertionError("the card needs no service"))
    exchange = Exchange("GET", "/.well-known/agent.json")

    await exchange.run(app(service))

    assert exchange.json == agent_card(FACTS)


async def test_a_body_may_come_in_pieces() -> None:
    exchange = await ask(Exchange("POST", "/tasks/send", HELLO[:9], b"", HELLO[9:], content_type=JSON), a_task())

    assert exchange.status == 200


@pytest.mark.parametrize("media_type", [JSON, "Application/JSON; charset=utf-8", "application/a2a+json"])
async def test_every_json_media_type_is_accepted(media_type: str) -> None:
    assert (await ask(Exchange("POST", "/tasks/send", HELLO, content_type=media_type), a_task())).status == 200


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "json", ""])
async def test_a_body_with_another_content_type_is_refused(media_type: str) -> None:
    exchange = await ask(Exchange("POST", "/tasks/send", HELLO, content_type=media_type))

    assert (exchange.status, exchange.code) == (415, "unsupported_media_type")
    assert "Content-Type: application/json" in exchange.json["error"]["hint"]


async def test_a_content_length_beyond_the_limit_is_refused_unread() -> None:
    exchange = Exchange("POST", "/tasks/send", HELLO, content_type=JSON, content_length="101")

    await ask(exchange, max_body_bytes=100)

    assert (exchange.status, exchange.code) == (413, "body_too_large")
    assert exchange.headers[b"connection"] == b"close"
    assert exchange.incoming.qsize() == 1


async def test_a_body_that_grows_too_large_is_refused_and_no_longer_read() -> None:
    exchange = Exchange("POST", "/tasks/send", *[b"x" * 60] * 5, content_type=JSON)

    await ask(exchange, max_body_bytes=100)

    assert (exchange.status, exchange.code) == (413, "body_too_large")
    assert exchange.headers[b"connection"] == b"close"
    assert exchange.incoming.qsize() == 3


async def test_a_body_of_exactly_the_limit_is_accepted() -> None:
    exchange = Exchange("POST", "/tasks/send", HELLO, content_type=JSON, content_length=str(len(HELLO)))

    assert (await ask(exchange, a_task(), max_body_bytes=len(HELLO))).status == 200


async def test_an_incomplete_body_is_not_used_when_the_caller_disconnects() -> None:
    service = FixedService(a_task())
    exchange = Exchange("POST", "/tasks/send", HELLO, b"", content_type=JSON)

    exchange.incoming = asyncio.Queue()
    exchange.incoming.put_nowait({"type": "http.request", "body": HELLO, "more_body": True})
    exchange.leave()
    await exchange.run(app(service))

    assert service.asked == []
    assert exchange.code == "body_too_slow"


@pytest.mark.parametrize(
    ("exchange", "status", "code"),
    [
        (Exchange("GET", "/nothing"), 404, "route_not_found"),
        (Exchange("GET", "/tasks/send"), 405, "method_not_allowed"),
        (Exchange("POST", "/tasks/send", b"{", content_type=JSON), 400, "invalid_request"),
        (Exchange("POST", "/tasks/send", content_type=JSON), 400, "invalid_request"),
        (Exchange("POST", "/tasks/send", HELLO, query=b"priority=9", content_type=JSON), 400, "priority_out_of_range"),
    ],
)
async def test_an_invalid_request_is_refused_before_the_service(exchange: Exchange, status: int, code: str) -> None:
    await ask(exchange, AssertionError("nothing of this reaches the service"))

    assert (exchange.status, exchange.code) == (status, code)


async def test_a_wrong_method_is_refused_with_the_allowed_one() -> None:
    assert (await ask(Exchange("PUT", "/tasks/1"))).headers[b"allow"] == b"GET"


@pytest.mark.parametrize(
    ("error", "status"), [(TaskNotFound("x"), 404), (QueueFull("full"), 429), (SynapseError("odd"), 500)]
)
async def test_an_error_of_the_service_is_encoded_by_the_dialect(error: SynapseError, status: int) -> None:
    exchange = await ask(Exchange("GET", "/tasks/x"), error)

    assert exchange.status == status
    assert exchange.json == {"error": {"code": error.code, "message": str(error), "hint": error.hint}}


async def test_a_defect_is_logged_with_its_traceback_and_answered_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        exchange = await ask(Exchange("GET", "/tasks/x"), ZeroDivisionError("secret detail"))

    assert (exchange.status, exchange.code) == (500, "internal")
    assert b"secret" not in exchange.body
    (record,) = caplog.records
    assert record.message == "request_failed"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_a_caller_that_is_not_admitted_is_not_served() -> None:
    def refuse(_scope: Scope) -> Caller:
        raise ForeignOrigin

    service = FixedService(a_task())
    exchange = Exchange("POST", "/tasks/send", HELLO, content_type=JSON)

    await exchange.run(HttpApp(service, [DIALECT], admit=refuse))

    assert (exchange.status, exchange.code) == (403, "foreign_origin")
    assert exchange.incoming.qsize() == 1
    assert service.asked == []


def other_dialect() -> Dialect:
    def encode_error(error: SynapseError) -> WireAnswer:
        return WireAnswer(418, json.dumps({"other": error.code}).encode())

    route = Route(
        method="POST",
        path="/tasks/{taskId}/cancel",
        decode=lambda wire: CancelTask("other:" + wire.params["taskId"]),
        encode=lambda _: b'"other"',
    )
    return Dialect(name="other", routes=(route,), encode_error=encode_error)


def by_version(wire: WireRequest, endpoints: Sequence[Endpoint]) -> Endpoint:
    wanted = wire.header(b"a2a-version") or json.loads(wire.body).get("speak", "synapse")
    return next(endpoint for endpoint in endpoints if endpoint.dialect.name == wanted)


@pytest.mark.parametrize(("version", "body"), [("other", b"{}"), ("", b'{"speak": "other"}')], ids=["header", "body"])
async def test_the_given_function_chooses_among_dialects_on_one_path(version: str, body: bytes) -> None:
    service = FixedService(a_task())
    shared = HttpApp(service, [DIALECT, other_dialect()], admit=lambda _: ME, choose=by_version)
    other = Exchange("POST", "/tasks/7/cancel", body, content_type=JSON, a2a_version=version)
    ours = Exchange("POST", "/tasks/7/cancel", b"{}", content_type=JSON)

    await other.run(shared)
    await ours.run(shared)

    assert [request for request, _ in service.asked] == [CancelTask("other:7"), CancelTask("7")]
    assert other.body == b'"other"'
    assert ours.json == {"task": task_object(a_task())}


async def test_the_chosen_dialect_encodes_errors_also_before_the_body_is_read() -> None:
    failing = FixedService(TaskNotFound("x"))
    shared = HttpApp(failing, [DIALECT, other_dialect()], admit=lambda _: ME, choose=by_version)
    chosen = Exchange("POST", "/tasks/7/cancel", b"{}", content_type=JSON, a2a_version="other")
    before = Exchange("POST", "/tasks/7/cancel", b"x", content_type="text/plain", a2a_version="other")

    await chosen.run(shared)
    await before.run(shared)

    assert (chosen.status, chosen.json) == (418, {"other": "task_not_found"})
    assert (before.status, before.json) == (418, {"other": "unsupported_media_type"})
