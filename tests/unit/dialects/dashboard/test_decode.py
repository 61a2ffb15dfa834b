"""What a person's page asks, as requests; and what is refused with a sentence about the field."""

from __future__ import annotations

import base64
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.core.errors import InvalidRequest
from synapse.core.message import FilePart, TextPart
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ForAgent,
    GetAgentOverview,
    GetAgentScreen,
    GetFigures,
    GetOverview,
    GetTask,
    GetTimeline,
    ListTasks,
    MarkSeen,
    Request,
    ResolveTask,
    SendMessage,
    SubscribeTask,
    WatchOverview,
)
from synapse.core.task import TaskState
from synapse.dialects.paths import DASHBOARD_OPERATIONS
from tests.unit.dialects.dashboard.samples import EVENTS, ROUTES, ask, wire

ANSWER = {"question_id": "q-1", "verdict": "allow"}


def test_every_operation_has_a_route() -> None:
    assert {*ROUTES, (EVENTS.method, EVENTS.path)} == set(DASHBOARD_OPERATIONS.values())


@pytest.mark.parametrize(
    ("operation", "params", "body", "request_"),
    [
        ("overview", {}, None, GetOverview()),
        ("agent", {"agentId": "ada"}, None, GetAgentOverview("ada")),
        ("task", {"taskId": "t"}, None, GetTask("t")),
        ("file", {"taskId": "t", "number": "1"}, None, GetTask("t", exact=True)),
        ("timeline", {"taskId": "t"}, None, GetTimeline(task_id="t", limit=1000)),
        ("cancel", {"taskId": "t"}, None, CancelTask("t", exact=True)),
        ("resolve", {"taskId": "t"}, {"verdict": "retry"}, ResolveTask(task_id="t", verdict="retry")),
        (
            "resolve",
            {"taskId": "t"},
            {"verdict": "fail", "asked_at": "2026-01-31T10:30:00+01:00"},
            ResolveTask(task_id="t", verdict="fail", asked_at=datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ),
        ("answer", {"taskId": "t"}, ANSWER, AnswerQuestion(task_id="t", verdict="allow", question_id="q-1")),
        (
            "answer",
            {"taskId": "t"},
            {"question_id": "q-1", "text": "the second"},
            AnswerQuestion(task_id="t", text="the second", question_id="q-1"),
        ),
        (
            "answer_agent",
            {"agentId": "ada"},
            {"question_id": "q-1", "option": "2"},
            ForAgent("ada", AnswerQuestion(option="2", question_id="q-1")),
        ),
        (
            "seen",
            {"agentId": "ada"},
            {"until": "2026-01-31T10:30:00+01:00"},
            MarkSeen(agent="ada", until=datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ),
        ("figures", {}, None, GetFigures(1)),
        ("screen", {"agentId": "ada"}, None, GetAgentScreen(agent="ada")),
    ],
)
def test_a_request_is_decoded(operation: str, params: dict[str, str], body: object, request_: Request[object]) -> None:
    assert ask(operation, body, **params).request == request_


def test_a_message_has_its_text_then_its_files() -> None:
    content = b"\x89PNG\x00"
    body = {
        "text": "look",
        "priority": 5,
        "files": [{"name": "a.png", "media_type": "image/png", "data": base64.b64encode(content).decode()}],
        "message_id": "m-1",
        "context_id": "c-1",
        "task_id": "t-1",
    }

    addressed = ask("send", body, agentId="ada").request

    assert isinstance(addressed, ForAgent)
    send = addressed.request
    assert isinstance(send, SendMessage)
    assert addressed.agent == "ada"
    assert send.message.parts == (
        TextPart(text="look"),
        FilePart(content=content, name="a.png", media_type="image/png"),
    )
    assert (send.message.message_id, send.context_id, send.task_id, send.exact) == ("m-1", "c-1", "t-1", True)
    assert (send.priority, send.dialect) == (5, "dashboard")


def test_a_list_of_tasks_has_all_filters() -> None:
    query = "agent=ada&state=working,failed&from=key.phone&search=two+words&context=c&limit=500&cursor=x"

    assert ask("tasks", query=query).request == ListTasks(
        agent="ada",
        states=frozenset({TaskState.WORKING, TaskState.FAILED, TaskState.REJECTED}),
        sender="key.phone",
        text="two words",
        context_id="c",
        limit=500,
        cursor="x",
    )
    assert ask("tasks", query="agent=&limit=").request == ListTasks()


@pytest.mark.parametrize(
    ("headers", "query", "after"),
    [
        ((), "", None),
        ((), "after=0", 0),
        ((), "after=17", 17),
        (((b"last-event-id", b"18"),), "after=17", 18),
    ],
)
def test_a_stream_resumes_by_the_header_or_the_query(headers: Any, query: str, after: int | None) -> None:
    assert EVENTS.decode(wire("events", query=query, headers=headers)) == WatchOverview(after=after)
    followed = ask("task_events", query=query, headers=headers, taskId="t").request
    assert followed == SubscribeTask(task_id="t", after=after)


@pytest.mark.parametrize(
    ("given_", "known"),
    [(b'"7.12"', "7.12"), (b'W/"7"', "7"), (b"7", ""), (b'"', ""), (b'"\xff"', ""), (b'"a", "b"', ""), (b"*", "")],
)
def test_a_page_names_the_screen_that_it_has(given_: bytes, known: str) -> None:
    headers = ((b"if-none-match", given_),)

    request = ask("screen", query="lines=40", headers=headers, agentId="ada").request

    assert request == GetAgentScreen(agent="ada", lines=40, known=known)


@pytest.mark.parametrize(
    ("operation", "body", "query", "words"),
    [
        ("send", None, "", "the body is empty"),
        ("send", b"{", "", "not JSON"),
        ("send", {}, "", "text"),
        ("send", {"text": "  "}, "", "text"),
        ("send", {"text": "a", "priority": 6}, "", "priority"),
        ("send", {"text": "a", "priority": "5"}, "", "priority"),
        ("send", {"text": "a", "files": [{"name": "", "data": ""}]}, "", "files"),
        ("send", {"text": "a", "files": [{"name": "n", "data": "no base64!"}]}, "", "files"),
        ("answer", {"verdict": "allow"}, "", "question_id"),
        ("answer", {"question_id": "", "verdict": "allow"}, "", "question_id"),
        ("answer", {"question_id": "q"}, "", "one of 'verdict'"),
        ("answer", {"question_id": "q", "text": " "}, "", "one of 'verdict'"),
        ("answer", {"question_id": "q", "verdict": "allow", "option": "1"}, "", "one of 'verdict'"),
        ("answer", {"question_id": "q", "verdict": "yes"}, "", "verdict"),
        ("resolve", {"verdict": "maybe"}, "", "verdict"),
        ("seen", {"until": "yesterday"}, "", "until"),
        ("seen", {"until": "2026-01-31T10:30:00"}, "", "until"),
        ("tasks", None, "limit=501", "limit"),
        ("tasks", None, "limit=0", "limit"),
        ("tasks", None, "state=happy", "state"),
        ("timeline", None, "after=-1", "after"),
        ("task_events", None, "after=x", "after"),
        ("figures", None, "hours=day", "hours"),
        ("screen", None, "lines=1001", "lines"),
    ],
)
def test_what_is_wrong_is_named(operation: str, body: object, query: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ask(operation, body, query=query, agentId="ada", taskId="t", number="1")

    assert words in str(refused.value)


@pytest.mark.parametrize("last", ["-1", "x", "9" * 30, "1.5", "1_0"])
def test_a_position_that_is_no_seq_is_refused(last: str) -> None:
    with pytest.raises(InvalidRequest):
        EVENTS.decode(wire("events", headers=((b"last-event-id", last.encode()),)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
BODIES: dict[str, Any] = {
    "text": "a",
    "priority": 3,
    "files": [{"name": "n", "media_type": "m", "data": "JVBERg=="}],
    "message_id": "m",
    "question_id": "q",
    "verdict": "allow",
    "option": "1",
    "until": "2026-01-31T10:30:00Z",
}


def near(value: Any) -> st.SearchStrategy[Any]:
    """Generates JSON in the shape of `value`, with parts of it replaced, left out, or wrong."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return st.fixed_dictionaries({}, optional={key: near(inner) for key, inner in fields.items()}) | JSON
    if isinstance(value, list):
        return st.lists(st.one_of([near(item) for item in cast("list[object]", value)]), max_size=3) | JSON
    return st.just(value) | st.just(value) | JSON


@settings(max_examples=200, deadline=None)
@given(body=near(BODIES) | st.binary(max_size=60), query=st.text(max_size=40), number=st.text(min_size=1, max_size=12))
def test_any_request_is_decoded_or_refused_and_nothing_else(body: Any, query: str, number: str) -> None:
    for operation in DASHBOARD_OPERATIONS:
        with suppress(InvalidRequest):
            request = wire(operation, body, query=query, agentId="a", taskId="t", number=number)
            if operation == "events":
                EVENTS.decode(request)
            else:
                ROUTES[DASHBOARD_OPERATIONS[operation]].ask(request)
