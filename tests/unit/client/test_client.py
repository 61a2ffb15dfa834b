"""The small HTTP client, against servers that send given bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from synapse.client import http
from synapse.client.http import HostAddress, NoAnswer, compose, request

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"ok":true}'


class OneAnswer:
    """A server for one connection; it reads a request, answers with these pieces, and closes."""

    def __init__(self, listener: socket.socket, *pieces: bytes) -> None:
        self.received = b""
        self._listener = listener
        self._pieces = pieces

    def run(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            self.answer(connection)

    def answer(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        while not self._is_whole():
            self.received += connection.recv(65536)
        for piece in self._pieces:
            connection.sendall(piece)

    def _is_whole(self) -> bool:
        head, end, body = self.received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return bool(end) and len(body) >= int(length or 0)


@contextmanager
def answering(listener: socket.socket, *pieces: bytes) -> Generator[OneAnswer]:
    server = OneAnswer(listener, *pieces)
    with listener:
        listener.listen()
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            thread.join(5)


@pytest.fixture
def unix(tmp_path: Path) -> tuple[socket.socket, HostAddress]:
    path = str(tmp_path / "host.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    return listener, HostAddress(path)


@pytest.fixture
def tcp() -> tuple[socket.socket, HostAddress]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, HostAddress(port=listener.getsockname()[1])


Place = tuple[socket.socket, HostAddress]


@pytest.mark.parametrize(
    "pieces",
    [
        [OK],
        [OK[i : i + 1] for i in range(len(OK))],
        [b'HTTP/1.1 200 OK\r\n\r\n{"ok":true}'],
        [b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"ok"\r\n6\r\n:true}\r\n0\r\n\r\n'],
    ],
)
def test_an_answer_is_read_however_it_was_sent(unix: Place, pieces: list[bytes]) -> None:
    with answering(unix[0], *pieces):
        answer = request(unix[1], "GET", "/status")

    assert (answer.status, answer.body) == (200, {"ok": True})


def test_a_request_is_plain_http_with_json(tcp: Place) -> None:
    with answering(tcp[0], OK) as server:
        request(tcp[1], "POST", "/tasks/send", {"text": "日本"})

    head, _, body = server.received.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /tasks/send HTTP/1.1",
        f"Host: localhost:{tcp[1].port}".encode(),
        b"Connection: close",
        b"Content-Type: application/json",
        b"Content-Length: 24",
    ]
    assert body == b'{"text": "\\u65e5\\u672c"}'


def test_the_port_is_tried_when_the_socket_is_missing(tcp: Place, tmp_path: Path) -> None:
    address = HostAddress(str(tmp_path / "none.sock"), port=tcp[1].port)

    with answering(tcp[0], OK):
        assert request(address, "GET", "/").status == 200


def test_an_error_is_an_answer_too(unix: Place) -> None:
    body = b'{"error": {"code": "task_not_found"}}'
    head = f"HTTP/1.1 404 Not Found\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    with answering(unix[0], head + body):
        answer = request(unix[1], "GET", "/tasks/x")

    assert (answer.status, answer.body["error"]["code"]) == (404, "task_not_found")


def test_a_body_that_is_not_json_is_an_empty_object(unix: Place) -> None:
    with answering(unix[0], b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops"):
        answer = request(unix[1], "GET", "/")

    assert (answer.status, answer.body) == (502, {})


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"HTTP/1.1 200 OK\r\nContent-Le"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"],
        [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n"],
    ],
)
def test_an_incomplete_or_invalid_response_raises_no_answer(unix: Place, pieces: list[bytes]) -> None:
    with answering(unix[0], *pieces), pytest.raises(NoAnswer) as caught:
        request(unix[1], "GET", "/")

    assert caught.value.sent


def test_an_address_without_a_host_raises_no_answer_and_nothing_was_sent(tmp_path: Path) -> None:
    for address in (HostAddress(), HostAddress(str(tmp_path / "none.sock")), HostAddress("x" * 300)):
        with pytest.raises(NoAnswer) as caught:
            request(address, "GET", "/")
        assert not caught.value.sent


def test_a_host_that_says_nothing_times_out(unix: Place) -> None:
    listener, address = unix
    with listener:
        listener.listen()
        with pytest.raises(NoAnswer) as caught:
            request(address, "GET", "/", timeout=0.05)

    assert (caught.value.sent, caught.value.timed_out) == (True, True)


@pytest.mark.parametrize("text", ["", "x" * 8_000_000])
def test_a_suspended_host_is_not_waited_for(unix: Place, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Whether it was too late to be read, or too long to be written."""
    monkeypatch.setattr(http, "CHECK_SECONDS", 0.01)
    listener, address = unix
    with listener:
        listener.listen()
        with pytest.raises(NoAnswer) as caught:
            request(address, "POST", "/", {"text": text}, timeout=3600, is_stopped=lambda: True)

    assert (caught.value.sent, caught.value.timed_out) == (True, True)


@pytest.mark.parametrize("text", ["", "x" * 8_000_000])
def test_a_host_that_is_only_slow_is_waited_for(unix: Place, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(http, "CHECK_SECONDS", 0.01)
    looked = threading.Event()
    listener, address = unix

    def is_stopped() -> bool:
        looked.set()
        return False

    def answer_late() -> None:
        connection, _ = listener.accept()
        with connection:
            looked.wait(30)
            server = OneAnswer(listener, OK)
            server.answer(connection)

    with listener:
        listener.listen()
        thread = threading.Thread(target=answer_late)
        thread.start()
        try:
            answer = request(address, "POST", "/", {"text": text}, timeout=30, is_stopped=is_stopped)
        finally:
            thread.join(30)

    assert answer.status == 200


def test_a_request_without_a_body_announces_none() -> None:
    assert b"Content" not in compose(HostAddress("x"), "GET", "/status")


def test_a_refusal_is_read_though_the_body_could_not_be_sent(unix: Place) -> None:
    listener, address = unix
    refused = threading.Event()

    def refuse() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
            # From here on a write fails with EPIPE.
            connection.shutdown(socket.SHUT_RD)
            refused.wait(5)

    with listener:
        listener.listen()
        thread = threading.Thread(target=refuse)
        thread.start()
        try:
            answer = request(address, "POST", "/tasks/send", {"text": "x" * 8_000_000}, timeout=5)
        finally:
            refused.set()
            thread.join(5)

    assert answer.status == 413


def test_only_a_unix_socket_is_shown_the_secret_of_a_launch() -> None:
    address = HostAddress("/run/agent.sock", port=8100, launch="s3cret")

    with socket.socket(socket.AF_UNIX) as ours, socket.socket(socket.AF_INET) as anybodys:
        assert address.proof(ours) == ("X-Synapse-Launch: s3cret",)
        assert address.proof(anybodys) == ()
        assert HostAddress("/run/agent.sock").proof(ours) == ()
