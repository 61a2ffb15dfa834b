"""What a request says about itself decides which dialect reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from synapse.core.errors import InvalidRequest
from synapse.core.requests import GetStatus
from synapse.core.wire_errors import ExtensionRequired, VersionNotSupported
from synapse.dialects.dialect import Call, CallRoute, Dialect, DocumentRoute, RpcTable, WireAnswer, WireRequest
from synapse.dialects.negotiation import asked_dialect, asked_version, requiring, spoken_dialect


def wire(version: str | None = None, query: str = "", *more: tuple[bytes, bytes]) -> WireRequest:
    headers = [(b"host", b"localhost"), *more]
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


def a_dialect() -> Dialect:
    def encode(_result: object) -> bytes:
        return b"{}"

    def ask(_wire: WireRequest) -> Call:
        return Call(GetStatus(), encode)

    def document(_wire: WireRequest) -> WireAnswer:
        return WireAnswer(200, b"{}")

    routes = (
        CallRoute(method="GET", path="/x", ask=ask),
        DocumentRoute(method="GET", path="/card", answer=document),
    )
    rpc = RpcTable(
        methods={"X": lambda _, wire: ask(wire)}, encode_fault=lambda _: b"{}", faults_as_events=frozenset("X")
    )
    return Dialect(name="x", routes=routes, encode_error=lambda _: WireAnswer(400, b"{}"), rpc=rpc)


def ask_rest(dialect: Dialect, request: WireRequest) -> object:
    route = dialect.routes[0]
    assert isinstance(route, CallRoute)
    return route.ask(request)


def ask_rpc(dialect: Dialect, request: WireRequest) -> object:
    assert dialect.rpc is not None
    return dialect.rpc.methods["X"](b"", request)


def test_a_dialect_that_requires_nothing_is_left_as_it_is() -> None:
    dialect = a_dialect()

    assert requiring(dialect, ()) is dialect


@pytest.mark.parametrize("ask", [ask_rest, ask_rpc])
def test_a_required_extension_must_be_named(ask: Any) -> None:
    demanding = requiring(a_dialect(), ["urn:a", "urn:b"])

    with pytest.raises(ExtensionRequired, match="urn:b"):
        ask(demanding, wire(None, "", (b"a2a-extensions", b"urn:a")))
    assert ask(demanding, wire(None, "", (b"a2a-extensions", b"urn:c, urn:a"), (b"a2a-extensions", b"urn:b")))
    assert ask(demanding, wire(None, "", (b"x-a2a-extensions", b"urn:a,urn:b")))


def test_documents_require_nothing_and_the_rest_of_the_dialect_stays() -> None:
    dialect = a_dialect()
    demanding = requiring(dialect, ["urn:a"])

    assert demanding.routes[1] == dialect.routes[1]
    assert demanding.rpc is not None
    assert demanding.rpc.faults_as_events == frozenset("X")


def test_a_dialect_without_methods_gets_none() -> None:
    assert requiring(replace(a_dialect(), rpc=None), ["urn:a"]).rpc is None
