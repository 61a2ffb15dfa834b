"""The server on real sockets: hostile bytes, slow clients, readers that disconnect, and shutdown."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect, unix_connect

from synapse.core.caller import Caller
from synapse.core.errors import PersonRequired
from synapse.server.asgi import HttpLimits
from synapse.server.http_protocol import HEAD_LIMIT
from synapse.server.websocket import WebSocketChannel
from tests.conformance.in_memory_service import InMemoryService
from tests.conformance.served_host import ServedHost, served
from tests.conformance.wire_client import WireClient
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

LIMIT = 100_000
HELLO = {"message": {"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}}


async def echo(channel: WebSocketChannel, caller: Caller) -> None:
    if channel.query.get("as") == "agent":
        raise PersonRequired
    await channel.accept()
    await channel.send(f"pid {caller.pid}")
    while (frame := await channel.receive()) is not None:
        await channel.send(frame)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHost]:
    limits = HttpLimits(max_body_bytes=LIMIT, arrival_seconds=0.5, keep_alive_seconds=0.1)
    with served(tmp_path_factory.mktemp("s"), InMemoryService, limits=limits, websockets={"/attach": echo}) as host:
        yield host


@pytest.fixture(params=["tcp", "uds"])
def client(request: pytest.FixtureRequest, host: ServedHost) -> WireClient:
    return WireClient(host.port, str(host.socket) if request.param == "uds" else "")


def raw(client: WireClient, *pieces: bytes) -> tuple[int, bytes]:
    """Sends raw bytes, and returns the status and body of the first answer."""
    with closing(client.connect()) as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:
                break  # it hung up on us; what it said first can still be read
        return read_answer(connection)


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536) or b"\r\n\r\n"
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return int(head.split()[1]), body


def head(client: WireClient, method: str = "POST", path: str = "/tasks/send", *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: localhost:{client.port}", *more, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def code(body: bytes) -> str:
    return str(json.loads(body)["error"]["code"])


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /tasks\x00 HTTP/1.1\r\n\r\n",
        b"GET /tasks HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET /tasks HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET /tasks HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /tasks/send HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_invalid_http_gets_an_error_in_json(client: WireClient, garbage: bytes) -> None:
    status, body = raw(client, garbage)

    assert status in (400, 403)
    assert code(body) in ("invalid_request", "foreign_origin")


def test_a_head_without_end_is_refused(client: WireClient) -> None:
    endless = [b"X-Filler: " + b"x" * 8000 + b"\r\n"] * (3 * HEAD_LIMIT // 8000 + 40)

    status, body = raw(client, b"GET /tasks HTTP/1.1\r\n", *endless)

    assert (status, code(body)) == (431, "invalid_request")


def test_a_head_that_does_not_arrive_is_refused_after_the_time_limit(client: WireClient) -> None:
    status, body = raw(client, b"GET /tasks HTTP/1.1\r\nHost")

    assert (status, code(body)) == (408, "body_too_slow")


def test_a_silent_client_is_disconnected(client: WireClient) -> None:
    status, body = raw(client)

    assert (status, code(body)) == (408, "body_too_slow")


def test_a_body_that_does_not_arrive_is_refused_after_the_time_limit(client: WireClient) -> None:
    begun = head(client, "POST", "/tasks/send", "Content-Type: application/json", "Content-Length: 100")

    status, body = raw(client, begun, b'{"message"')

    assert (status, code(body)) == (408, "body_too_slow")


def test_a_second_request_on_a_connection_must_arrive_in_time_too(client: WireClient) -> None:
    with closing(client.connect()) as connection:
        connection.sendall(head(client, "GET", "/status"))
        first, _ = read_answer(connection)
        connection.sendall(b"GET /sta")
        second, body = read_answer(connection)

    assert (first, second, code(body)) == (200, 408, "body_too_slow")


def test_a_connection_carries_several_requests(client: WireClient) -> None:
    with closing(client.connect()) as connection:
        for _ in range(3):
            connection.sendall(head(client, "GET", "/status"))
            assert read_answer(connection)[0] == 200


def test_a_body_in_small_pieces_is_accepted(client: WireClient) -> None:
    content = json.dumps(HELLO).encode()
    begun = head(client, "POST", "/tasks/send", "Content-Type: application/json", f"Content-Length: {len(content)}")

    status, _ = raw(client, begun, *[content[index : index + 1] for index in range(len(content))])

    assert status == 200


def test_a_content_length_beyond_the_limit_is_refused_at_once(client: WireClient) -> None:
    begun = head(client, "POST", "/tasks/send", "Content-Type: application/json", f"Content-Length: {LIMIT + 1}")

    status, body = raw(client, begun)

    assert (status, code(body)) == (413, "body_too_large")


def test_a_body_beyond_the_limit_is_refused_and_the_caller_can_read_the_refusal(client: WireClient) -> None:
    begun = head(client, "POST", "/tasks/send", "Content-Type: application/json", "Transfer-Encoding: chunked")
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    status, body = raw(client, begun, *[chunk] * 1000)

    assert (status, code(body)) == (413, "body_too_large")


def test_a_client_that_expects_100_continue_is_refused_before_it_sends_a_large_body(client: WireClient) -> None:
    begun = head(
        client,
        "POST",
        "/tasks/send",
        "Content-Type: application/json",
        "Content-Length: 9999999",
        "Expect: 100-continue",
    )

    status, body = raw(client, begun)

    assert (status, code(body)) == (413, "body_too_large")


@pytest.mark.parametrize("path", ["/tasks/%00", "/tasks/%ff%fe", "/tasks/../../etc", "/tasks/" + "x" * 5000, "/%2e%2e"])
def test_strange_paths_are_not_found(client: WireClient, path: str) -> None:
    status, body = raw(client, head(client, "GET", path))

    assert (status, json.loads(body)["error"]["code"]) in {(404, "route_not_found"), (404, "task_not_found")}


@pytest.mark.parametrize(
    "content",
    [b"\xff", b"[" * 50_000, b'{"message": ' + b'{"a":' * 5000, b"null", b"1e999", b'"\\ud800"', b"{}" * 3],
)
def test_invalid_bodies_are_refused(client: WireClient, content: bytes) -> None:
    reply = client.request("POST", "/tasks/send", content)

    assert (reply.status, reply.code) == (400, "invalid_request")


def test_head_has_the_headers_of_get_and_no_body(client: WireClient) -> None:
    reply = client.request("HEAD", "/.well-known/agent.json")

    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 100


def test_an_upgrade_to_another_protocol_is_served_as_a_plain_request(client: WireClient) -> None:
    reply = client.request("GET", "/status", headers={"Connection": "Upgrade", "Upgrade": "h2c"})

    assert reply.status == 200


def test_a_reader_that_disconnects_ends_its_subscription(host: ServedHost, client: WireClient) -> None:
    task_id = client.request("POST", "/tasks/create", HELLO).json["task"]["id"]

    with client.follow(f"/tasks/{task_id}/subscribe") as events:
        next(events)
        assert host.service.followers == 1

    until(lambda: host.service.followers == 0, "the followers to be gone")


def test_an_idle_stream_sends_keep_alive_comments(client: WireClient) -> None:
    task_id = client.request("POST", "/tasks/create", HELLO).json["task"]["id"]
    with closing(client.connect()) as connection:
        connection.sendall(head(client, "GET", f"/tasks/{task_id}/subscribe"))
        received = b""
        while received.count(b": \n\n") < 7:
            piece = connection.recv(65536)
            assert piece
            received += piece

    assert b"event: snapshot" in received


def test_a_hundred_readers_get_all_events_in_order(host: ServedHost) -> None:
    client = WireClient(host.port, str(host.socket))
    task_id = client.request("POST", "/tasks/create", HELLO).json["task"]["id"]
    seen: list[list[str]] = []

    def follow() -> None:
        with client.follow(f"/tasks/{task_id}/subscribe") as events:
            seen.append([event.name for event in events])

    readers = [threading.Thread(target=follow) for _ in range(100)]
    for reader in readers:
        reader.start()
    until(lambda: host.service.followers == 100, "all followers")
    client.request("POST", "/tasks/send", {**HELLO, "metadata": {"in_reply_to": task_id}})
    for reader in readers:
        reader.join(5)

    assert seen == [["snapshot", "artifact_added", "state_changed"]] * 100


def test_a_websocket_is_served_on_the_unix_socket(host: ServedHost) -> None:
    with unix_connect(str(host.socket), "ws://localhost/attach", open_timeout=5) as channel:
        hello = channel.recv(timeout=5)
        channel.send(b"\x1b[A")
        channel.send("text")

        assert hello == f"pid {os.getpid()}"
        assert channel.recv(timeout=5) == b"\x1b[A"
        assert channel.recv(timeout=5) == "text"
        # Longer than a request may take to arrive: that limit is over once the channel is open.
        with pytest.raises(TimeoutError):
            channel.recv(timeout=0.7)
        channel.send("still here")
        assert channel.recv(timeout=5) == "still here"


def test_a_websocket_may_follow_a_request_on_its_connection_and_stays(host: ServedHost) -> None:
    client = WireClient(host.port, str(host.socket))
    connection = client.connect()
    connection.sendall(head(client, "GET", "/status"))
    assert read_answer(connection)[0] == 200

    with unix_connect(uri="ws://localhost/attach", sock=connection, open_timeout=5) as channel:
        channel.recv(timeout=5)
        # Longer than a request may take, and than a connection may be idle.
        with pytest.raises(TimeoutError):
            channel.recv(timeout=0.7)
        channel.send("still here")
        assert channel.recv(timeout=5) == "still here"


@pytest.mark.parametrize(
    ("path", "status", "reason"), [("/attach?as=agent", 403, "person_required"), ("/other", 404, "route_not_found")]
)
def test_a_websocket_is_refused_with_an_http_answer(
    host: ServedHost, path: str, status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus) as caught:
        unix_connect(str(host.socket), f"ws://localhost{path}", open_timeout=5)

    assert caught.value.response.status_code == status
    assert code(bytes(caught.value.response.body or b"")) == reason
    # When the next request is answered, the server is done with this one.
    WireClient(host.port).request("GET", "/status")
    assert caplog.records == [], "a refusal is not logged as a failure"


def test_a_websocket_is_refused_over_tcp(host: ServedHost) -> None:
    with pytest.raises(InvalidStatus) as caught:
        connect(f"ws://localhost:{host.port}/attach", open_timeout=5)

    assert caught.value.response.status_code == 403


def test_stopping_ends_streams_and_websockets_soon_and_removes_the_socket(tmp_path: Path) -> None:
    with served(tmp_path, InMemoryService, websockets={"/attach": echo}) as host:
        client = WireClient(host.port, str(host.socket))
        task_id = client.request("POST", "/tasks/create", HELLO).json["task"]["id"]
        with (
            client.follow(f"/tasks/{task_id}/subscribe") as events,
            unix_connect(str(host.socket), "ws://localhost/attach", open_timeout=5) as channel,
        ):
            assert next(events).name == "snapshot"
            channel.recv(timeout=5)
            begun = time.monotonic()
            host.stop()
            assert [event.name for event in events] == ["error"]
            with pytest.raises(ConnectionClosed):
                channel.recv(timeout=5)
            assert time.monotonic() - begun < 2

    assert list(tmp_path.iterdir()) == []


def test_a_cancelled_server_shuts_down_too(tmp_path: Path) -> None:
    with served(tmp_path, InMemoryService) as host:
        client = WireClient(host.port, str(host.socket))
        task_id = client.request("POST", "/tasks/create", HELLO).json["task"]["id"]
        with client.follow(f"/tasks/{task_id}/subscribe") as events:
            next(events)
            host.loop.call_soon_threadsafe(_cancel_serving, host.loop)
            assert [event.name for event in events] == ["error"]


def _cancel_serving(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        if "Server.serve" in repr(task.get_coro()):
            task.cancel()


def test_the_server_sets_no_signal_handlers_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with caplog.at_level(logging.DEBUG), served(tmp_path, InMemoryService) as host:
        client = WireClient(host.port, str(host.socket))
        raw(client, b"garbage\r\n\r\n")
        client.request("GET", "/status")
        during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    assert during == before
    assert capfd.readouterr() == ("", "")
