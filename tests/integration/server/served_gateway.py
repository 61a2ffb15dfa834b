"""A gateway with its authentication on a real socket, in its own thread."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import threading
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from synapse.auth.api_keys import KeyFile
from synapse.auth.gateway import build_gateway_auth, gateway_names, new_tickets
from synapse.auth.sessions import SessionAuthenticator, SessionFile, cookie_name
from synapse.auth.settings import AccessSettings, check_exposure
from synapse.gateway.gateway import tls_context
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from synapse.server.http import Server
from synapse.server.listener import bind_port
from synapse.server.middleware import CorsApp
from synapse.server.websocket import ForEveryCaller
from tests.conformance.in_memory_service import InMemoryService
from tests.conformance.served_host import dialect_of, entry_at, run_in_loop
from tests.conformance.wire_client import Reply
from tests.fakes.clock import FakeClock

TIMEOUT = 10.0


@dataclass
class ServedGateway:
    """Asks a gateway that is served, and has its API keys and sessions; `trusted` is the TLS context for it."""

    port: int
    clock: FakeClock
    keys: KeyFile
    sessions: SessionFile
    trusted: ssl.SSLContext | None

    def ask(self, method: str = "GET", path: str = "/tasks", **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(self.connection()) as connection:
            connection.request(method, path, headers=named)
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def connection(self) -> http.client.HTTPConnection:
        if self.trusted is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT, context=self.trusted)


@contextmanager
def serve_gateway(
    home: Path, access: AccessSettings, websockets: Mapping[str, ForEveryCaller] | None = None
) -> Generator[ServedGateway]:
    """Serves until the end of the block, with TLS if there is a certificate."""
    check_exposure("127.0.0.1", access)
    tcp = bind_port(0)
    port = tcp.getsockname()[1]
    clock = FakeClock()
    names = gateway_names(access, host="127.0.0.1", port=port)
    sessions = SessionFile(home, clock)
    by_session = SessionAuthenticator(sessions, cookie_name(port))
    auth = build_gateway_auth(access, home=home, names=names, clock=clock, tickets=new_tickets(), sessions=by_session)
    tls = tls_context(access.tls_cert, access.tls_key) if access.tls_cert and access.tls_key else None
    started = threading.Event()
    stops: list[threading.Event] = []

    async def serve() -> None:
        entry = entry_at(port, home)
        inner = HttpApp(
            InMemoryService(entry),
            [dialect_of(entry)],
            admit=auth.admit,
            websockets=websockets,
            limits=HttpLimits(recheck_seconds=0.05),
        )
        app = CorsApp(inner, access.origins)
        server = Server(app, [tcp], tls=tls)
        serving = asyncio.ensure_future(server.serve())
        await server.wait_started()
        stop = threading.Event()
        stops.append(stop)
        started.set()
        await asyncio.to_thread(stop.wait)
        server.stop()
        with suppress(asyncio.CancelledError):
            await serving

    thread = threading.Thread(target=run_in_loop, args=(serve(),), name=f"gateway-{port}")
    thread.start()
    try:
        assert started.wait(10)
        trusted = ssl.create_default_context(cafile=access.tls_cert) if access.tls_cert else None
        yield ServedGateway(port, clock, KeyFile(home, clock), sessions, trusted)
    finally:
        for stop in stops:
            stop.set()
        thread.join(10)
        assert not thread.is_alive()
