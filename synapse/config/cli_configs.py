"""Reads a person's own configuration of a CLI, so that a launch adds to it and replaces nothing of it.

CLIs take JSON with comments and trailing commas. Nothing here writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

_STRING_OR_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
_MAX_BYTES: Final = 4 * 1024 * 1024


def parse_config(text: str) -> Mapping[str, Any]:
    """Returns the object in a text of JSON with comments and trailing commas. Raises ValueError."""
    plain = _STRING_OR_COMMENT.sub(lambda found: found[1] or " ", text.removeprefix("\ufeff"))
    value: object = json.loads(_STRING_OR_COMMA.sub(lambda found: found[1] or "", plain))
    if not isinstance(value, Mapping):
        raise ValueError("it is no JSON object")  # noqa: TRY004  # callers know one error for a bad configuration
    return cast("Mapping[str, Any]", value)


def read_configs(files: Iterable[Path]) -> list[Mapping[str, Any]]:
    """Returns the objects in those files that there are; leaves out what the CLI itself cannot read either."""
    found: list[Mapping[str, Any]] = []
    for file in files:
        try:
            with file.open("rb") as opened:
                found.append(parse_config(opened.read(_MAX_BYTES).decode()))
        except (OSError, ValueError, RecursionError):
            continue
    return found


def table_in(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Returns the object under a key, or an empty one."""
    value = config.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
