"""A task keeps the trace context of its request and propagates it; an invalid trace is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.requests import ForAgent, GetTask, Request, SendAndFollow, SendAndWait, SendMessage
from synapse.core.trace import TRACE, trace_headers, traced
from tests.fakes.facts import message

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEADERS = [(b"host", b"localhost"), (b"traceparent", PARENT.encode()), (b"tracestate", b"congo=t61rcWkgMzE")]
KEPT = {"traceparent": PARENT, "tracestate": "congo=t61rcWkgMzE"}
SEND = SendMessage(message=message(), dialect="a2a_v1", metadata={"request": {"a": 1}})


def sent(request: Request[object]) -> SendMessage:
    if isinstance(request, ForAgent):
        return sent(request.request)
    if isinstance(request, SendAndWait | SendAndFollow):
        return request.send
    assert isinstance(request, SendMessage)
    return request


@pytest.mark.parametrize("request_", [SEND, SendAndWait(SEND), SendAndFollow(SEND), ForAgent("ada", SendAndWait(SEND))])
def test_a_message_keeps_its_metadata_beside_the_trace(request_: Request[object]) -> None:
    assert sent(traced(request_, HEADERS)).metadata == {"request": {"a": 1}, TRACE: KEPT}


@pytest.mark.parametrize("request_", [GetTask("t"), ForAgent("ada", GetTask("t"))])
def test_a_request_that_opens_no_task_is_unchanged(request_: Request[object]) -> None:
    assert traced(request_, HEADERS) == request_


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"00-00000000000000000000000000000000-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        PARENT.encode() + b"\r\nX-Evil: 1",
        b"\xff",
    ],
)
def test_an_invalid_trace_is_ignored_with_its_state(parent: bytes) -> None:
    assert traced(SEND, [(b"traceparent", parent), (b"tracestate", b"a=b")]) == SEND


def test_an_invalid_state_is_ignored_without_its_parent() -> None:
    headers = [(b"traceparent", PARENT.encode()), (b"tracestate", b"a=" + b"b" * 600)]

    assert sent(traced(SEND, headers)).metadata[TRACE] == {"traceparent": PARENT}


def test_a_task_propagates_its_trace() -> None:
    assert trace_headers({TRACE: KEPT}) == [("traceparent", PARENT), ("tracestate", "congo=t61rcWkgMzE")]


@pytest.mark.parametrize(
    "metadata", [{}, {TRACE: "x"}, {TRACE: {"traceparent": "a\r\nb"}}, {TRACE: {"traceparent": 1}}]
)
def test_an_invalid_trace_of_a_local_sender_is_not_propagated(metadata: dict[str, Any]) -> None:
    assert trace_headers(metadata) == []
