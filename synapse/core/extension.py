"""A2A extensions that an agent declares: how its cards describe them, and which ones a request must name.

extensions = [{ uri = "https://example.com/ext/plan/v1", description = "…", required = true, params = { depth = 2 } }]

Synapse reads, publishes and requires extensions. What an extension means is up to the agent.
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
from synapse.core.tables import shortened

# Headers separate URIs by commas, so a URI with a comma could not be named there.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21-\x2b\x2d-\x7e]+")
_LONGEST_URI: Final = 500
_DEEPEST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One extension, with the fields of an A2A card."""

    uri: str
    description: str = ""
    required: bool = False
    """Requests that do not name the extension are refused."""
    params: Json = field(default_factory=empty_object, hash=False)

    def as_dict(self) -> dict[str, Any]:
        """Returns the extension as cards have it, without empty fields."""
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
    """Raises ExtensionRequired unless `named` has every required extension."""
    missing = [one.uri for one in extensions if one.required and one.uri not in named]
    if missing:
        raise ExtensionRequired(missing)


def joined(told: Extensions, own: Extensions) -> Extensions:
    """Returns the extensions of both; where both declare one, `told` (what others say about the agent) wins."""
    uris = {one.uri for one in told}
    return (*told, *(one for one in own if one.uri not in uris)) if told else own


def read_extensions(given: object, place: str, error: type[InvalidRequest]) -> Extensions:
    """Returns the extensions in a file's list of tables. Raises `error`, which names `place`."""
    if not isinstance(given, list):
        raise error(f"{place}: 'extensions' must be a list of tables, not {shortened(given)}", hint=_EXAMPLE)
    tables = cast("list[object]", given)
    read = tuple(_read(table, f"{place}: extension {number}", error) for number, table in enumerate(tables, 1))
    uris = [one.uri for one in read]
    if twice := next((uri for uri in uris if uris.count(uri) > 1), ""):
        raise error(f"{place}: the extension '{twice}' is declared twice")
    return read


def to_text(extensions: Extensions) -> str:
    """Returns the extensions as text for an agent's registry entry; empty for none."""
    return json_text.encode([one.as_dict() for one in extensions]) if extensions else ""


def from_text(text: str) -> Extensions:
    """Returns the extensions that `to_text` wrote; none if the text is empty or invalid."""
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
        raise error(f"{place} must be a table, not {shortened(table)}", hint=_EXAMPLE)
    given = cast("dict[str, Any]", table)
    for key, value in given.items():
        if key not in _KINDS:
            meant = nearest(key, list(_KINDS))
            hint = f"did you mean '{meant}'?" if meant else "known here: " + ", ".join(_KINDS)
            raise error(f"{place}: there is no key '{key}'", hint=hint)
        kind, title = _KINDS[key]
        if not isinstance(value, kind):
            raise error(f"{place}: '{key}' must be {title}, not {shortened(value)}")
    uri: str = given.get("uri", "")
    if len(uri) > _LONGEST_URI or not _URI.fullmatch(uri):
        found = f"'{uri[:80]}' is none" if uri else "it is missing"
        raise error(f"{place}: 'uri' must be a URI, and {found}", hint="ASCII, with a scheme, no spaces and no commas")
    if not _is_json(given.get("params", {})):
        raise error(f"{place}: 'params' must contain only JSON values", hint="no dates, no inf, no nan")
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
