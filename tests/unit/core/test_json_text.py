"""`json_text` reads and writes what the standard `json` does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.core.json_text import decode, decode_object, encode, object_in, objects_in

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values)
def test_encoded_values_are_read_by_json_and_by_decode(value: Any) -> None:
    text = encode(value)

    assert text.isascii()
    assert json.loads(text) == value
    assert decode(text) == value


@given(values)
def test_text_of_the_json_module_is_read(value: Any) -> None:
    assert decode(json.dumps(value, ensure_ascii=False, indent=1)) == value


@pytest.mark.parametrize("text", ["", " ", "{", "nul", "[1]x", "[", '"', '{"a":}', "[" * 100_000, '"\n"', "{'a': 1}"])
def test_invalid_json_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)


@pytest.mark.parametrize("data", [b"[]", b"1", b"\xff", b""])
def test_json_that_is_not_an_object_raises_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_object(data)


def test_a_missing_or_wrong_object_is_an_empty_one() -> None:
    fields = {"a": {"b": 1}, "c": [1, {"d": 2}], "e": "text"}

    assert object_in(fields, "a") == {"b": 1}
    assert [object_in(fields, key) for key in ("c", "e", "x")] == [{}, {}, {}]
    assert objects_in(fields, "c") == [{"d": 2}]
    assert [objects_in(fields, key) for key in ("a", "e", "x")] == [[], [], []]
