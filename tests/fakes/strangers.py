"""Agents that are not ours: small HTTP servers on loopback that speak one protocol each, well or badly."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Said:
    """An answer; `events` makes it a stream of server-sent events."""

    body: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    raw: bytes | None = None
    events: Iterable[object] | None = None


Reply = Callable[[Heard], Said]


class Stranger:
    """Answers by path, remembers what it heard, and can hold an answer back until it is released."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.routes: dict[str, Reply] = {}
        self.released = threading.Event()
        self.hung_up = threading.Event()
        """Somebody went away in the middle of a stream."""
        self.url = ""

    def serves(self, path: str, body: object, status: int = 200) -> None:
        self.routes[path] = lambda _heard: Said(body, status)

    def reply_to(self, heard: Heard) -> Said:
        self.heard.append(heard)
        reply = self.routes.get(heard.path)
        return reply(heard) if reply else Said({"error": {"message": "no such path"}}, 404)

    def until_released(self) -> None:
        """Hold the answer back, but not for ever."""
        self.released.wait(30)


class _Handler(BaseHTTPRequestHandler):
    stranger: ClassVar[Stranger]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = json.loads(content) if content else None
        said = self.stranger.reply_to(Heard(self.command, self.path, dict(self.headers), body))
        if said.events is not None:
            self._stream(said.events)
            return
        raw = said.raw if said.raw is not None else json.dumps(said.body).encode()
        self.send_response(said.status)
        for name, value in {"Content-Type": "application/json", **said.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", said.headers.get("Content-Length", str(len(raw))))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, events: Iterable[object]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for event in events:
                self.wfile.write(f": hello\nid: 1\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
        except OSError:
            self.stranger.hung_up.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Socketserver's five are too few for a client that opens all its connections at once: the kernel resets the others.
    request_queue_size = 64


@contextmanager
def stranger_at_home() -> Generator[Stranger]:
    """Run a stranger on a free port of loopback."""
    stranger = Stranger()
    handler = type("Handler", (_Handler,), {"stranger": stranger})
    server = _Server(("127.0.0.1", 0), handler)
    stranger.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield stranger
    finally:
        stranger.released.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


class Manners(Enum):
    """What a rude server does after its answer."""

    HANG_UP = "hang up"
    SAY_NOTHING = "say nothing"
    DRIP = "say one more byte now and then"


@contextmanager
def rude_server(answer: bytes, manners: Manners = Manners.HANG_UP) -> Generator[str]:
    """Says `answer` to whoever connects, and then behaves badly."""
    over = threading.Event()

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            while not over.is_set():
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)
                    while manners is not Manners.HANG_UP and not over.wait(0.05):
                        if manners is Manners.DRIP:
                            connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


CARD: Object = {"name": "Other Agent", "description": "does things", "capabilities": {}, "skills": []}


def card_1_0(url: str, *, binding: str = "JSONRPC", streaming: bool = False, tenant: str = "") -> Object:
    interface = {"url": url, "protocolBinding": binding, "protocolVersion": "1.0", "tenant": tenant}
    return {**CARD, "capabilities": {"streaming": streaming}, "supportedInterfaces": [interface]}


def card_0_3(url: str, *, streaming: bool = False) -> Object:
    fields = {"protocolVersion": "0.3.0", "url": url, "preferredTransport": "JSONRPC"}
    return {**CARD, **fields, "capabilities": {"streaming": streaming}}


def card_synapse(url: str) -> Object:
    return {**CARD, "url": url, "extensions": {"synapse": {"agent_id": "synapse-claude-8100"}}}


def rpc(heard: Heard, result: object) -> Object:
    return {"jsonrpc": "2.0", "id": heard.body["id"], "result": result}
