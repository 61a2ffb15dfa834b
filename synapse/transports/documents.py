"""Documents that change rarely: readers may keep them for a while, and one that has not changed is not sent again."""

from __future__ import annotations

import hashlib

from synapse.dialects.dialect import WireAnswer, WireRequest


class KeptDocument:
    """One JSON document. `vary` names the headers that choose among several documents of the same path.

    Only one that is `shared`, because everybody gets it without credentials, may be kept by caches between us and its
    reader; any other is kept by the reader alone. With a `max_age` of 0 the reader asks each time if it has changed.
    """

    def __init__(self, body: bytes, *, max_age: int, vary: str, shared: bool = False) -> None:
        self._etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = (
            (b"etag", self._etag.encode("ascii")),
            (b"cache-control", b"%s, %s" % (b"public" if shared else b"private", _keeping(max_age))),
            (b"vary", vary.encode("ascii")),
        )
        self._whole = WireAnswer(200, body, headers)
        self._unchanged = WireAnswer(304, b"", headers)

    def answer(self, wire: WireRequest) -> WireAnswer:
        """The document, or that it is the one which the reader has."""
        known = [tag.strip().removeprefix("W/") for tag in wire.header(b"if-none-match").split(",")]
        return self._unchanged if self._etag in known or "*" in known else self._whole


def _keeping(max_age: int) -> bytes:
    return b"max-age=%d" % max_age if max_age else b"no-cache"
