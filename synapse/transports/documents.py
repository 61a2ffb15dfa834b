"""Documents that change rarely: readers may keep them for a while, and one that has not changed is not sent again."""

from __future__ import annotations

import hashlib

from synapse.dialects.dialect import WireAnswer, WireRequest


class KeptDocument:
    """One JSON document. `vary` names the header that chooses among several documents of the same path."""

    def __init__(self, body: bytes, *, max_age: int, vary: str) -> None:
        self._etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = (
            (b"etag", self._etag.encode("ascii")),
            (b"cache-control", b"public, max-age=%d" % max_age),
            (b"vary", vary.encode("ascii")),
        )
        self._whole = WireAnswer(200, body, headers)
        self._unchanged = WireAnswer(304, b"", headers)

    def answer(self, wire: WireRequest) -> WireAnswer:
        """The document, or that it is the one which the reader has."""
        known = [tag.strip().removeprefix("W/") for tag in wire.header(b"if-none-match").split(",")]
        return self._unchanged if self._etag in known or "*" in known else self._whole
