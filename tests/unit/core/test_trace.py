"""Trace context: what comes with a request is kept with its task and handed on; what is no trace is left out."""

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
def test_a_message_takes_the_trace_with_it_beside_what_it_had(request_: Request[object]) -> None:
    assert sent(traced(request_, HEADERS)).metadata == {"request": {"a": 1}, TRACE: KEPT}


@pytest.mark.parametrize("request_", [GetTask("t"), ForAgent("ada", GetTask("t"))])
def test_what_makes_no_task_stays_as_it_is(request_: Request[object]) -> None:
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
def test_what_is_no_trace_is_left_out_with_its_state(parent: bytes) -> None:
    assert traced(SEND, [(b"traceparent", parent), (b"tracestate", b"a=b")]) == SEND


def test_a_state_that_cannot_be_said_in_a_header_is_left_out_alone() -> None:
    headers = [(b"traceparent", PARENT.encode()), (b"tracestate", b"a=" + b"b" * 600)]

    assert sent(traced(SEND, headers)).metadata[TRACE] == {"traceparent": PARENT}


def test_a_task_hands_its_trace_on() -> None:
    assert trace_headers({TRACE: KEPT}) == [("traceparent", PARENT), ("tracestate", "congo=t61rcWkgMzE")]


@pytest.mark.parametrize(
    "metadata", [{}, {TRACE: "x"}, {TRACE: {"traceparent": "a\r\nb"}}, {TRACE: {"traceparent": 1}}]
)
def test_what_a_local_sender_put_there_is_no_trace(metadata: dict[str, Any]) -> None:
    assert trace_headers(metadata) == []
