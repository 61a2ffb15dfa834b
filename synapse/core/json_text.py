"""Reads and writes JSON in short-lived processes, with the C part of the standard `json` only.

A `synapse send` lives for ten milliseconds, and `import json` would cost it as much as starting an empty interpreter.
So this module imports `_json` alone, and falls back to `json` on a Python that has no `_json`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_rules: "Any"
try:
    from _json import encode_basestring_ascii as _quote
    from _json import make_scanner as _make_scanner

    # The attributes that the C scanner reads from its context, which in `json` is a JSONDecoder.
    _rules = type("_Rules", (), {"strict": True, "parse_float": float, "parse_int": int, "parse_constant": float})
    _rules.object_hook = _rules.object_pairs_hook = _rules.array_hook = None
except ImportError:
    from json import JSONDecoder
    from json.encoder import encode_basestring_ascii as _quote
    from json.scanner import make_scanner as _make_scanner

    _rules = JSONDecoder()


def decode(text: str) -> "Any":
    """Returns the value of a JSON text.

    Raises:
        ValueError: `text` is not JSON.
    """
    stripped = text.strip(" \t\r\n")
    try:
        value, end = _scan(stripped, 0)
    except (StopIteration, RecursionError, SystemError) as error:
        # SystemError: the scanner tries to raise `json.JSONDecodeError`, but `json` is not loaded.
        raise ValueError("not JSON") from error
    if end != len(stripped):
        raise ValueError("more text after the JSON value")
    return value


def object_in(fields: "dict[str, Any]", key: str) -> "dict[str, Any]":
    """Returns the object at `key`, or an empty one if there is none."""
    value = fields.get(key)
    if isinstance(value, dict):
        return value  # pyright: ignore[reportUnknownVariableType]  # JSON objects have string keys
    return {}


def objects_in(fields: "dict[str, Any]", key: str) -> "list[dict[str, Any]]":
    """Returns the objects of the list at `key`, or an empty list if there is none."""
    value: Any = fields.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]  # as above


def decode_object(data: bytes) -> "dict[str, Any]":
    """Returns the JSON object in `data`.

    Raises:
        ValueError: `data` is not JSON, or not an object.
    """
    value = decode(data.decode("utf-8"))
    if isinstance(value, dict):
        return value  # pyright: ignore[reportUnknownVariableType]  # JSON objects have string keys
    raise ValueError("not a JSON object")


def encode(value: "Any") -> str:
    """Returns JSON for dictionaries with string keys, lists, tuples, strings, numbers, booleans and None.

    The result is ASCII, so no terminal or locale can damage it.
    """
    if isinstance(value, str):
        return _quote(value)
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  # the type inside Any is unknown
        return "{" + ", ".join([f"{_quote(key)}: {encode(item)}" for key, item in fields.items()]) + "}"
    return "[" + ", ".join([encode(item) for item in value]) + "]"


_WORDS = {None: "null", True: "true", False: "false"}
_scan: "Callable[[str, int], tuple[Any, int]]" = _make_scanner(_rules)
