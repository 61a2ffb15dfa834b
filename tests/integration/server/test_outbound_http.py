"""Requests over real sockets to other servers: good ones, broken ones and hostile ones."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from synapse.core.errors import InvalidField
from synapse.net.address_guard import AGENTS, Address, AddressGuard
from synapse.net.http import HttpClient, deadline_in
from synapse.net.http_types import HttpAnswer, HttpFailed, HttpRequest, HttpTimedOut, Reason
from tests.fakes.certificates import self_made

BOUND = 40.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Reads one request from each connection, then runs the script of a test."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        """Set when a client has disconnected."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/a/path?x=1"

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self.bodies.append(await reader.readexactly(int(length or 0)))
            self.asked.set()
            await self._serve(reader, writer)
        except (OSError, EOFError):
            self.left.set()
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self, host: str = "127.0.0.1", secure: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
        server = await asyncio.start_server(self._handle, host, 0, ssl=secure)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()


def says(*parts: bytes) -> Serve:
    """Returns a script that sends `parts` and closes the connection."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return serve


def says_and_waits(*parts: bytes) -> Serve:
    """Returns a script that sends `parts`, and then nothing until the client disconnects."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await says(*parts)(reader, writer)
        await reader.read()
        raise EOFError

    return serve


def repeats(start: bytes, more: bytes) -> Serve:
    """Returns a script that sends `start`, and then `more` until the client disconnects."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(more)
            await writer.drain()

    return serve


def get(server: Server, path: str = "") -> HttpRequest:
    return HttpRequest(method="GET", url=path or server.url)


async def fetched(serve: Serve, *, seconds: float = 30, limit: int = 100_000) -> HttpAnswer:
    async with asyncio.timeout(BOUND), Server(serve).open() as server:
        return await HttpClient().fetch(get(server), seconds=seconds, limit=limit)


async def failed(serve: Serve, *, seconds: float = 30, limit: int = 100_000) -> HttpFailed:
    with pytest.raises(HttpFailed) as caught:
        await fetched(serve, seconds=seconds, limit=limit)
    return caught.value


async def test_a_request_is_sent_unchanged_and_its_answer_is_returned() -> None:
    async with asyncio.timeout(BOUND):
        async with Server(says(b"HTTP/1.1 201 Made\r\nContent-Length: 3\r\nX: y\r\n\r\nyes")).open() as server:
            request = HttpRequest(
                method="POST",
                url=server.url,
                headers=[("Authorization", "Bearer s"), ("Content-Type", "a/b")],
                body=b"hello",
            )
            assert await HttpClient().fetch(request, seconds=30, limit=10) == HttpAnswer(201, b"yes")
            first, *lines = server.heads[0].decode().split("\r\n")
            assert first == "POST /a/path?x=1 HTTP/1.1"
            assert lines[:-2] == [
                f"Host: 127.0.0.1:{server.port}",
                "Accept-Encoding: identity",
                "Connection: close",
                "Content-Length: 5",
                "Authorization: Bearer s",
                "Content-Type: a/b",
            ]
            assert server.bodies == [b"hello"]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", HttpAnswer(200, b"to the end")),
        (b"HTTP/1.1 204 None\r\n\r\n", HttpAnswer(204, b"")),
        (CHUNKED + b"2;a=b\r\nok\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n", HttpAnswer(200, b"ok!")),
        (b"HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + OK, HttpAnswer(200, b"ok")),
        (
            b"HTTP/1.1 302 There\r\nLocation: /b\r\nLocation: /c\r\nContent-Length: 0\r\n\r\n",
            HttpAnswer(302, b"", "/b"),
        ),
        (b"HTTP/1.1 200 OK\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n", HttpAnswer(200, b"")),
        (b"HTTP/1.1 500 \xfc\r\nX: \xfc\r\nContent-Length: 1\r\n\r\n\xfc", HttpAnswer(500, b"\xfc")),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
async def test_an_answer_is_read_in_any_framing(said: bytes, answer: HttpAnswer, cut: bool) -> None:
    parts = [bytes([byte]) for byte in said] if cut else [said]

    assert await fetched(says(*parts)) == answer


async def test_a_compressed_answer_is_not_decompressed() -> None:
    answer = await fetched(
        says(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00")
    )

    assert answer.body == b"\x1f\x8b\x08\x00"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", Reason.CLOSED),
        (b"HTTP/1.1 200 O", Reason.CLOSED),
        (b"HTTP/1.1 200 OK\r\nContent-Len", Reason.CLOSED),
        (b"HTTP/1.1 2xx OK\r\n\r\n", Reason.NOT_HTTP),
        (b"HTTP/1.1 200 OK\r\n no: fold\r\n\r\n", Reason.NOT_HTTP),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", Reason.NOT_HTTP),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Reason.NOT_HTTP),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Reason.NOT_HTTP),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok", Reason.BROKEN_OFF),
        (CHUNKED + b"5\r\nok", Reason.BROKEN_OFF),
        (CHUNKED + b"2\r\nok\r\n", Reason.BROKEN_OFF),
        (CHUNKED + b"xyz\r\nok\r\n", Reason.NOT_HTTP),
        (CHUNKED + b"-5\r\nok\r\n", Reason.NOT_HTTP),
        (CHUNKED + b"f" * 30 + b"\r\nok", Reason.NOT_HTTP),
    ],
)
async def test_an_invalid_or_incomplete_answer_is_a_failure(said: bytes, reason: Reason) -> None:
    failure = await failed(says(said))

    assert failure.reason is reason
    assert failure.sent


@pytest.mark.parametrize("banner", [b"SSH-2.0-OpenSSH_9\r\n", b"220 mail ready\r\n", b"\x15\x03\x01", b"h"])
async def test_a_server_of_another_protocol_fails_at_once(banner: bytes) -> None:
    assert (await failed(says_and_waits(banner))).reason is Reason.NOT_HTTP


@pytest.mark.parametrize(
    ("start", "more", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000, Reason.HEAD_TOO_LARGE),
        (b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n" * 100, Reason.HEAD_TOO_LARGE),
        (b"HTTP/1.1 ", b"2" * 1000, Reason.HEAD_TOO_LARGE),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50, Reason.HEAD_TOO_LARGE),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 10_000, Reason.BODY_TOO_LARGE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 10_000, Reason.BODY_TOO_LARGE),
        (CHUNKED, b"400\r\n" + b"x" * 1024 + b"\r\n", Reason.BODY_TOO_LARGE),
        (CHUNKED + b"1;", b"e" * 10_000, Reason.NOT_HTTP),
        (CHUNKED + b"0\r\n", b"X-Trailer: y\r\n" * 100, Reason.NOT_HTTP),
    ],
    ids=["line", "headers", "status", "1xx", "body", "length", "chunks", "extension", "trailers"],
)
async def test_an_answer_without_end_is_cut_off(start: bytes, more: bytes, reason: Reason) -> None:
    assert (await failed(repeats(start, more))).reason is reason


@pytest.mark.parametrize(
    "more", [b"1\r\nx\r\n" * 1000, b"1;" + b"e" * 10_000 + b"\r\nx\r\n"], ids=["crumbs", "padding"]
)
async def test_an_answer_with_more_framing_than_content_is_cut_off_long_before_its_limit(more: bytes) -> None:
    assert (await failed(repeats(CHUNKED, more), limit=10**9)).reason is Reason.BODY_TOO_LARGE


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\no"],
)
async def test_a_silent_server_times_out(said: bytes) -> None:
    async with asyncio.timeout(BOUND):
        async with Server(says_and_waits(said)).open() as server:
            with pytest.raises(HttpTimedOut) as caught:
                await HttpClient().fetch(get(server), seconds=0.2, limit=100)
            assert caught.value.sent
            await server.left.wait()


async def test_a_server_that_drips_bytes_times_out() -> None:
    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    assert isinstance(await failed(drip, seconds=0.3), HttpTimedOut)


async def test_cancelling_the_caller_closes_the_connection_at_once() -> None:
    async with asyncio.timeout(BOUND):
        async with Server(says_and_waits(b"HTTP/1.1 200 OK\r\n\r\nbegun")).open() as server:
            fetching = asyncio.create_task(HttpClient().fetch(get(server), seconds=600, limit=100))
            await server.asked.wait()
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
            await server.left.wait()


async def test_a_body_can_be_left_in_the_middle() -> None:
    async with asyncio.timeout(BOUND):
        async with Server(repeats(CHUNKED, b"3\r\nabc\r\n")).open() as server:
            async with HttpClient().open(get(server), deadline=None) as response:
                assert (await response.receive()).startswith(b"abc")
            await server.left.wait()


async def test_the_answer_of_a_server_that_closes_its_half_is_read() -> None:
    async def half(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        writer.write_eof()
        await _reader.read()

    assert (await fetched(half)).body == b"all of it"


async def test_after_a_reset_the_request_counts_as_sent() -> None:
    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        linger = socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        writer.get_extra_info("socket").setsockopt(*linger)
        writer.transport.abort()

    failure = await failed(reset)

    assert (failure.reason, failure.detail, failure.sent) == (Reason.UNREACHABLE, "Connection reset by peer", True)


async def test_a_refused_connection_has_sent_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening: no other process can listen there
        request = HttpRequest(method="GET", url=f"http://127.0.0.1:{taken.getsockname()[1]}/")
        with pytest.raises(HttpFailed) as caught:
            await HttpClient().fetch(request, seconds=30, limit=1)

    failure = caught.value
    assert (failure.reason, failure.detail, failure.sent) == (Reason.REFUSED, "Connection refused", False)


async def test_connecting_has_its_own_timeout() -> None:
    async with asyncio.timeout(BOUND):
        with socket.socket() as full, socket.socket() as first, socket.socket() as second:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            # The server accepts none, and its queue is short: later connections hang.
            for filling in (first, second):
                filling.setblocking(False)
                filling.connect_ex(full.getsockname())
            request = HttpRequest(method="GET", url=f"http://127.0.0.1:{full.getsockname()[1]}/")
            with pytest.raises(HttpFailed) as caught:
                await HttpClient(connect_seconds=0.2).fetch(request, seconds=30, limit=1)
            assert (caught.value.reason, caught.value.sent) == (Reason.CONNECT_TIMEOUT, False)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://does-not-exist.invalid/", Reason.NAME_UNKNOWN),
        ("http://a..b/", Reason.NAME_INVALID),
        (f"http://{'x' * 70}.example/", Reason.NAME_INVALID),
        ("http:///nowhere", Reason.NAME_INVALID),
        ("http://localhost:99999/", Reason.BAD_REQUEST),
        ("ftp://localhost/", Reason.BAD_REQUEST),
        ("http://[::1/", Reason.BAD_REQUEST),
    ],
)
async def test_a_name_that_cannot_be_resolved_is_a_failure(url: str, reason: Reason) -> None:
    async with asyncio.timeout(BOUND):
        with pytest.raises(HttpFailed) as caught:
            await HttpClient().fetch(HttpRequest(method="GET", url=url), seconds=30, limit=1)
        assert (caught.value.reason, caught.value.sent) == (reason, False)


@pytest.mark.parametrize("value", ["secret\r\nX: y", "secret\x00", "secret\u2603"])
async def test_a_header_that_cannot_be_sent_is_not_quoted(value: str) -> None:
    async with asyncio.timeout(BOUND):
        async with Server(says(OK)).open() as server:
            request = HttpRequest(method="GET", url=server.url, headers=[("X-Key", value)])
            with pytest.raises(HttpFailed) as caught:
                await HttpClient().fetch(request, seconds=30, limit=10)
            assert caught.value.reason is Reason.BAD_REQUEST
            assert "secret" not in repr((caught.value, caught.value.__cause__, request))
            assert server.heads == []


async def test_the_log_does_not_show_answers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await fetched(says(b"HTTP/1.1 200 OK\r\nSet-Cookie: secret\r\nContent-Length: 0\r\n\r\n"))

    assert "secret" not in caplog.text


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert (await fetched(says(OK))).body == b"ok"


async def test_events_are_read_as_they_arrive_up_to_a_limit() -> None:
    async with asyncio.timeout(BOUND):
        event = b"14\r\ndata: hello\r\nid: 7\n\n\r\n"
        async with Server(says_and_waits(CHUNKED, event, event)).open() as server:
            async with HttpClient().open(get(server), deadline=deadline_in(30)) as response:
                events = response.events(1000)
                heard = [await anext(events), await anext(events)]
                assert [(one.data, one.id) for one in heard] == [("hello", "7")] * 2
                await events.aclose()
            await server.left.wait()
        async with Server(repeats(CHUNKED, event)).open() as server:
            async with HttpClient().open(get(server), deadline=deadline_in(30)) as response:
                with pytest.raises(HttpFailed) as caught:
                    _ = [one async for one in response.events(1000)]
            assert caught.value.reason is Reason.BODY_TOO_LARGE


class Names:
    """A resolver that returns fixed addresses, and records the names."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = [ip_address(address) for address in addresses]
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append((host, port))
        return self.addresses


def checked_client(names: Names, *, allow_private: bool) -> HttpClient:
    return HttpClient(AddressGuard(allow_private=allow_private, switch=AGENTS, resolve=names))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
    ],
)
async def test_an_address_of_this_machine_or_network_is_not_called(host: str) -> None:
    async with asyncio.timeout(BOUND):
        names = Names("127.0.0.1")
        async with Server(says(OK)).open() as server:
            request = get(server, f"http://{host}:{server.port}/")
            with pytest.raises(InvalidField):
                await checked_client(names, allow_private=False).fetch(request, seconds=30, limit=10)
            assert server.heads == []
        assert names.asked == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["203.0.114.7", "127.0.0.1"],
        ["127.0.0.1", "203.0.114.7"],
        ["203.0.114.7", "::1"],
        ["2a00::1", "::ffff:10.0.0.1"],
        ["fe80::1"],
        ["169.254.169.254"],
    ],
)
async def test_a_name_that_resolves_there_is_not_called(addresses: list[str]) -> None:
    async with asyncio.timeout(BOUND):
        names = Names(*addresses)
        async with Server(says(OK)).open() as server:
            request = get(server, f"http://friendly.example:{server.port}/")
            with pytest.raises(InvalidField, match=r"'friendly\.example' leads to"):
                await checked_client(names, allow_private=False).fetch(request, seconds=30, limit=10)
            assert server.heads == []
        assert len(names.asked) == 1


async def test_the_refusal_names_the_setting_that_would_allow_it() -> None:
    async def refused(url: str, *, allow_private: bool) -> str:
        client = checked_client(Names(), allow_private=allow_private)
        with pytest.raises(InvalidField) as caught:
            await client.fetch(HttpRequest(method="GET", url=url), seconds=30, limit=1)
        return caught.value.hint

    assert "allow_private_agents" in await refused("http://127.0.0.1:9/", allow_private=False)
    assert "allow_private_agents" not in await refused("http://169.254.169.254/", allow_private=True)


async def test_the_name_is_resolved_once_and_the_checked_address_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []
    real = socket.getaddrinfo

    def spy(host: Any, *arguments: Any, **options: Any) -> object:
        looked_up.append(host)
        return real(host, *arguments, **options)

    async with asyncio.timeout(BOUND):
        names = Names("127.0.0.1")
        async with Server(says(OK)).open() as server:
            monkeypatch.setattr(socket, "getaddrinfo", spy)
            # Only this resolver knows the name: a look-up by any other code would fail.
            url = f"http://friendly.invalid:{server.port}/x"
            answer = await checked_client(names, allow_private=True).fetch(get(server, url), seconds=30, limit=10)
            assert answer.status == 200
            assert f"Host: friendly.invalid:{server.port}".encode() in server.heads[0]
            assert names.asked == [("friendly.invalid", server.port)]
            assert set(looked_up) <= {"127.0.0.1"}, "no name is looked up below the guard"


async def test_every_request_is_checked_anew() -> None:
    async with asyncio.timeout(BOUND):
        names = Names("127.0.0.1")
        client = checked_client(names, allow_private=True)
        async with Server(says(OK)).open() as server:
            request = get(server, f"http://friendly.invalid:{server.port}/")
            assert (await client.fetch(request, seconds=30, limit=10)).status == 200
            names.addresses = [ip_address("127.0.0.1"), ip_address("169.254.169.254")]
            with pytest.raises(InvalidField):
                await client.fetch(request, seconds=30, limit=10)
            assert len(server.heads) == 1


async def test_the_next_address_is_tried_when_nothing_listens_at_the_first() -> None:
    async with asyncio.timeout(BOUND):
        async with Server(says(OK)).open() as server:
            url = f"http://friendly.invalid:{server.port}"
            client = checked_client(Names("127.0.0.2", "::1", "127.0.0.1"), allow_private=True)
            assert (await client.fetch(get(server, url), seconds=30, limit=10)).status == 200


async def test_a_name_without_an_address_is_not_known() -> None:
    async with asyncio.timeout(BOUND):
        request = HttpRequest(method="GET", url="http://friendly.invalid/")
        with pytest.raises(HttpFailed) as caught:
            await checked_client(Names(), allow_private=True).fetch(request, seconds=30, limit=1)
        assert caught.value.reason is Reason.NAME_UNKNOWN


async def test_an_address_that_this_user_chose_is_not_checked() -> None:
    async with asyncio.timeout(BOUND):
        async with Server(says(OK)).open() as server:
            answer = await HttpClient().fetch(get(server, f"http://localhost:{server.port}"), seconds=30, limit=10)
            assert answer.status == 200
            assert server.heads[0].startswith(b"GET / HTTP/1.1\r\nHost: localhost:")


async def test_characters_that_a_request_line_cannot_hold_are_encoded() -> None:
    async with asyncio.timeout(BOUND):
        async with Server(says(OK)).open() as server:
            url = f'http://127.0.0.1:{server.port}/ü b/%2F?q=ä "#part'
            await HttpClient().fetch(get(server, url), seconds=30, limit=10)
            assert server.heads[0].startswith(b"GET /%C3%BC%20b/%2F?q=%C3%A4%20%22 HTTP/1.1\r\n")


async def test_tls_is_verified_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    certificate, key = self_made(tmp_path)
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(certificate, key)

    def trusting() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certificate))

    async with asyncio.timeout(BOUND):
        guard = AddressGuard(allow_private=True, resolve=Names("127.0.0.1"))
        friend, stranger = HttpClient(guard, trust=trusting), HttpClient(guard)
        async with Server(says(OK)).open(secure=secure) as server:
            for host in ("localhost", "localhost.", "127.0.0.1"):
                request = get(server, f"https://{host}:{server.port}/")
                assert (await friend.fetch(request, seconds=30, limit=10)).body == b"ok"
            heard = len(server.heads)
            for client, host in ((friend, "other.example"), (stranger, "localhost")):
                with pytest.raises(HttpFailed) as caught:
                    await client.fetch(get(server, f"https://{host}:{server.port}/"), seconds=30, limit=10)
                assert (caught.value.reason, caught.value.sent) == (Reason.CERTIFICATE, False)
                assert caught.value.detail
            assert len(server.heads) == heard


@pytest.mark.parametrize("manners", [says(b"HTTP/1.1 400 No\r\n\r\n"), says()])
async def test_a_server_without_tls_is_a_failure(manners: Serve) -> None:
    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await manners(reader, writer)
        writer.close()

    async with asyncio.timeout(BOUND):
        server = await asyncio.start_server(at_once, "127.0.0.1", 0)
        async with server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            with pytest.raises(HttpFailed) as caught:
                await HttpClient().fetch(HttpRequest(method="GET", url=url), seconds=30, limit=10)
        assert (caught.value.reason, caught.value.sent) == (Reason.NO_TLS, False)


async def test_an_unfinished_tls_handshake_times_out() -> None:
    async with asyncio.timeout(BOUND):
        async with Server(says_and_waits()).open() as server:
            request = get(server, f"https://127.0.0.1:{server.port}/")
            with pytest.raises(HttpFailed) as caught:
                await HttpClient(connect_seconds=0.2).fetch(request, seconds=30, limit=10)
            assert (caught.value.reason, caught.value.sent) == (Reason.CONNECT_TIMEOUT, False)


def test_httpcore_is_loaded_with_the_first_request_only() -> None:
    modules = "synapse.push.service, synapse.gateway.gateway, synapse.auth.gateway, synapse.host.pty"
    code = f"import sys, {modules}; assert not {{'httpcore', 'anyio', 'h11'}} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
