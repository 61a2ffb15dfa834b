"""A wire request gives its query and headers when it is asked for them."""

from __future__ import annotations

import pytest

from synapse.core.errors import InvalidRequest
from synapse.dialects.dialect import WireRequest


def test_a_query_is_decoded_and_the_last_of_equal_fields_counts() -> None:
    request = WireRequest("GET", "/", query_string=b"a=1&b=%E3%81%82+x&a=2&c=")

    assert request.query() == {"a": "2", "b": "あ x", "c": ""}


def test_no_query_is_no_fields() -> None:
    assert WireRequest("GET", "/").query() == {}


@pytest.mark.parametrize("query", [b"a=%ff", b"\xff", b"&".join([b"a=1"] * 101)])
def test_a_query_that_cannot_be_read_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidRequest, match="query"):
        WireRequest("GET", "/", query_string=query).query()


def test_a_header_is_found_by_its_name_in_lower_case() -> None:
    request = WireRequest("GET", "/", headers=[(b"accept", b"*/*"), (b"x", b"\xe9")])

    assert request.header(b"x") == "é"
    assert request.header(b"missing") == ""
