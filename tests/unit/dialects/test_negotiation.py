"""A request's version, message and extensions decide how it is read and answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from synapse.core.errors import ExtensionRequired, InvalidRequest, VersionNotSupported
from synapse.core.extension import Extension
from synapse.core.requests import ForAgent, GetStatus, SubscribeTask
from synapse.dialects.dialect import (
    AnyCall,
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    RpcTable,
    StreamCall,
    WireAnswer,
    WireRequest,
)
from synapse.dialects.negotiation import (
    NamedExtensions,
    address_with_extensions,
    asked_dialect,
    asked_version,
    named_in,
    spoken_dialect,
    with_extensions,
)


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


def test_a_request_without_a_version_demands_no_dialect() -> None:
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
def test_the_message_shows_its_dialect(body: Any, dialect: str) -> None:
    assert spoken_dialect(json.dumps(body).encode()) == dialect


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_an_unreadable_body_decides_nothing(body: bytes) -> None:
    assert spoken_dialect(body) == ""


Header = tuple[bytes, bytes]
Asked = AnyCall | WireAnswer
Ask = Callable[[Dialect, WireRequest], Asked]

A = Extension(uri="urn:a", required=True)
B = Extension(uri="urn:b")


def naming(*headers: Header) -> WireRequest:
    return WireRequest("GET", "/tasks", headers=[(b"host", b"localhost"), *headers])


def current(uris: bytes) -> Header:
    return (b"a2a-extensions", uris)


def former(uris: bytes) -> Header:
    return (b"x-a2a-extensions", uris)


def nothing(_result: object) -> bytes:
    return b""


def no_event(_update: object) -> None:
    """Sends nothing."""


def a_dialect(call: Asked | None = None) -> Dialect:
    asked = call or Call(GetStatus(), nothing)
    question = asked if isinstance(asked, Call) else Call(GetStatus(), nothing)
    document = DocumentRoute(method="GET", path="/card", answer=lambda _: WireAnswer(200, b""))
    return Dialect(
        name="some",
        routes=(CallRoute(method="GET", path="/tasks", ask=lambda _: asked), document),
        encode_error=lambda error: WireAnswer(400, str(error).encode()),
        rpc=RpcTable(
            methods={"X": lambda _params, _wire: question},
            encode_fault=lambda error: str(error).encode(),
            faults_as_events=frozenset("X"),
        ),
    )


def ask_rest(dialect: Dialect, request: WireRequest) -> Asked:
    route = dialect.routes[0]
    assert isinstance(route, CallRoute)
    return route.ask(request)


def ask_rpc(dialect: Dialect, request: WireRequest) -> Asked:
    assert dialect.rpc is not None
    return dialect.rpc.methods["X"](b"", request)


def test_extensions_are_named_in_one_header_or_in_several() -> None:
    named = named_in([current(b"urn:a, urn:b"), (b"accept", b"urn:x"), former(b",urn:c ,")])

    assert named == NamedExtensions(b"a2a-extensions", frozenset({"urn:a", "urn:b", "urn:c"}))
    assert named_in([former(b"urn:\xff")]) == NamedExtensions(b"x-a2a-extensions", frozenset({"urn:\xff"}))
    assert named_in([(b"host", b"localhost")]).uris == frozenset()


def test_the_dialect_of_an_agent_without_extensions_is_unchanged() -> None:
    dialect = a_dialect()

    assert with_extensions(dialect, ()) is dialect


@pytest.mark.parametrize("ask", [ask_rest, ask_rpc])
def test_a_required_extension_must_be_named(ask: Ask) -> None:
    demanding = with_extensions(a_dialect(), (A, B))

    for headers in ((), (current(b"urn:b"),), (current(b"urn:a/more"),), ((b"accept", b"urn:a"),)):
        with pytest.raises(ExtensionRequired, match="urn:a"):
            ask(demanding, naming(*headers))


@pytest.mark.parametrize("ask", [ask_rest, ask_rpc])
def test_the_answer_names_active_extensions_in_the_header_of_the_request(ask: Ask) -> None:
    demanding = with_extensions(a_dialect(), (A, B))

    for headers, told in (
        ([current(b"urn:c,urn:b,urn:a")], current(b"urn:a, urn:b")),
        ([former(b"urn:a")], former(b"urn:a")),
    ):
        answer = ask(demanding, naming(*headers))
        assert isinstance(answer, Call)
        assert answer.headers == (told,)


def test_an_optional_extension_may_be_left_out_and_then_the_answer_names_none() -> None:
    answer = ask_rest(with_extensions(a_dialect(), (B,)), naming(current(b"urn:c")))

    assert isinstance(answer, Call)
    assert answer.headers == ()


def test_streams_name_active_extensions_too_and_documents_stay_unchanged() -> None:
    stream = StreamCall(SubscribeTask(task_id="t"), no_event)
    card = WireAnswer(200, b"card")

    told = ask_rest(with_extensions(a_dialect(stream), (A,)), naming(current(b"urn:a")))
    assert told == stream._replace(headers=(current(b"urn:a"),))
    assert ask_rest(with_extensions(a_dialect(card), (A,)), naming()) == card


def test_documents_require_nothing_and_the_rest_of_the_dialect_stays() -> None:
    dialect = a_dialect()
    demanding = with_extensions(dialect, (A,))

    assert demanding.routes[1] == dialect.routes[1]
    assert demanding.rpc is not None
    assert demanding.rpc.faults_as_events == frozenset("X")
    assert with_extensions(replace(dialect, rpc=None), (A,)).rpc is None


def test_each_mounted_agent_has_its_own_extensions_and_the_gateway_checks_the_required_ones() -> None:
    address = address_with_extensions(lambda name: (A, B) if name == "ada" else ())
    call = Call(GetStatus(), nothing)

    def ask(agent: str, *headers: Header) -> tuple[object, object]:
        asked = address(call, WireRequest("GET", "/", {"agentId": agent}, headers=headers))
        return asked.request, asked.headers

    assert ask("ada") == (ForAgent("ada", GetStatus(), frozenset()), ())
    named = frozenset({"urn:b", "urn:c"})
    assert ask("ada", former(b"urn:c, urn:b")) == (ForAgent("ada", GetStatus(), named), (former(b"urn:b"),))
    assert ask("bob", former(b"urn:c, urn:b")) == (ForAgent("bob", GetStatus(), named), ())
