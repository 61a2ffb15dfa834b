"""Health and readiness are answered without credentials and without details."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import StoreFailed, Unauthenticated
from synapse.dialects.dialect import Dialect, DocumentRoute, WireAnswer
from synapse.dialects.synapse.encode import encode_error
from synapse.server import middleware
from synapse.server.app import HttpApp
from synapse.server.asgi import Scope
from synapse.server.middleware import ProbedApp
from tests.fakes.clock import FakeClock
from tests.unit.server.exchange import Exchange, FixedService


def admit_no_caller(_scope: Scope) -> Caller:
    raise Unauthenticated("this needs credentials")


class Store:
    """A store that can be read, unless `wrong` is set."""

    def __init__(self) -> None:
        self.wrong: BaseException | None = None
        self.asked = 0

    async def read(self) -> int:
        self.asked += 1
        if self.wrong is not None:
            raise self.wrong
        return 1


def probed(check: Callable[[], Awaitable[object]], clock: FakeClock) -> ProbedApp:
    route = DocumentRoute(method="GET", path="/x", answer=lambda _: WireAnswer(200, b"x"))
    served = Dialect(name="x", routes=(route,), encode_error=encode_error)
    app = HttpApp(FixedService(None), [served], admit=admit_no_caller)
    return ProbedApp(app, check, clock.monotonic)


async def status(app: ProbedApp, path: str, method: str = "GET") -> int:
    exchange = Exchange(method, path)
    async with asyncio.timeout(5):
        await app(exchange.scope, exchange.incoming.get, exchange.send)
    return exchange.status


async def test_probes_need_no_credentials_and_everything_else_does() -> None:
    app = probed(Store().read, FakeClock())
    for path in ("/healthz", "/readyz"):
        assert await status(app, path) == 200
        assert await status(app, path, "HEAD") == 200
        assert await status(app, path, "POST") == 401
    assert await status(app, "/x") == 401


async def test_without_its_store_a_server_is_healthy_but_not_ready() -> None:
    store, clock = Store(), FakeClock()
    app = probed(store.read, clock)
    store.wrong = StoreFailed("the disk is full")
    assert await status(app, "/readyz") == 503
    assert await status(app, "/healthz") == 200
    store.wrong = None
    clock.advance(2)
    assert await status(app, "/readyz") == 200


async def test_many_probes_check_the_store_once() -> None:
    store = Store()
    app = probed(store.read, FakeClock())
    for _ in range(5):
        await status(app, "/readyz")
    assert store.asked == 1


async def test_a_store_that_does_not_answer_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "CHECK_SECONDS", 0.01)

    async def never() -> None:
        await asyncio.Event().wait()

    assert await status(probed(never, FakeClock()), "/readyz") == 503


async def test_a_server_that_ends_is_not_ready() -> None:
    app = probed(Store().read, FakeClock())
    assert await status(app, "/readyz") == 200
    app.close()
    assert await status(app, "/readyz") == 503
