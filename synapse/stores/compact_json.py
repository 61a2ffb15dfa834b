"""JSON as the store writes it: nothing between the words, and ASCII, so that every string comes back as it was.

That holds even for one that is not valid Unicode.
"""

from __future__ import annotations

import json.encoder
from collections.abc import Callable
from json import JSONDecoder, JSONEncoder
from typing import Any, Final

quoted: Final = json.encoder.encode_basestring_ascii
"""A string as JSON. Raises TypeError for anything else."""
from_json: Final[Callable[[str], Any]] = JSONDecoder().decode


def _made_once() -> Callable[[object], str]:
    # There is nothing circular in an event, and what is nested too deeply is told.
    encoder = JSONEncoder(separators=(",", ":"), check_circular=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    # `JSONEncoder.encode` makes one of these for every text, which takes as long as writing a small one.
    pieces = make(None, encoder.default, quoted, None, ":", ",", False, False, True)
    return lambda value: "".join(pieces(value, 0))


compact_json: Final = _made_once()
"""Raises ValueError, TypeError or RecursionError for what JSON cannot hold."""
