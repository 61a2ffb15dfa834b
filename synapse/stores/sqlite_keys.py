"""Numbers that stand for texts in an index, where a text is as good as random.

Each new entry of such an index lands on a page of its own, which is written twice. Of numbers a page holds three times
as many, so fewer pages are written, and those that are needed again are still in memory. Different texts may have the
same number: whoever finds a row by it compares the text, too.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

_BYTES: Final = 8
_LEAST: Final = -(2 ** (8 * _BYTES - 1))
_BEGINS_WITH_TIME: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def id_key(text: str) -> int:
    """The first letters of an id, in the same order, so that an id is found by its beginning.

    Raises UnicodeEncodeError.
    """
    return _LEAST + int.from_bytes(text.encode()[:_BYTES].ljust(_BYTES, b"\x00"))


def last_id_key(prefix: str) -> int:
    """The greatest key of an id with that beginning."""
    return _LEAST + int.from_bytes(prefix.encode()[:_BYTES].ljust(_BYTES, b"\xff"))


def text_key(text: str) -> int:
    """A number for a text that somebody else chose; finding many texts with the same number takes too long to try.

    Raises UnicodeEncodeError.
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=_BYTES).digest(), signed=True)


def context_key(text: str) -> int:
    """A number for a context. One that begins with the time, as ours do (UUIDs of version 7), has the numbers of its
    neighbours beside it: new entries of the index then share a page.

    Raises UnicodeEncodeError.
    """
    if _BEGINS_WITH_TIME.fullmatch(text):
        return _LEAST + int(text[:8] + text[9:13] + text[14:18], 16)
    return text_key(text)
