"""The files of the dashboard, as any browser may read them: they hold no secrets, and everything else needs a session.

    GET /                    index.html
    GET /assets/{path}       the other files of the package folder `synapse/dashboard`

The table of paths is made at the start, and a request has to name one of them exactly: no part of a request becomes a
path of the file system. Links in the folder are not followed. A file is read, and compressed, with its first request.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import synapse
from synapse.dialects.dialect import Dialect, DocumentRoute, WireAnswer, WireRequest
from synapse.dialects.synapse.encode import encode_error

PAGES: Final = "pages"
"""The name of the dialect of these files, for metrics."""
FOLDER: Final = Path(synapse.__file__).parent / "dashboard"
INDEX: Final = "index.html"
ASSETS: Final = "/assets/"
MEDIA_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".png": b"image/png",
    ".woff2": b"font/woff2",
}
"""The kinds of files that are served; others in the folder are not."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_COMPRESSED_ALREADY: Final = (".png", ".woff2")
CONTENT_SECURITY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_SECURITY: Final = (
    (b"content-security-policy", CONTENT_SECURITY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Pages:
    """The files below one folder, by the path that serves them."""

    def __init__(self, folder: Path = FOLDER) -> None:
        named = {file.relative_to(folder).as_posix(): file for file in _files(folder)}
        self._files = {"/" if name == INDEX else ASSETS + name: _File(file) for name, file in named.items()}

    @property
    def paths(self) -> frozenset[str]:
        """The paths that are served, for everybody."""
        return frozenset(self._files)

    def dialect(self) -> Dialect:
        """Returns the routes of all files."""
        routes = tuple(
            DocumentRoute(method="GET", path=path, answer=partial(_answer, file)) for path, file in self._files.items()
        )
        return Dialect(name=PAGES, routes=routes, encode_error=encode_error)


def _files(folder: Path) -> list[Path]:
    """Returns the files below a folder that are served, without links."""
    # os.walk enters no links to folders.
    found = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names if _NAME.fullmatch(name))
    return sorted(file for file in found if file.suffix in MEDIA_TYPES and not file.is_symlink())


class _File:
    """One file, read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.media_type = MEDIA_TYPES[path.suffix]

    @cached_property
    def content(self) -> bytes:
        return self._path.read_bytes()

    @cached_property
    def compressed(self) -> bytes:
        """The content by gzip; the content itself where that is no shorter."""
        if self._path.suffix in _COMPRESSED_ALREADY:
            return self.content
        # Without a time, so that the same file always gives the same bytes.
        return min(gzip.compress(self.content, mtime=0), self.content, key=len)

    @cached_property
    def etag(self) -> bytes:
        # Weak: the same for the compressed form.
        return b'W/"%s"' % hashlib.sha256(self.content).hexdigest()[:32].encode("ascii")


def _answer(file: _File, wire: WireRequest) -> WireAnswer:
    """Returns the file, or 304 if the reader has it already."""
    headers = (
        *_SECURITY,
        (b"etag", file.etag),
        # A new version of the gateway serves new files under the same paths.
        (b"cache-control", b"no-cache"),
        (b"vary", b"accept-encoding"),
    )
    known = {tag.strip().encode("latin-1") for tag in wire.header(b"if-none-match").split(",")}
    if file.etag in known or b"*" in known:
        return WireAnswer(304, b"", headers)
    if _accepts_gzip(wire.header(b"accept-encoding")) and file.compressed is not file.content:
        return WireAnswer(200, file.compressed, (*headers, (b"content-encoding", b"gzip")), file.media_type)
    return WireAnswer(200, file.content, headers, file.media_type)


def _accepts_gzip(accepted: str) -> bool:
    for one in accepted.lower().split(","):
        coding, _, weight = one.replace(" ", "").partition(";")
        if coding == "gzip":
            # `q=0` refuses it, with up to three decimals (RFC 9110 §12.4.2).
            return not weight.startswith("q=0") or bool(weight.removeprefix("q=0").strip(".0"))
    return False
