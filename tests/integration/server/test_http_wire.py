"""HTTP on real sockets, with well-behaved and hostile clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from synapse.server.asgi import HttpLimits
from synapse.server.http import Server
from synapse.server.listener import bind_port
from tests.conformance.served_host import run_in_loop
from tests.fakes.web_app import DOCUMENT, Doing, digest, web_app
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

TIMEOUT = 10.0
LIMIT = 200_000
GET = b"GET /document HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass
class Served:
    """A server in its own thread."""

    port: int
    doing: Doing
    loop: asyncio.AbstractEventLoop
    server: Server

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.server.stop)


@contextmanager
def serving() -> Generator[Served]:
    listener = bind_port(0)
    port = listener.getsockname()[1]
    started: list[Served] = []
    ready = threading.Event()

    async def serve() -> None:
        doing = Doing()
        server = Server(web_app(doing, limits=HttpLimits(max_body_bytes=LIMIT)), [listener])
        running = asyncio.ensure_future(server.serve())
        await server.wait_started()
        started.append(Served(port, doing, asyncio.get_running_loop(), server))
        ready.set()
        await running

    thread = threading.Thread(target=run_in_loop, args=(serve(),), name=f"web-{port}")
    thread.start()
    try:
        assert ready.wait(TIMEOUT)
        yield started[0]
    finally:
        if started and thread.is_alive():
            started[0].stop()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def served() -> Generator[Served]:
    with serving() as running:
        yield running


def said(served: Served, *pieces: bytes) -> bytes:
    """Sends bytes, and returns all that the server answers until it closes the connection."""
    with closing(served.connect()) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    asked = GET * 3 + b"GET /now HTTP/1.1\r\nConnection: close\r\n\r\n"

    told = said(served, asked[:50], asked[50:])

    assert told.count(b"HTTP/1.1 200 OK") == 4
    assert told.count(DOCUMENT) == 3
    assert told.endswith(b'connection: close\r\n\r\n"now"')


def test_thousands_of_pipelined_requests_are_all_answered(served: Served) -> None:
    with closing(served.connect()) as connection:
        writer = threading.Thread(target=connection.sendall, args=(GET * 5000,))
        writer.start()
        told = 0
        tail = b""
        while told < 5000:
            tail += connection.recv(65536)
            told += tail.count(DOCUMENT)
            tail = tail[tail.rfind(DOCUMENT) + len(DOCUMENT) :] if DOCUMENT in tail else tail
        writer.join(TIMEOUT)

    assert told == 5000


def test_an_http_1_0_client_gets_one_answer_and_the_end_of_the_connection(served: Served) -> None:
    told = said(served, b"GET /document HTTP/1.0\r\n\r\n")

    assert told.endswith(b"connection: close\r\n\r\n" + DOCUMENT)


def test_a_chunked_body_is_one_body(served: Served) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=TIMEOUT)) as client:
        client.request("POST", "/echo", iter([b"one", b"two" * 30_000]), {"Content-Type": "application/json"})
        answer = client.getresponse()

        assert (answer.status, answer.read()) == (200, digest(b"one" + b"two" * 30_000))


def test_a_client_that_expects_100_continue_sends_its_body_after_it(served: Served) -> None:
    with closing(served.connect()) as connection:
        connection.sendall(
            b"POST /echo HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
            b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")

        assert rest(connection).endswith(digest(b"{}"))


def test_the_refusal_of_a_body_that_is_too_large_can_be_read(served: Served) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=TIMEOUT)) as client:
        client.request("POST", "/echo", iter([b"x" * 65536] * 64), {"Content-Type": "application/json"})
        answer = client.getresponse()

        assert (answer.status, json.loads(answer.read())["error"]["code"]) == (413, "body_too_large")
        assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"Content-Length: 0x5\r\n\r\nhello",
        b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_a_body_of_ambiguous_length_is_refused(served: Served, framing: bytes) -> None:
    told = said(served, b"POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n" + framing + GET)

    assert told.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert told.count(b"HTTP/1.1") == 1


def test_a_client_that_disconnects_ends_its_wait(served: Served) -> None:
    served.doing.later = None
    with closing(served.connect()) as connection:
        connection.sendall(b"GET /later HTTP/1.1\r\n\r\n")
        until(lambda: served.doing.later is not None, "the request")

    until(lambda: served.doing.later is not None and served.doing.later.cancelled(), "its end")


def test_a_reader_that_reads_nothing_does_not_grow_the_buffer(served: Served) -> None:
    served.doing.event = b"x" * 10_000
    with closing(served.connect()) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\n\r\n")
        assert b"200 OK" in connection.recv(1000)
        last = -1
        while last != served.doing.told:
            last = served.doing.told
            # Long enough for thousands of events if the reader read them.
            time.sleep(0.1)
        assert last < 2000, "only what the kernel holds for both sides, and a little of ours"
        assert served.doing.followers == 1
        # A client that resumes reading gets more.
        until(lambda: bool(connection.recv(1 << 20)) and served.doing.told > last, "more of the stream")

    until(lambda: served.doing.followers == 0, "the end of the stream")


def test_a_running_answer_is_finished_before_the_server_ends() -> None:
    with serving() as served, closing(served.connect()) as resting, closing(served.connect()) as connection:
        resting.sendall(GET)
        assert resting.recv(65536).endswith(DOCUMENT)
        connection.sendall(
            b"POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        served.stop()
        assert rest(resting) == b""
        connection.sendall(b"1234")

        assert rest(connection).endswith(b"connection: close\r\n\r\n" + digest(b"1234"))


async def test_a_unix_socket_is_served_too(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "s"))
    listener.listen()

    server = Server(web_app(), [listener])
    running = asyncio.ensure_future(server.serve())
    await server.wait_started()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
    writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    told = await reader.read()
    writer.close()
    server.stop()
    await running

    assert told.endswith(DOCUMENT)
