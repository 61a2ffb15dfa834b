"""JSON of the store: values survive a round trip with either of the two encoders and either of the two decoders."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.store.codec import from_json, to_json

TEXTS = st.text(st.characters(exclude_categories=()))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda values: st.lists(values) | st.dictionaries(TEXTS, values),
    max_leaves=8,
)


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    text = to_json(value)

    assert from_json(text) == value
    assert json.loads(text) == value, "an earlier version reads it"
    assert from_json(json.dumps(value)) == value, "what an earlier version wrote is read"


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": ["日本語", None]}, math.inf, -math.inf, 2**70, "null", [None]])
def test_json_encodes_what_msgspec_cannot(value: object) -> None:
    assert from_json(to_json({"v": value})) == {"v": value}


def test_not_a_number_stays_none() -> None:
    assert math.isnan(from_json(to_json([math.nan]))[0])


def test_other_letters_are_not_escaped() -> None:
    assert to_json("日本語") == '"日本語"'


@pytest.mark.parametrize("value", [object(), {"a": object()}, {(1, 2): 3}])
def test_values_that_json_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        to_json(value)


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        to_json(deep)


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"a":}'])
def test_damaged_text_raises_value_error(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        from_json(text)
