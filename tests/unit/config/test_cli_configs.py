"""The configurations of CLIs are JSON with comments and trailing commas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.config.cli_configs import parse_config, read_configs, table_in


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ('\ufeff{"a": 1}', {"a": 1}),
        ('{"a": 1, // one\n "b": [1, 2, /* two */ ], }', {"a": 1, "b": [1, 2]}),
        ('{"url": "http://x/*y*/", "t": "a,]", "q": "\\"//",}', {"url": "http://x/*y*/", "t": "a,]", "q": '"//'}),
        ('{"a": 1, /* last */ }', {"a": 1}),
    ],
)
def test_comments_and_trailing_commas_are_no_part_of_it(text: str, value: dict[str, object]) -> None:
    assert parse_config(text) == value


@pytest.mark.parametrize("text", ["", "[]", "1", "{", '{"a" 1}', '{"a": {env:X}}'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|JSON object"):
        parse_config(text)


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
def test_plain_json_keeps_every_text(value: dict[str, object]) -> None:
    assert parse_config(json.dumps(value)) == value
    assert parse_config(json.dumps(value, ensure_ascii=False, indent=1)) == value


def test_files_that_are_missing_or_broken_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text('{"mcp": {"a": {}}}', encoding="utf-8")
    (tmp_path / "bad.json").write_bytes(b"\xff{")
    (tmp_path / "deep.json").write_text("[" * 100_000, encoding="utf-8")

    found = read_configs(tmp_path / name for name in ("none.json", "bad.json", "deep.json", "good.json", "."))

    assert found == [{"mcp": {"a": {}}}]
    assert table_in(found[0], "mcp") == {"a": {}}
    assert table_in(found[0], "a") == {}
