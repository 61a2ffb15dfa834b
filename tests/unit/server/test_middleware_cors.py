"""Pages of named origins may read answers; answers to all others are unchanged."""

from __future__ import annotations

import pytest

from synapse.core.errors import ForeignOrigin, SynapseError
from synapse.dialects.dialect import WireAnswer
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits, Receive, Scope, Send
from synapse.server.middleware import CorsApp
from tests.fakes.web_app import web_app
from tests.fakes.wire import answers
from tests.unit.server.exchange import ME, Exchange, FixedService
from tests.unit.server.on_wire import DOCUMENT_WANTED, exchange
from tests.unit.server.test_app import DIALECT

APP = "https://app.example"
CARD = "/.well-known/agent.json"


async def ask(exchange: Exchange) -> Exchange:
    inner = HttpApp(FixedService(None), [DIALECT], admit=lambda _: ME)
    await CorsApp(inner, [APP])(exchange.scope, exchange.incoming.get, exchange.send)
    return exchange


async def test_a_page_of_an_allowed_origin_can_read_the_answer() -> None:
    answer = await ask(Exchange("GET", CARD, origin=APP))

    assert answer.status == 200
    assert answer.headers[b"access-control-allow-origin"] == APP.encode()
    assert b"Retry-After" in answer.headers[b"access-control-expose-headers"]
    assert answer.headers[b"vary"] == b"Origin"
    assert b"access-control-allow-credentials" not in answer.headers
    assert answer.json["name"]


async def test_a_page_of_an_allowed_origin_can_read_an_error() -> None:
    answer = await ask(Exchange("GET", "/nowhere", origin=APP))

    assert answer.status == 404
    assert answer.headers[b"access-control-allow-origin"] == APP.encode()


async def test_the_shortcut_of_our_own_server_does_not_bypass_the_middleware() -> None:
    app = CorsApp(web_app(), [APP])
    wire = await exchange(app, b"GET /document HTTP/1.1\r\nOrigin: %b\r\n\r\n" % APP.encode(), DOCUMENT_WANTED)

    readable, plain = [headers for _, headers, _ in answers(wire.written)]

    assert readable[b"access-control-allow-origin"] == APP.encode()
    assert b"access-control-allow-origin" not in plain


@pytest.mark.parametrize("origin", ["https://evil.example", "null", ""])
async def test_other_answers_are_unchanged(origin: str) -> None:
    answer = await ask(Exchange("GET", CARD, origin=origin) if origin else Exchange("GET", CARD))

    assert not [name for name in answer.headers if name.startswith(b"access-control")]


async def test_a_preflight_is_answered_without_credentials() -> None:
    answer = await ask(Exchange("OPTIONS", "/tasks/send", origin=APP, access_control_request_method="POST"))

    assert answer.status == 204
    assert b"POST" in answer.headers[b"access-control-allow-methods"]
    assert b"Authorization" in answer.headers[b"access-control-allow-headers"]
    assert answer.body == b""


async def test_a_preflight_of_another_origin_is_passed_on() -> None:
    answer = await ask(
        Exchange("OPTIONS", "/tasks/send", origin="https://evil.example", access_control_request_method="POST")
    )

    assert answer.status == 405
    assert b"access-control-allow-origin" not in answer.headers


async def test_a_websocket_is_passed_on_unchanged() -> None:
    sent: list[object] = []
    scope: Scope = {"type": "websocket", "path": "/x", "query_string": b"", "headers": [(b"origin", APP.encode())]}

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    inner = HttpApp(FixedService(None), [DIALECT], admit=lambda _: ME)
    await CorsApp(inner, [APP])(scope, receive, send)

    assert "404" in str(sent[0])


class Inner:
    """An application that only records that it was closed."""

    limits = HttpLimits(max_body_bytes=5)
    closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("this must not be called")

    def close(self) -> None:
        self.closed = True

    def refusal(self, error: SynapseError, scope: Scope | None = None) -> WireAnswer:
        return WireAnswer(403, error.code.encode())


def test_the_middleware_forwards_limits_close_and_refusals() -> None:
    inner = Inner()
    wrapped = CorsApp(inner, [APP])

    assert wrapped.limits is inner.limits
    assert wrapped.refusal(ForeignOrigin()).body == b"foreign_origin"
    wrapped.close()
    assert inner.closed
