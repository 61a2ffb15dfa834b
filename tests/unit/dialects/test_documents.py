"""A document that the reader has is not sent again."""

from __future__ import annotations

import pytest

from synapse.dialects.dialect import CachedDocument, WireRequest

DOCUMENT = CachedDocument(b'{"a": 1}', max_age=60, vary="A2A-Version")


def fetch(known: str = "") -> tuple[int, bytes, dict[bytes, bytes]]:
    headers = [(b"if-none-match", known.encode())] if known else []
    answer = DOCUMENT.answer(WireRequest("GET", "/", headers=headers))
    return answer.status, answer.body, dict(answer.headers)


ETAG = fetch()[2][b"etag"].decode()


def test_the_document_says_how_long_it_may_be_kept() -> None:
    status, body, headers = fetch()

    assert (status, body) == (200, b'{"a": 1}')
    assert headers == {b"etag": ETAG.encode(), b"cache-control": b"private, max-age=60", b"vary": b"A2A-Version"}


def test_only_a_document_that_everybody_gets_is_kept_by_caches_on_the_way() -> None:
    shared = CachedDocument(b"{}", max_age=60, vary="A2A-Version", shared=True).answer(WireRequest("GET", "/"))

    assert dict(shared.headers)[b"cache-control"] == b"public, max-age=60"


@pytest.mark.parametrize("known", [ETAG, f"W/{ETAG}", f'"other", {ETAG}', "*"])
def test_whoever_has_it_is_told_that_it_has_not_changed(known: str) -> None:
    status, body, headers = fetch(known)

    assert (status, body) == (304, b"")
    assert headers[b"etag"] == ETAG.encode()


@pytest.mark.parametrize("known", ['"other"', ETAG.strip('"'), "nonsense"])
def test_whoever_has_another_gets_it(known: str) -> None:
    assert fetch(known)[0] == 200


def test_another_document_has_another_tag() -> None:
    other = CachedDocument(b'{"a": 2}', max_age=60, vary="A2A-Version").answer(WireRequest("GET", "/"))

    assert dict(other.headers)[b"etag"] != ETAG.encode()
