"""What a request says about itself decides which dialect reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synapse.core.errors import InvalidRequest, VersionNotSupported
from synapse.dialects.dialect import WireRequest
from synapse.dialects.negotiation import asked_dialect, asked_version, spoken_dialect


def wire(version: str | None = None, query: str = "") -> WireRequest:
    headers = [(b"host", b"localhost")]
    if version is not None:
        headers.append((b"a2a-version", version.encode("latin-1")))
    return WireRequest("GET", "/tasks", query_string=query.encode(), headers=headers)


@pytest.mark.parametrize(
    ("version", "dialect"),
    [("1.0", "a2a_v1"), ("1.0.1", "a2a_v1"), (" 1.0 ", "a2a_v1"), ("0.3", "a2a_v0_3"), ("0.3.0", "a2a_v0_3")],
)
def test_major_and_minor_decide(version: str, dialect: str) -> None:
    assert asked_dialect(wire(version)) == dialect
    assert asked_dialect(wire(query=f"A2A-Version={version.strip()}")) == dialect


@pytest.mark.parametrize("version", ["1.7", "2.0", "99.0", "1", "10", "0.2", "one", "1.0x", "\xff"])
def test_any_other_version_is_refused(version: str) -> None:
    with pytest.raises(VersionNotSupported) as refused:
        asked_dialect(wire(version))

    assert "1.0 and 0.3" in refused.value.hint


def test_without_a_version_nothing_is_demanded() -> None:
    for request in (wire(), wire(""), wire(query="pageSize=3"), wire(query="A2A-Version=")):
        assert asked_dialect(request) == ""


def test_the_header_wins_over_the_query_and_the_query_is_found_in_any_case() -> None:
    assert asked_version(wire("1.0", "A2A-Version=0.3")) == "1.0"
    assert asked_version(wire(query="x=1&a2a-version=0.3")) == "0.3"


def test_a_query_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        asked_version(wire(query="a2a-version=%ff"))


PART = {"text": "t"}


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        ({"message": {"role": "ROLE_USER", "parts": [PART]}}, "a2a_v1"),
        ({"message": {"parts": [PART]}}, "a2a_v1"),
        ({"message": {"role": "user", "parts": [PART]}}, "a2a_v0_3"),
        ({"message": {"role": "agent"}}, "a2a_v0_3"),
        ({"message": {"role": "ROLE_USER", "parts": [PART, {"kind": "text", "text": "t"}]}}, "a2a_v0_3"),
        ({"message": {"role": "ROLE_USER", "content": [PART]}}, "a2a_v0_3"),
        ({"request": {"role": "ROLE_USER", "content": [PART]}}, "a2a_v0_3"),
        ({"message": {"role": "ROLE_USER", "content": "text"}}, "supervisor"),
        ({"message": {"role": "user", "content": "Your message here"}, "metadata": {}}, "supervisor"),
        ({"message": {"content": ""}}, "supervisor"),
        ({"message": {"role": "ROLE_USER"}}, ""),
        ({"message": {"parts": "no list"}}, ""),
        ({"message": "hello"}, ""),
        ({"id": "t-1"}, ""),
        ({}, ""),
        ([], ""),
    ],
)
def test_the_message_tells_which_dialect_it_is_in(body: Any, dialect: str) -> None:
    assert spoken_dialect(json.dumps(body).encode()) == dialect


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_tells_nothing(body: bytes) -> None:
    assert spoken_dialect(body) == ""
