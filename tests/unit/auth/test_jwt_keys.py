"""Key sets: read, cached, and fetched again only when that helps, and not too often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from synapse.auth.jwt import FetchedKeySet, KeySetFile, SigningKey, fetcher, read_key_set
from synapse.core.errors import ExternalAgentFailed, InvalidSettings
from tests.fakes.clock import FakeClock
from tests.fakes.issuer import Issuer
from tests.fakes.strangers import Said, rude_server, stranger_at_home


class Source:
    """Returns the key set of an issuer and counts the calls; it can fail, or delay its answer."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.asked = 0
        self.broken = False
        self.released = asyncio.Event()
        self.released.set()

    async def fetch(self) -> bytes:
        self.asked += 1
        async with asyncio.timeout(10):
            await self.released.wait()
        if self.broken:
            raise ConnectionRefusedError("nothing listens")
        return json.dumps(self.issuer.key_set()).encode()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def source() -> Source:
    return Source(Issuer("first"))


async def found(keys: FetchedKeySet, kid: str) -> SigningKey | None:
    async with asyncio.timeout(10):
        key = keys.find(kid)
        return await key if isinstance(key, Awaitable) else key


async def test_a_set_is_fetched_once_and_then_known_at_once(clock: FakeClock, source: Source) -> None:
    keys = FetchedKeySet(source.fetch, clock)
    assert await found(keys, "first") is not None
    assert isinstance(keys.find("first"), SigningKey)
    assert source.asked == 1


async def test_a_new_key_is_fetched_when_a_token_names_it_but_not_too_often(clock: FakeClock, source: Source) -> None:
    keys = FetchedKeySet(source.fetch, clock)
    await found(keys, "first")
    source.issuer.add("second")

    assert await found(keys, "second") is None, "the set was fetched a moment ago"
    clock.advance(10)
    assert await found(keys, "second") is not None
    for _ in range(20):
        assert await found(keys, "made-up") is None
    assert source.asked == 2


async def test_waiting_requests_share_one_fetch_and_can_be_cancelled(clock: FakeClock, source: Source) -> None:
    source.released.clear()

    keys = FetchedKeySet(source.fetch, clock)
    waiting = [asyncio.create_task(found(keys, "first")) for _ in range(5)]
    async with asyncio.timeout(10):
        while not source.asked:
            await asyncio.to_thread(int)
    waiting[0].cancel()
    await asyncio.to_thread(int)
    source.released.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(isinstance(result, SigningKey) for result in results[1:])
    assert source.asked == 1


async def test_an_old_set_is_fetched_again_without_delaying_requests(clock: FakeClock, source: Source) -> None:
    keys = FetchedKeySet(source.fetch, clock)
    await found(keys, "first")
    source.issuer.add("second")
    source.issuer.forget("first")

    clock.advance(600)
    assert isinstance(keys.find("first"), SigningKey)
    assert await found(keys, "second") is not None
    assert keys.find("first") is None, "a withdrawn key is not valid"


async def test_while_the_issuer_is_unreachable_its_keys_count_for_some_time(
    clock: FakeClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    keys = FetchedKeySet(source.fetch, clock)
    await found(keys, "first")
    source.broken = True

    clock.advance(3599)
    assert await found(keys, "first") is not None
    assert await found(keys, "unknown") is None, "after the fetch that was started has failed"
    clock.advance(11)
    assert await found(keys, "first") is None
    source.broken = False
    clock.advance(10)
    assert await found(keys, "first") is not None

    assert {record.message for record in caplog.records} == {"key_set_not_fetched"}


async def test_an_invalid_set_counts_as_none(clock: FakeClock) -> None:
    async def fetch() -> bytes:
        return b"<html>"

    assert await found(FetchedKeySet(fetch, clock), "first") is None


def test_only_keys_for_signatures_are_taken_from_a_set() -> None:
    (good,) = Issuer("first").key_set()["keys"]
    rows: list[Any] = [
        good,
        {**good, "kid": "for-encryption", "use": "enc"},
        {**good, "kid": "other-algorithm", "alg": "RS256"},
        {"kty": "oct", "kid": "secret", "k": "AAAA"},
        {"kty": "RSA", "kid": "broken", "n": "?", "e": 5},
        {"kty": "EC", "kid": "broken-too", "crv": "P-0"},
        "nonsense",
    ]

    keys = read_key_set(json.dumps({"keys": rows}).encode())
    assert list(keys) == ["first"]
    assert keys["first"].algorithms == {"ES256"}
    bare = {name: value for name, value in good.items() if name not in ("alg", "use", "kid")}
    assert read_key_set(json.dumps({"keys": [bare]}).encode())[""].algorithms == {"ES256", "ES384", "ES512"}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"keys": {}}', b"5"])
def test_a_document_without_a_list_of_keys_is_no_set(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"keys|JSON|Expecting"):
        read_key_set(content)


def test_a_token_that_names_no_key_means_the_only_one(tmp_path: Path) -> None:
    issuer = Issuer("first")
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(issuer.key_set()), encoding="utf-8")
    keys = KeySetFile(path)

    assert keys.find("") is not None
    issuer.add("second")
    path.write_text(json.dumps(issuer.key_set()), encoding="utf-8")
    assert keys.find("") is None
    assert keys.find("second") is not None


def test_a_file_that_breaks_leaves_the_last_keys_valid(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(Issuer("first").key_set()), encoding="utf-8")
    keys = KeySetFile(path)

    path.write_text("{", encoding="utf-8")
    assert keys.find("first") is not None
    path.unlink()
    assert keys.find("first") is not None
    assert [record.message for record in caplog.records] == ["key_set_unreadable"] * 2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"{}", "it has no list 'keys'"),
        (b"\xff", "it is not JSON"),
        (b"-----BEGIN PUBLIC KEY-----", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b'{"kty": "EC", "crv": "P-256"}', "it has no list 'keys'"),
        (b'{"keys": []}', "none of its keys can check a signature"),
        (b'{"keys": ["a", {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "EC"}]}', "none of its keys can check a signature"),
    ],
)
def test_a_gateway_does_not_start_with_a_file_that_is_no_set(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InvalidSettings) as refused:
        KeySetFile(path)
    assert why in str(refused.value)
    assert str(path) in str(refused.value)
    assert "JSON Web Key Set" in refused.value.hint


def test_a_set_that_is_emptied_later_admits_no_token(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(Issuer("first").key_set()), encoding="utf-8")
    keys = KeySetFile(path)

    path.write_text('{"keys": []}', encoding="utf-8")

    assert keys.find("first") is None


async def test_a_set_that_is_moved_missing_or_too_large_is_not_fetched() -> None:
    with stranger_at_home() as stranger:
        stranger.serves("/keys", {"keys": []})
        stranger.routes["/moved"] = lambda _: Said(None, 302, {"Location": f"{stranger.url}/keys"})
        stranger.routes["/huge"] = lambda _: Said(raw=b"x" * (1024 * 1024 + 1))

        assert json.loads(await fetcher(f"{stranger.url}/keys")()) == {"keys": []}
        for path in ("moved", "missing", "huge"):
            with pytest.raises(ExternalAgentFailed):
                await fetcher(f"{stranger.url}/{path}")()
        assert [heard.path for heard in stranger.heard].count("/keys") == 1, "the redirect was not followed"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"SSH-2.0\r\n"])
async def test_an_issuer_that_does_not_answer_counts_as_unreachable(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    with rude_server(said) as url:
        assert await found(FetchedKeySet(fetcher(url), clock), "first") is None
    assert [record.message for record in caplog.records] == ["key_set_not_fetched"]
