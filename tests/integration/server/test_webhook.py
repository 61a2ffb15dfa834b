"""Notifications over real sockets, to webhooks that behave and to some that do not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from synapse.core.errors import InvalidField
from synapse.net.address_guard import Address, Resolve
from synapse.push.outbox import PostResult
from synapse.push.webhook import WebhookLimits, WebhookSender
from tests.fakes.certificates import self_made

BOUND = 40.0
HEADERS = [("Content-Type", "application/a2a+json"), ("X-Test", "yes")]
PATIENT = WebhookLimits(check=10, connect=10, whole=20)
HASTY = WebhookLimits(check=10, connect=10, whole=0.3)


class Hook:
    """A webhook on loopback that records its requests."""

    def __init__(
        self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", *, hangs: bool = False
    ) -> None:
        self._answer = answer
        self._hangs = hangs
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.port = 0
        self._over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        self.heads.append(head)
        length = next(line for line in head.split("\r\n") if line.startswith("Content-Length:"))
        self.bodies.append(await reader.readexactly(int(length.partition(":")[2])))
        if self._hangs:
            await self._over.wait()
        writer.write(self._answer)
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def open(self, secure: ssl.SSLContext | None = None) -> AsyncGenerator[Hook]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=secure)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._over.set()
            server.close()
            await server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?x=1"


def sender(limits: WebhookLimits = PATIENT, resolve: Resolve | None = None, *, allowed: bool = True) -> WebhookSender:
    if resolve is None:
        return WebhookSender(allow_private=allowed, limits=limits)
    return WebhookSender(allow_private=allowed, limits=limits, resolve=resolve)


async def posted_to(hook: Hook, limits: WebhookLimits = PATIENT) -> PostResult:
    async with asyncio.timeout(BOUND), hook.open():
        return await sender(limits).post(hook.url, HEADERS, b'{"a": 1}')


async def test_a_notification_arrives_as_it_was_sent() -> None:
    hook = Hook()

    assert await posted_to(hook) == PostResult(status=200)
    first, *lines = hook.heads[0].split("\r\n")
    assert first == "POST /hook?x=1 HTTP/1.1"
    assert {f"Host: 127.0.0.1:{hook.port}", "Content-Type: application/a2a+json", "X-Test: yes"} <= set(lines)
    assert hook.bodies == [b'{"a": 1}']


@pytest.mark.parametrize(
    ("answer", "posted"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", PostResult(status=204)),
        (b"HTTP/1.0 202 Accepted\r\n\r\nwords", PostResult(status=202)),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", PostResult(status=200)),
        (b"HTTP/1.1 500 Oh\r\n\r\n", PostResult(status=500, error="it answered 500")),
        (b"HTTP/1.1 404 No\r\nContent-Length: 999999999\r\n\r\n", PostResult(status=404, error="it answered 404")),
        (
            b"HTTP/1.1 429 Slow\r\nRetry-After: 17\r\n\r\n",
            PostResult(status=429, error="it answered 429", retry_after=17.0),
        ),
        (b"HTTP/1.1 503 x\r\nRetry-After: soon\r\n\r\n", PostResult(status=503, error="it answered 503")),
        (b"SSH-2.0-OpenSSH\r\n\r\n", PostResult(error="its answer is not HTTP")),
        (b"HTTP/1.1 2xx OK\r\n\r\n", PostResult(error="its answer is not HTTP")),
        (b"", PostResult(error="it closed the connection without an answer")),
        (b"HTTP/1.1 200 O", PostResult(error="it closed the connection without an answer")),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, PostResult(error="the head of its answer is too long")),
    ],
)
async def test_the_result_has_the_webhooks_answer(answer: bytes, posted: PostResult) -> None:
    assert await posted_to(Hook(answer)) == posted


async def test_a_webhook_that_hangs_times_out() -> None:
    assert await posted_to(Hook(hangs=True), HASTY) == PostResult(error="no answer in time")


async def test_a_webhook_that_sends_only_the_head_of_a_success_counts_as_notified() -> None:
    async with asyncio.timeout(BOUND):
        over = asyncio.Event()

        async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\no")
            await over.wait()
            writer.close()

        async with await asyncio.start_server(half, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            assert await sender(HASTY).post(url, HEADERS, b"{}") == PostResult(status=200)
            over.set()


async def test_a_redirect_is_not_followed() -> None:
    async with asyncio.timeout(BOUND):
        other = Hook()
        async with other.open():
            hook = Hook(f"HTTP/1.1 307 There\r\nLocation: {other.url}\r\n\r\n".encode())
            async with hook.open():
                posted = await sender().post(hook.url, HEADERS, b"{}")
        assert posted.status == 307
        assert other.bodies == []


async def test_a_webhook_where_nothing_listens_is_reported() -> None:
    async with asyncio.timeout(BOUND):
        hook = Hook()
        async with hook.open():
            pass
        posted = await sender().post(hook.url, HEADERS, b"{}")
        assert posted.status == 0
        assert posted.error
        assert not posted.is_final


async def test_a_private_address_is_refused_when_configured_and_when_called() -> None:
    async with asyncio.timeout(BOUND):
        hook = Hook()
        async with hook.open():
            with pytest.raises(InvalidField):
                await sender(allowed=False).check(hook.url)
            posted = await sender(allowed=False).post(hook.url, HEADERS, b"{}")
        assert posted.is_final
        assert hook.bodies == []


async def test_all_addresses_of_a_name_are_checked_and_it_is_resolved_once() -> None:
    async with asyncio.timeout(BOUND):
        asked: list[str] = []

        async def changing(host: str, _port: int) -> Sequence[Address]:
            asked.append(host)
            public = ip_address("93.184.216.34")
            return [public] if len(asked) == 1 else [public, ip_address("127.0.0.1")]

        hook = Hook()
        async with hook.open():
            careful = sender(resolve=changing, allowed=False)
            url = f"http://changes.example:{hook.port}/"
            await careful.check(url)
            posted = await careful.post(url, HEADERS, b"{}")
        assert posted.is_final
        assert asked == ["changes.example", "changes.example"]
        assert hook.bodies == []


async def test_the_checked_address_is_called_under_its_name() -> None:
    async with asyncio.timeout(BOUND):

        async def fixed(_host: str, _port: int) -> Sequence[Address]:
            return [ip_address("127.0.0.1")]

        hook = Hook()
        async with hook.open():
            posted = await sender(resolve=fixed).post(f"http://hook.example:{hook.port}/", HEADERS, b"{}")
        assert posted.status == 200
        assert f"Host: hook.example:{hook.port}" in hook.heads[0]


async def test_a_name_that_cannot_be_resolved_now_may_be_configured_and_is_tried_later() -> None:
    async with asyncio.timeout(BOUND):

        async def unknown(_host: str, _port: int) -> Sequence[Address]:
            raise OSError("no such name")

        lost = sender(resolve=unknown)
        await lost.check("https://later.example/")
        posted = await lost.post("https://later.example/", HEADERS, b"{}")
        assert (posted.status, posted.is_final) == (0, False)


async def test_a_second_address_is_tried_when_the_first_does_not_answer() -> None:
    async with asyncio.timeout(BOUND):

        async def two(_host: str, _port: int) -> Sequence[Address]:
            return [ip_address("127.0.0.2"), ip_address("127.0.0.1")]

        hook = Hook()
        async with hook.open():
            posted = await sender(resolve=two).post(f"http://hook.example:{hook.port}/", HEADERS, b"{}")
        assert posted.status == 200


async def test_posts_to_one_receiver_are_limited_without_delaying_others() -> None:
    async with asyncio.timeout(BOUND):
        slow, quick = Hook(hangs=True), Hook()
        async with slow.open(), quick.open():
            hooks = sender()
            jobs = [asyncio.ensure_future(hooks.post(slow.url, HEADERS, b"{}")) for _ in range(100)]
            assert (await hooks.post(quick.url, HEADERS, b"{}")).status == 200
            assert len(slow.bodies) <= 8
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)


async def test_a_self_signed_certificate_is_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND):
        certificate, key = self_made(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)

        async def here(_host: str, _port: int) -> Sequence[Address]:
            return [ip_address("127.0.0.1")]

        def trusting() -> ssl.SSLContext:
            return ssl.create_default_context(cafile=str(certificate))

        hook = Hook()
        async with hook.open(context):
            url = f"https://localhost:{hook.port}/"
            friend = WebhookSender(allow_private=True, limits=PATIENT, resolve=here, trust=trusting)
            stranger = await sender(resolve=here).post(url, HEADERS, b"{}")
            known = await friend.post(url, HEADERS, b"{}")
            misnamed = await friend.post(f"https://other.example:{hook.port}/", HEADERS, b"{}")
        assert "certificate" in stranger.error
        assert known == PostResult(status=200)
        assert "certificate" in misnamed.error
        assert len(hook.bodies) == 1
