"""The files of the dashboard: exact paths, headers that lock the page in, and no more bytes than needed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from synapse.core.errors import RouteNotFound
from synapse.dialects.dialect import DocumentRoute, WireAnswer, WireRequest
from synapse.gateway.pages import CONTENT_SECURITY, Pages
from synapse.server.routing import RouteTable

SCRIPT = "export const answer = 42;\n" * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dashboard"
    (folder / "views").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>", encoding="utf-8")
    (folder / "app.js").write_text(SCRIPT, encoding="utf-8")
    (folder / "views" / "flow.js").write_text("// flow", encoding="utf-8")
    (folder / "secret.toml").write_text("not served", encoding="utf-8")
    (folder / ".hidden.js").write_text("not served", encoding="utf-8")
    (folder / "__pycache__").mkdir()
    (tmp_path / "outside.js").write_text("outside", encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "inner.js").write_text("outside", encoding="utf-8")
    (folder / "link.js").symlink_to(tmp_path / "outside.js")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    return folder


def get(folder: Path, path: bytes, **headers: str) -> WireAnswer:
    """Asks as a server does: with the raw path, which is decoded after routing."""
    (endpoint,) = RouteTable([Pages(folder).dialect()]).match("GET", path).endpoints
    assert isinstance(endpoint.route, DocumentRoute)
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return endpoint.route.answer(WireRequest("GET", path.decode(), headers=given))


def test_the_page_is_at_the_root_and_its_files_below_assets(folder: Path) -> None:
    assert Pages(folder).paths == {"/", "/assets/app.js", "/assets/views/flow.js"}
    assert get(folder, b"/").body == b"<!doctype html>"
    assert get(folder, b"/").media_type == b"text/html; charset=utf-8"
    assert get(folder, b"/assets/views/flow.js").media_type == b"text/javascript; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        b"/assets/",
        b"/assets/secret.toml",
        b"/assets/.hidden.js",
        b"/assets/link.js",
        b"/assets/linked/inner.js",
        b"/assets/../index.html",
        b"/assets/views/../app.js",
        b"/assets/%2e%2e/pages.py",
        b"/assets/views%2fflow.js",
        b"/assets//app.js",
        b"//assets/app.js",
        b"/assets/%61pp.js",
        b"/assets/app.js%00",
        b"/assets/app.js/..",
        b"/assets/APP.JS",
        b"/assets\\app.js",
        b"/index.html",
    ],
)
def test_no_other_path_is_served(folder: Path, path: bytes) -> None:
    with pytest.raises(RouteNotFound):
        get(folder, path)


def test_every_file_is_locked_in(folder: Path) -> None:
    for path in (b"/", b"/assets/app.js"):
        headers = dict(get(folder, path).headers)

        assert headers[b"content-security-policy"].decode() == CONTENT_SECURITY
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"referrer-policy"] == b"no-referrer"
        assert headers[b"cross-origin-opener-policy"] == b"same-origin"
        assert headers[b"cross-origin-resource-policy"] == b"same-origin"
    assert "default-src 'none'" in CONTENT_SECURITY
    assert "script-src 'self';" in CONTENT_SECURITY
    assert "frame-ancestors 'none'" in CONTENT_SECURITY


def test_a_file_that_the_reader_has_is_not_sent_again(folder: Path) -> None:
    first = get(folder, b"/assets/app.js")
    etag = dict(first.headers)[b"etag"].decode()

    again = get(folder, b"/assets/app.js", if_none_match=f'"other", {etag}')

    assert (again.status, again.body) == (304, b"")
    assert dict(again.headers)[b"etag"].decode() == etag
    assert dict(again.headers)[b"cache-control"] == b"no-cache"
    assert get(folder, b"/assets/app.js", if_none_match='"other"').status == 200
    assert get(folder, b"/assets/app.js", if_none_match="*").status == 304


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("gzip;q=0.001", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("br", False),
        ("", False),
    ],
)
def test_text_is_compressed_for_readers_that_accept_it(folder: Path, accepted: str, is_compressed: bool) -> None:
    answer = get(folder, b"/assets/app.js", accept_encoding=accepted)

    assert (dict(answer.headers).get(b"content-encoding") == b"gzip") is is_compressed
    assert (gzip.decompress(answer.body) if is_compressed else answer.body) == SCRIPT.encode()
    assert dict(answer.headers)[b"vary"] == b"accept-encoding"


def test_a_file_that_would_grow_is_sent_as_it_is(folder: Path) -> None:
    answer = get(folder, b"/assets/views/flow.js", accept_encoding="gzip")

    assert answer.body == b"// flow"
    assert b"content-encoding" not in dict(answer.headers)
