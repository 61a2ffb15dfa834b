"""Extensions of A2A that an agent declares: what its cards say of them, and what a request must name.

extensions = [{ uri = "https://example.com/ext/plan/v1", description = "…", required = true, params = { depth = 2 } }]

Only the person who runs an agent knows what an extension means; here it is told, asked for and checked, never done.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from synapse.core import json_text
from synapse.core.address import nearest
from synapse.core.errors import ExtensionRequired, InvalidRequest
from synapse.core.message import Json, empty_object

# In a header URIs stand with commas between them: one that has a comma itself could not be named.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21-\x2b\x2d-\x7e]+")
_LONGEST_URI: Final = 500
_DEEPEST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One extension, in the words of A2A's cards."""

    uri: str
    description: str = ""
    required: bool = False
    """Whether a request that does not name it is refused."""
    params: Json = field(default_factory=empty_object, hash=False)

    def as_dict(self) -> dict[str, Any]:
        """What cards say of it; what is not said is left out."""
        told: dict[str, Any] = {"uri": self.uri}
        if self.description:
            told["description"] = self.description
        if self.required:
            told["required"] = True
        if self.params:
            told["params"] = self.params
        return told


Extensions = tuple[Extension, ...]


def check_named(extensions: Extensions, named: Collection[str]) -> None:
    """Raises ExtensionRequired unless every required one is named."""
    missing = [one.uri for one in extensions if one.required and one.uri not in named]
    if missing:
        raise ExtensionRequired(missing)


def joined(told: Extensions, own: Extensions) -> Extensions:
    """What is told about an agent and what it declares itself; of one that both have, what is told counts."""
    uris = {one.uri for one in told}
    return (*told, *(one for one in own if one.uri not in uris)) if told else own


def read_extensions(given: object, place: str, error: type[InvalidRequest]) -> Extensions:
    """The extensions in a file's list of tables; `place` is where a person finds it. Raises `error`."""
    if not isinstance(given, list):
        raise error(f"{place}: 'extensions' must be a list of tables, not {_shown(given)}", hint=_EXAMPLE)
    tables = cast("list[object]", given)
    read = tuple(_read(table, f"{place}: extension {number}", error) for number, table in enumerate(tables, 1))
    uris = [one.uri for one in read]
    if twice := next((uri for uri in uris if uris.count(uri) > 1), ""):
        raise error(f"{place}: the extension '{twice}' is declared twice")
    return read


def to_text(extensions: Extensions) -> str:
    """The extensions as an agent's entry in the registry has them; empty for none."""
    return json_text.encode([one.as_dict() for one in extensions]) if extensions else ""


def from_text(text: str) -> Extensions:
    """What `to_text` made; an entry that says nothing, or nothing that can be read, declares nothing."""
    if not text:
        return ()
    try:
        return read_extensions(json_text.decode(text), "entry", InvalidRequest)
    except (ValueError, InvalidRequest):
        return ()


_EXAMPLE: Final = 'extensions = [{ uri = "https://example.com/ext/plan/v1", required = true }]'
_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "uri": (str, "a text"),
    "description": (str, "a text"),
    "required": (bool, "true or false"),
    "params": (dict, "a table"),
}


def _read(table: object, place: str, error: type[InvalidRequest]) -> Extension:
    if not isinstance(table, dict):
        raise error(f"{place} must be a table, not {_shown(table)}", hint=_EXAMPLE)
    given = cast("dict[str, Any]", table)
    for key, value in given.items():
        if key not in _KINDS:
            meant = nearest(key, list(_KINDS))
            hint = f"did you mean '{meant}'?" if meant else "known here: " + ", ".join(_KINDS)
            raise error(f"{place}: there is no key '{key}'", hint=hint)
        kind, title = _KINDS[key]
        if not isinstance(value, kind):
            raise error(f"{place}: '{key}' must be {title}, not {_shown(value)}")
    uri: str = given.get("uri", "")
    if len(uri) > _LONGEST_URI or not _URI.fullmatch(uri):
        found = f"'{uri[:80]}' is none" if uri else "it is missing"
        raise error(f"{place}: 'uri' must be a URI, and {found}", hint="ASCII, with a scheme, no spaces and no commas")
    if not _is_json(given.get("params", {})):
        raise error(f"{place}: 'params' must hold what JSON has words for", hint="no dates, no inf, no nan")
    return Extension(**given)


def _is_json(value: object, depth: int = 0) -> bool:
    if depth > _DEEPEST:
        return False
    match value:
        case str() | int():
            return True
        case float():
            return math.isfinite(value)
        case list():
            return all(_is_json(inner, depth + 1) for inner in cast("list[object]", value))
        case dict():
            return all(_is_json(inner, depth + 1) for inner in cast("dict[str, object]", value).values())
        case _:
            return False


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
