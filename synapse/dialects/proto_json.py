"""Reads the JSON of A2A, strict about meaning and lenient about spelling as ProtoJSON requires, and writes all JSON.

ProtoJSON has several spellings for one value: `messageId` or `message_id`, `3` or `"3"`, an enum's name or its number,
either alphabet of base64 with or without padding, null for an absent field. Nearly every body uses the first of each
and is read in one pass; any other body is respelt and read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from synapse.core.errors import InvalidField, InvalidRequest, MalformedJson

NESTING_LIMIT: Final = 64
"""The depth limit of free JSON (metadata, data parts): the code that stores or prints it later recurses too."""

# It starts with a literal, which is found fast, and never backtracks: bodies are large.
_SNAKE_KEY: Final = re.compile(rb'_[a-z]*"\s*:')
_URL_SAFE: Final = str.maketrans("-_", "+/")
_ENCODER: Final = msgspec.json.Encoder()

_NO_NAME: Final = "not one of the known names:"
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_PLAINLY: Final = (
    (re.compile(r"Expected `\w+` of length >= 1"), "must not be empty"),
    (re.compile(r"(Expected|got) `([^`]+)`"), r"\1 \2"),
    (re.compile(r"Invalid enum value"), _NO_NAME),
)

Shape = TypeVar("Shape", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spellings:
    """The fields that have more than one spelling, by their names in camelCase."""

    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields that the shape has under another name."""
    numbers: frozenset[str] = frozenset()
    enums: Mapping[str, Mapping[int, str]] = field(default_factory=dict[str, Mapping[int, str]])
    binary: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset({"metadata", "data"})
    """Fields that hold free JSON, which is never respelt; null is a value there."""


class ProtoReader(Generic[Shape]):
    """Reads JSON into one shape."""

    def __init__(self, shape: type[Shape], spellings: Spellings) -> None:
        self._shape = shape
        self._spellings = spellings
        self._decoder = msgspec.json.Decoder(shape)

    def read(self, body: bytes | msgspec.Raw) -> Shape:
        """Returns the shape in `body`; an empty body is an empty object.

        Raises:
            MalformedJson: the body is not JSON.
            InvalidField: the body does not have the shape; the error names the field.
            InvalidRequest: the body is nested too deep.
        """
        data = bytes(body) or b"{}"
        try:
            if _SNAKE_KEY.search(data) is None:
                try:
                    return check_depth(data, self._decoder.decode(data))
                except msgspec.ValidationError:
                    pass  # the second pass below accepts other spellings
            return check_depth(data, self.convert(msgspec.json.decode(data)))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(error) from error
        except RecursionError as error:
            raise too_deep() from error

    def convert(self, value: Any) -> Shape:
        """Returns the shape in JSON that is decoded already.

        Raises InvalidField.
        """
        try:
            return msgspec.convert(_respelt(value, self._spellings), self._shape)
        except msgspec.ValidationError as error:
            wrong = violation(error)
            # Each version of A2A has its own names.
            names = self._spellings.enums.get(wrong.field.rpartition(".")[2], {}).values()
            if names and wrong.why.startswith(_NO_NAME):
                wrong = InvalidField(wrong.field, wrong.why, hint=f"there are {', '.join(names)}")
            raise wrong from error

    def read_query(self, query: Mapping[str, str], **path: str) -> Shape:
        """Returns the shape in the fields of a query, which are all text, and of the path.

        Raises InvalidField.
        """
        # 1.0 §11.5: query parameters have the names of the request's fields. An empty one counts as absent.
        given = {_json_name(key, self._spellings): value for key, value in query.items() if value}
        try:
            return msgspec.convert({**given, **path}, self._shape, strict=False)
        except msgspec.ValidationError as error:
            raise violation(error) from error


def to_json(value: object) -> bytes:
    """Returns `value` as JSON on one line."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        # A file name that is not UTF-8 has lone surrogates in Python. It must not make a whole answer unreadable.
        return _ENCODER.encode(_without_surrogates(value))


# A task names one moment several times, and is asked for again and again: the cache halves the price of its JSON.
@lru_cache(maxsize=1024)
def instant(at: datetime) -> str:
    """Returns a time as RFC 3339 and ProtoJSON spell it: UTC, milliseconds, `Z`."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    text = at.isoformat()  # half the price of isoformat(timespec=…); a whole second has no fraction
    return f"{text[:23]}Z" if at.microsecond else f"{text[:19]}.000Z"


def parse_instant(name: str, text: str) -> datetime:
    """Returns the time in the field `name`.

    Raises InvalidField.
    """
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # not a time, or one before the year 1 in UTC
    raise InvalidField(name, "must be a time with its zone", hint="2026-01-31T10:30:00.000Z")


def violation(error: msgspec.ValidationError) -> InvalidField:
    """Returns an error that says in plain words which field is wrong, and why."""
    what, _, place = str(error).partition(" - at `")
    name = place.rstrip("`").removeprefix("$").lstrip(".")
    for pattern, plain in _PLAINLY:
        what = pattern.sub(plain, what)
    missing = _MISSING.fullmatch(what)
    if missing:
        return InvalidField(f"{name}.{missing[1]}".lstrip("."), "is missing")
    return InvalidField(name, what[:1].lower() + what[1:])


def malformed(error: Exception) -> MalformedJson:
    """Returns the error for a body that is not JSON."""
    why = str(error).removeprefix("JSON is malformed: ")
    return MalformedJson(f"the body is not JSON: {why[:1].lower()}{why[1:]}")


def check_depth(data: bytes, shape: Shape) -> Shape:
    """Returns `shape`, which was decoded from `data`.

    Raises InvalidRequest if it is nested deeper than NESTING_LIMIT.
    """
    # Counting brackets is far cheaper than walking, and nearly every body has fewer than the limit.
    if data.count(b"{") + data.count(b"[") > NESTING_LIMIT:
        level: list[Any] = [msgspec.to_builtins(shape, builtin_types=(bytes,))]
        for _ in range(NESTING_LIMIT):
            level = [inner for outer in level for inner in _inside(outer)]
            if not level:
                return shape
        raise too_deep()
    return shape


def too_deep() -> InvalidRequest:
    """Returns the error for a body that is nested too deep."""
    return InvalidRequest(
        f"the body is nested deeper than {NESTING_LIMIT} levels", hint="send deep structures as a file part"
    )


def _respelt(value: Any, spellings: Spellings) -> Any:
    """Returns the JSON in the spelling of the shapes."""
    if isinstance(value, list):
        return [_respelt(item, spellings) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    respelt: dict[str, Any] = {}
    for key, inner in cast("dict[str, Any]", value).items():
        name = _json_name(key, spellings)
        if name in spellings.free:
            # A data part may be null; metadata may not, and null then means none.
            if inner is not None or name == "data":
                respelt[name] = inner
        elif inner is not None:
            respelt[name] = _respelt_field(name, inner, spellings)
    return respelt


def _respelt_field(name: str, value: Any, spellings: Spellings) -> Any:
    if name in spellings.numbers:
        return _whole_number(value)
    if name in spellings.enums and isinstance(value, int) and not isinstance(value, bool):
        return spellings.enums[name].get(value, value)
    if name in spellings.binary and isinstance(value, str):
        plain = value.rstrip("=").translate(_URL_SAFE)
        return plain + "=" * (-len(plain) % 4)
    return _respelt(value, spellings)


def _whole_number(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    # int() accepts far more than digits (underscores, other scripts), and refuses very long numbers.
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,10}", value):
        return int(value)
    return value


def _json_name(key: str, spellings: Spellings) -> str:
    if "_" in key:
        first, *rest = key.split("_")
        key = first + "".join(word[:1].upper() + word[1:] for word in rest)
    return spellings.renamed.get(key, key)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else []


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value)
        return {_without_surrogates(key): _without_surrogates(inner) for key, inner in pairs.items()}
    if isinstance(value, list):
        return [_without_surrogates(inner) for inner in cast("list[object]", value)]
    return value
