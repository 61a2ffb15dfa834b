"""What every dialect is made of: wire requests, cached documents, and mounts that address one agent."""

from __future__ import annotations

import pytest

from synapse.core.errors import InvalidRequest
from synapse.core.requests import ForAgent, GetTask, SubscribeTask
from synapse.dialects.a2a_v1.routes import a2a_v1_dialect
from synapse.dialects.dialect import (
    CachedDocument,
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    Route,
    RpcTable,
    StreamCall,
    StreamRoute,
    WireAnswer,
    WireRequest,
    mounted,
)
from synapse.dialects.synapse.encode import encode_error


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


DOCUMENT = CachedDocument(b'{"a": 1}', max_age=60, vary="A2A-Version")


def fetch(known: str = "") -> tuple[int, bytes, dict[bytes, bytes]]:
    headers = [(b"if-none-match", known.encode())] if known else []
    answer = DOCUMENT.answer(WireRequest("GET", "/", headers=headers))
    return answer.status, answer.body, dict(answer.headers)


ETAG = fetch()[2][b"etag"].decode()


def test_the_document_says_how_long_it_may_be_kept() -> None:
    status, body, headers = fetch()

    assert (status, body) == (200, b'{"a": 1}')
    assert headers == {b"etag": ETAG.encode(), b"cache-control": b"private, max-age=60", b"vary": b"A2A-Version"}


def test_only_a_public_document_is_cached_by_proxies() -> None:
    shared = CachedDocument(b"{}", max_age=60, vary="A2A-Version", shared=True).answer(WireRequest("GET", "/"))

    assert dict(shared.headers)[b"cache-control"] == b"public, max-age=60"


@pytest.mark.parametrize("known", [ETAG, f"W/{ETAG}", f'"other", {ETAG}', "*"])
def test_a_reader_that_has_the_document_gets_304(known: str) -> None:
    status, body, headers = fetch(known)

    assert (status, body) == (304, b"")
    assert headers[b"etag"] == ETAG.encode()


@pytest.mark.parametrize("known", ['"other"', ETAG.strip('"'), "nonsense"])
def test_a_reader_that_has_another_document_gets_this_one(known: str) -> None:
    assert fetch(known)[0] == 200


def test_another_document_has_another_tag() -> None:
    other = CachedDocument(b'{"a": 2}', max_age=60, vary="A2A-Version").answer(WireRequest("GET", "/"))

    assert dict(other.headers)[b"etag"] != ETAG.encode()


MOUNT = "/agents/{agentId}/v1"
ADA = WireRequest("GET", "/agents/ada/v1/tasks/t", {"agentId": "ada", "id": "t"})
CARD = WireAnswer(200, b"card")


def as_bytes(_result: object) -> bytes:
    return b"task"


def as_event(_update: object) -> None:
    return None


QUESTION = Call(GetTask("t"), as_bytes, status=202)
STREAM = StreamCall(SubscribeTask(task_id="t"), as_event)

SMALL = Dialect(
    name="small",
    routes=(
        Route(method="GET", path="/plain", decode=lambda wire: GetTask(wire.params["id"]), encode=lambda _: b""),
        StreamRoute(method="GET", path="/stream", decode=lambda _: SubscribeTask(task_id="s"), encode=lambda _: None),
        DocumentRoute(method="GET", path="/card", answer=lambda _: CARD),
        CallRoute(method="GET", path="/call", ask=lambda _: QUESTION),
        CallRoute(method="GET", path="/streamed", ask=lambda _: STREAM),
        CallRoute(method="GET", path="/answered", ask=lambda _: CARD),
        CallRoute(method="GET", path="/v1/call", ask=lambda _: QUESTION),
    ),
    encode_error=encode_error,
    rpc=RpcTable(methods={"Get": lambda _params, _wire: QUESTION}, encode_fault=lambda _: b""),
)


def test_each_route_is_below_the_mount_and_is_for_the_agent_of_the_path() -> None:
    plain, stream, card, call, streamed, answered = mounted(SMALL, MOUNT).routes

    assert [route.path for route in (plain, card)] == [f"{MOUNT}/plain", f"{MOUNT}/card"]
    assert isinstance(plain, Route)
    assert plain.decode(ADA) == ForAgent("ada", GetTask("t"))
    assert isinstance(stream, StreamRoute)
    assert stream.decode(ADA) == ForAgent("ada", SubscribeTask(task_id="s"))
    assert isinstance(card, DocumentRoute)
    assert card.answer(ADA) == CARD
    assert isinstance(call, CallRoute)
    assert call.ask(ADA) == QUESTION._replace(request=ForAgent("ada", GetTask("t")))
    assert isinstance(streamed, CallRoute)
    assert streamed.ask(ADA) == STREAM._replace(request=ForAgent("ada", SubscribeTask(task_id="t")))
    assert isinstance(answered, CallRoute)
    assert answered.ask(ADA) == CARD


def test_methods_of_json_rpc_are_for_the_agent_of_the_path() -> None:
    rpc = mounted(SMALL, MOUNT).rpc

    assert rpc is not None
    assert rpc.methods["Get"](b"", ADA).request == ForAgent("ada", GetTask("t"))


def test_paths_that_hosts_serve_twice_are_mounted_once() -> None:
    paths = [route.path for route in mounted(a2a_v1_dialect(), MOUNT).routes]

    assert f"{MOUNT}/message:send" in paths
    assert not [path for path in paths if "/v1/v1" in path]


def test_a_dialect_without_methods_has_none_when_mounted() -> None:
    assert mounted(Dialect(name="none", routes=(), encode_error=encode_error), MOUNT).rpc is None
