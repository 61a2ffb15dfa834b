"""ProtoReader reads every spelling of ProtoJSON, and its errors name the field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from time import process_time
from typing import Any, Literal

import msgspec
import pytest

from synapse.core.errors import InvalidField, InvalidRequest, MalformedJson
from synapse.dialects.proto_json import ProtoReader, Spellings, instant, parse_instant, to_json


class Inner(msgspec.Struct, rename="camel"):
    some_count: int = 0
    raw: bytes = b""
    data: Any = msgspec.UNSET
    metadata: dict[str, Any] = {}


class Outer(msgspec.Struct, rename="camel"):
    role: str = ""
    inner_one: Inner | None = None
    flag: bool = False


READER = ProtoReader(
    Outer,
    Spellings(
        renamed={"formerName": "role"},
        numbers=frozenset({"someCount"}),
        enums={"role": {1: "ROLE_USER"}},
        binary=frozenset({"raw"}),
    ),
)


def read(text: str) -> Outer:
    return READER.read(text.encode())


def test_an_empty_body_is_an_empty_object() -> None:
    assert READER.read(b"") == Outer()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"innerOne": {"someCount": 3}}', Outer(inner_one=Inner(some_count=3))),
        ('{"inner_one": {"some_count": 3}}', Outer(inner_one=Inner(some_count=3))),
        ('{"inner_one" : {"someCount": "3"}}', Outer(inner_one=Inner(some_count=3))),
        ('{"innerOne": {"someCount": 3.0}}', Outer(inner_one=Inner(some_count=3))),
        ('{"innerOne": {"someCount": "-3"}}', Outer(inner_one=Inner(some_count=-3))),
        ('{"role": 1}', Outer(role="ROLE_USER")),
        ('{"former_name": "x"}', Outer(role="x")),
        ('{"formerName": 1, "flag": null}', Outer(role="ROLE_USER")),
        ('{"innerOne": null}', Outer()),
        ('{"innerOne": {"metadata": null, "data": null}}', Outer(inner_one=Inner(data=None))),
        (
            '{"inner_one": {"metadata": {"a_b": {"c_d": null}}}}',
            Outer(inner_one=Inner(metadata={"a_b": {"c_d": None}})),
        ),
        ('{"innerOne": {"raw": "_-8"}}', Outer(inner_one=Inner(raw=b"\xff\xef"))),
    ],
)
def test_every_spelling_of_protojson_is_read(text: str, meant: Outer) -> None:
    assert read(text) == meant


def test_a_text_that_looks_like_a_field_is_left_alone() -> None:
    assert read('{"role": "he said \\"some_count\\": 3"}').role == 'he said "some_count": 3'


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"innerOne": {"someCount": "three"}}', "innerOne.someCount"),
        ('{"innerOne": {"someCount": "1_000"}}', "innerOne.someCount"),
        ('{"innerOne": {"someCount": 1.5}}', "innerOne.someCount"),
        ('{"inner_one": {"some_count": true}}', "innerOne.someCount"),
        ('{"role": 7}', "role"),
        ('{"role": true}', "role"),
        ('{"flag": "true"}', "flag"),
        ("[]", ""),
    ],
)
def test_a_value_that_no_spelling_allows_is_refused_with_its_field(text: str, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        read(text)

    assert refused.value.field == field


def test_the_text_of_a_query_is_converted_to_the_fields_type() -> None:
    class Query(msgspec.Struct, rename="camel"):
        id: str
        page_size: int = 50
        flag: bool = False

    reader = ProtoReader(Query, Spellings())

    assert reader.read_query({"pageSize": "7", "flag": "true", "other": "x"}, id="t") == Query("t", 7, True)
    assert reader.read_query({"page_size": "7", "flag": ""}, id="t") == Query("t", 7)
    assert reader.read_query({"id": "forged"}, id="t") == Query("t")
    with pytest.raises(InvalidField):
        reader.read_query({"pageSize": "many"}, id="t")


@pytest.mark.parametrize("body", [b"{", b"nonsense", b'{"role": "\xff"}', b'{"role_x": "\xff"}', b'{"role": "a"} x'])
def test_an_error_says_that_a_body_is_not_json(body: bytes) -> None:
    with pytest.raises(MalformedJson, match="not JSON"):
        READER.read(body)


@pytest.mark.parametrize("depth", [65, 100_000])
def test_free_json_goes_only_so_deep(depth: int) -> None:
    with pytest.raises(InvalidRequest, match="nested"):
        read('{"innerOne": {"data": ' + "[" * depth + "]" * depth + "}}")


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert read('{"innerOne": {"data": [' + ",".join(["[]"] * 100) + "]}}").inner_one is not None


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 1, 31, 10, 30, tzinfo=UTC), "2026-01-31T10:30:00.000Z"),
        (datetime(2026, 1, 31, 10, 30, 0, 999999, tzinfo=UTC), "2026-01-31T10:30:00.999Z"),
        (datetime(2026, 1, 31, 12, 30, tzinfo=timezone(timedelta(hours=2))), "2026-01-31T10:30:00.000Z"),
    ],
)
def test_times_are_utc_with_milliseconds(at: datetime, text: str) -> None:
    assert instant(at) == text


def test_a_time_needs_its_zone() -> None:
    assert parse_instant("f", "2026-01-31T12:30:00.5+02:00") == datetime(2026, 1, 31, 10, 30, 0, 500000, tzinfo=UTC)
    for wrong in ("2026-01-31T12:30:00", "soon", "", "0001-01-01T00:00:00+02:00"):
        with pytest.raises(InvalidField):
            parse_instant("f", wrong)


def test_lone_surrogates_do_not_spoil_the_rest() -> None:
    assert to_json({"a\udc00": ["b\ud800", 1, None]}) == b'{"a?":["b?",1,null]}'


def test_a_body_full_of_underscores_is_read_in_one_pass() -> None:
    begun = process_time()

    # A pattern that starts again at each of them takes minutes.
    read('{"role": "' + "a_" * 200_000 + '"}')

    assert process_time() - begun < 2


def test_a_name_that_does_not_exist_is_refused_with_those_that_do() -> None:
    class Named(msgspec.Struct):
        role: Literal["ROLE_USER", "ROLE_AGENT"]

    reader = ProtoReader(Named, Spellings(enums={"role": {1: "ROLE_USER", 2: "ROLE_AGENT"}}))

    with pytest.raises(InvalidField, match="role: not one of the known names: 'user'") as refused:
        reader.read(b'{"role": "user"}')
    assert refused.value.hint == "there are ROLE_USER, ROLE_AGENT"
    with pytest.raises(InvalidField, match="role: is missing"):
        reader.read(b"{}")
