"""Numbers that stand for texts in an index, where a text is as good as random.

Each new entry of such an index lands on a page of its own, which is written twice. Of numbers a page holds three times
as many, so fewer pages are written, and those that are needed again are still in memory. Ids of ours hold the time, and
their numbers are in its order: then new entries share a page. Different texts may have the same number: whoever finds a
row by it compares the text, too.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

_BYTES: Final = 8
_LEAST: Final = -(2 ** (8 * _BYTES - 1))
_BEGINS_WITH_TIME: Final = "7"
_WITH_TIME: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([78])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""A UUID of version 7, which begins with the time, or of version 8, which ends with it where we made it."""


def text_key(text: str) -> int:
    """A number for a text that somebody else chose; finding many texts with the same number takes too long to try.

    Raises UnicodeEncodeError.
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=_BYTES).digest(), signed=True)


def id_key(text: str) -> int:
    """A number for the id of a task or a context; see `runtime.ids`.

    Raises UnicodeEncodeError.
    """
    ours = _WITH_TIME.fullmatch(text)
    if ours is None:
        return text_key(text)
    if ours[1] == _BEGINS_WITH_TIME:
        return _LEAST + int(text[:8] + text[9:13] + text[14:18], 16)
    return _LEAST + int(text[24:] + text[19:23], 16)
