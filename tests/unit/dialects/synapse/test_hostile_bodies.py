"""Any body is decoded to a request or raises InvalidRequest, never another error."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.core.errors import InvalidRequest
from synapse.core.requests import SendMessage
from synapse.dialects.dialect import Route, StreamRoute, WireRequest
from synapse.dialects.proto_json import to_json
from synapse.dialects.synapse import decode
from synapse.dialects.synapse.routes import CardFacts, synapse_dialect
from synapse.dialects.task_json import message_object

FACTS = CardFacts(agent_id="a", agent_type="t", title="T", url="u")
DECODING = [route for route in synapse_dialect(FACTS).routes if isinstance(route, Route | StreamRoute)]
PARAMS = {"id": "54241e7e", "alias": "other"}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def near(value: Any) -> st.SearchStrategy[Any]:
    """Generates JSON in the shape of `value`, with parts of it replaced, left out, or wrong."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return st.fixed_dictionaries({}, optional={key: near(inner) for key, inner in fields.items()}) | JSON
    if isinstance(value, list):
        items = cast("list[object]", value)
        return st.lists(st.one_of([near(item) for item in items]), max_size=3) | JSON
    return st.just(value) | st.just(value) | JSON


MESSAGE: dict[str, Any] = {
    "role": "user",
    "parts": [
        {"type": "text", "text": "Hello!"},
        {"type": "file", "file": {"name": "n", "mimeType": "m", "bytes": "JVBERg=="}},
        {"type": "file", "file": {"uri": "https://x"}},
        {"type": "data", "data": {"k": 1}},
    ],
    "messageId": "m",
    "context_id": "c",
    "task_id": "t",
    "metadata": {},
}
SENDER = {"sender_id": "s", "sender_type": "t", "sender_endpoint": "e"}
BODY: dict[str, Any] = {
    "message": MESSAGE,
    "metadata": {"sender": SENDER, "response_expected": True, "sender_task_id": "x", "in_reply_to": "y", "ttl": 1},
    "context_id": "c",
    "task_id": "t",
    "failed": True,
    "verdict": "retry",
    "url": "http://o:1",
    "alias": "o",
}
QUERIES = st.binary(max_size=30) | st.sampled_from(
    [b"priority=5", b"limit=2&status=working", b"after=3", b"priority=%31"]
)


def decode_all(body: bytes, query: bytes, header: bytes) -> None:
    for route in DECODING:
        request = WireRequest(route.method, route.path, PARAMS, query, [(b"last-event-id", header)], body)
        with suppress(InvalidRequest):
            route.decode(request)


@given(body=st.binary(max_size=200), query=QUERIES, header=st.binary(max_size=10))
def test_any_bytes_are_read_or_refused(body: bytes, query: bytes, header: bytes) -> None:
    decode_all(body, query, header)


@settings(max_examples=300)
@given(body=near(BODY))
def test_any_json_near_the_contract_is_read_or_refused(body: Any) -> None:
    decode_all(json.dumps(body).encode(), b"", b"")


@settings(max_examples=200)
@given(message=near(MESSAGE))
def test_a_decoded_message_can_be_encoded_again(message: Any) -> None:
    try:
        request = decode.decode_send(WireRequest("POST", "/", body=json.dumps({"message": message}).encode()))
    except InvalidRequest:
        return
    told = to_json({"message": message_object(request.message)})
    again = decode.decode_send(WireRequest("POST", "/", body=told))

    assert isinstance(request, SendMessage)
    assert again.message.parts == request.message.parts


@pytest.mark.parametrize("text", ["\\ud800", "\\u0000", "\\u001b[2J", "\\udc00\\ud800"])
def test_strange_characters_are_read_or_refused(text: str) -> None:
    body = b'{"message": {"role": "user", "parts": [{"type": "text", "text": "%b"}]}}' % text.encode()

    decode_all(body, b"", b"")
