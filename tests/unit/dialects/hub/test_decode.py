"""How requests of the hub dialect are decoded."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.errors import InvalidField, InvalidRequest, MalformedJson
from synapse.core.message import Role, TextPart
from synapse.core.requests import (
    ChangeTask,
    DeleteTask,
    ForAgent,
    GetAgent,
    GetMessage,
    GetTask,
    IssueTicket,
    ListAgents,
    ListTasks,
    SendAndFollow,
    SendMessage,
    SubscribeTask,
    Ticket,
)
from synapse.core.task import TaskState
from synapse.dialects import paths
from synapse.dialects.dialect import Call, StreamCall
from tests.samples.calls import told
from tests.unit.dialects.hub.samples import AGENT, CREATED, QUESTION, ROUTES, TASK_ID, a_message, a_task, ask

MESSAGES = "/agents/{agentId}/messages"
TASK = "/tasks/{taskId}"
EVENTS = (b"accept", b"text/event-stream")


def sent(**body: Any) -> SendMessage:
    asked = ask("POST", MESSAGES, {"message": [QUESTION], **body}, agentId=AGENT).request
    assert isinstance(asked, ForAgent)
    assert asked.agent == AGENT
    assert isinstance(asked.request, SendMessage)
    return asked.request


def test_agents_are_listed_and_shown() -> None:
    assert ask("GET", "/agents").request == ListAgents()
    assert ask("GET", "/agents/{agentId}", agentId=AGENT).request == GetAgent(AGENT)


def test_a_message_goes_to_its_agent() -> None:
    request = sent()

    assert request.dialect == "hub"
    assert request.message.role is Role.USER
    assert request.message.parts == (TextPart(text=QUESTION["content"]),)
    assert request.exact
    assert (request.task_id, request.parent_id, request.context_id, request.metadata) == ("", "", "", {})


def test_a_message_may_name_its_task_its_context_and_its_parent() -> None:
    request = sent(messageId="m", taskId=f"{AGENT}:t", contextId="c", parentId="other:p", metadata={"ttl": 1})

    assert (request.message.message_id, request.task_id, request.context_id) == ("m", "t", "c")
    assert request.parent_id == "p"
    assert request.metadata == {"request": {"ttl": 1}}


def test_the_answer_to_a_message_names_the_message_that_was_sent() -> None:
    call = ask("POST", MESSAGES, {"message": [QUESTION]}, agentId=AGENT)
    named = ask("POST", MESSAGES, {"message": [QUESTION], "messageId": "mine"}, agentId=AGENT)
    followed_up = a_task(history=(a_message(), a_message(message_id="q", role=Role.AGENT), a_message(message_id="m-2")))

    assert isinstance(call, Call)
    assert call.status == 202
    assert told(call, a_task())["messageId"] == "m-1"
    assert told(call, followed_up)["messageId"] == "m-2"
    assert told(named, a_task())["messageId"] == "mine"


def test_a_streamed_message_is_followed() -> None:
    call = ask("POST", MESSAGES, {"message": [QUESTION], "stream": True}, agentId=AGENT)

    assert isinstance(call, StreamCall)
    assert isinstance(call.request, ForAgent)
    assert isinstance(call.request.request, SendAndFollow)


def test_a_repeated_request_resumes_its_stream_and_sends_nothing() -> None:
    headers = [(b"last-event-id", b"task-123.17.5.00000000")]
    call = ask("POST", MESSAGES, {"message": [QUESTION], "stream": True}, agentId=AGENT, headers=headers)

    assert call.request == ForAgent(AGENT, SubscribeTask(task_id="task-123", after=17))


def test_a_message_is_sent_if_its_last_event_id_names_no_task() -> None:
    headers = [(b"last-event-id", b"17")]
    call = ask("POST", MESSAGES, {"message": [QUESTION], "stream": True}, agentId=AGENT, headers=headers)

    assert isinstance(call.request, ForAgent)
    assert isinstance(call.request.request, SendAndFollow)


def test_tasks_are_read_as_they_are_or_as_events() -> None:
    assert ask("GET", TASK, taskId=TASK_ID).request == GetTask(TASK_ID, exact=True)
    stream = ask("GET", TASK, taskId=TASK_ID, headers=[EVENTS])
    assert isinstance(stream, StreamCall)
    assert stream.request == SubscribeTask(task_id=TASK_ID)


@pytest.mark.parametrize("place", [b"17", b"task-123.17", b"task-123.17.5.00000000"])
def test_events_are_resumed_after_the_last_one(place: bytes) -> None:
    call = ask("GET", TASK, taskId=TASK_ID, headers=[EVENTS, (b"last-event-id", place)])

    assert call.request == SubscribeTask(task_id=TASK_ID, after=17)


@pytest.mark.parametrize("place", [b"x", b"t.1.2", b"t.1.2.xyz", b".1", b"t.9999999999999999999", b"t.1.2.0000000g"])
def test_an_invalid_last_event_id_is_refused(place: bytes) -> None:
    with pytest.raises(InvalidField):
        ask("GET", TASK, taskId=TASK_ID, headers=[EVENTS, (b"last-event-id", place)])


def test_a_task_may_be_named_together_with_its_agent() -> None:
    named = f"{AGENT}:{TASK_ID}"

    assert ask("GET", TASK, taskId=named).request == ForAgent(AGENT, GetTask(TASK_ID, exact=True))
    assert ask("DELETE", TASK, taskId=named).request == ForAgent(AGENT, DeleteTask(task_id=TASK_ID))
    changed = ForAgent(AGENT, ChangeTask(task_id=TASK_ID, state=TaskState.COMPLETED))
    assert ask("PUT", TASK, {"state": "completed"}, taskId=named).request == changed
    followed = ask("GET", TASK, taskId=named, headers=[EVENTS]).request
    assert followed == ForAgent(AGENT, SubscribeTask(task_id=TASK_ID))
    resumed = ask("GET", TASK, taskId=named, headers=[EVENTS, (b"last-event-id", b"17")]).request
    assert resumed == ForAgent(AGENT, SubscribeTask(task_id=TASK_ID, after=17))


def test_a_plain_list_asks_for_everything() -> None:
    assert ask("GET", "/tasks").request == ListTasks(limit=50)


def test_a_list_takes_every_filter() -> None:
    query = "agentId=weather-agent&state=in_progress&parentId=weather-agent:p&userId=alice&limit=7&cursor=c"

    assert ask("GET", "/tasks", query=query).request == ListTasks(
        agent=AGENT,
        states=frozenset({TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED}),
        parent_id="p",
        user="alice",
        limit=7,
        cursor="c",
    )


@pytest.mark.parametrize(
    ("words", "states"),
    [
        ("pending", {TaskState.SUBMITTED}),
        ("completed", {TaskState.COMPLETED}),
        ("failed", {TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED}),
        ("pending,%20completed", {TaskState.SUBMITTED, TaskState.COMPLETED}),
    ],
)
def test_states_are_filters(words: str, states: set[TaskState]) -> None:
    request = ask("GET", "/tasks", query=f"state={words}").request

    assert isinstance(request, ListTasks)
    assert request.states == states


@pytest.mark.parametrize("query", ["state=running", "limit=0", "limit=101", "limit=x", "cursor=%ff"])
def test_an_invalid_filter_is_refused(query: str) -> None:
    with pytest.raises(InvalidRequest):
        ask("GET", "/tasks", query=query)


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ({"metadata": {"a": 1}}, ChangeTask(task_id=TASK_ID, metadata={"request": {"a": 1}})),
        ({"metadata": {}}, ChangeTask(task_id=TASK_ID, metadata={"request": {}})),
        ({"state": "pending"}, ChangeTask(task_id=TASK_ID, state=TaskState.SUBMITTED)),
        ({"state": "in_progress"}, ChangeTask(task_id=TASK_ID, state=TaskState.WORKING)),
        ({"state": "failed", "id": TASK_ID, "artifacts": []}, ChangeTask(task_id=TASK_ID, state=TaskState.FAILED)),
    ],
)
def test_a_task_is_changed(body: Any, request_: ChangeTask) -> None:
    assert ask("PUT", TASK, body, taskId=TASK_ID).request == request_


@pytest.mark.parametrize("body", [{}, {"id": "x"}, {"state": "canceled"}, {"state": 3}, {"metadata": []}, []])
def test_an_invalid_change_is_refused(body: Any) -> None:
    with pytest.raises(InvalidField):
        ask("PUT", TASK, body, taskId=TASK_ID)


def test_a_deletion_has_an_empty_answer() -> None:
    call = ask("DELETE", TASK, taskId=TASK_ID)

    assert call.request == DeleteTask(task_id=TASK_ID)
    assert isinstance(call, Call)
    assert (call.status, call.encode(a_task())) == (204, b"")


def test_a_message_is_asked_for_by_its_id() -> None:
    assert ask("GET", "/messages/{messageId}", messageId="m-1").request == GetMessage("m-1")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": []}, "message"),
        ({"message": "hello"}, "message"),
        ({"message": [{"type": "text"}]}, "message[0].content"),
        ({"message": [{"content": "x"}]}, "message[0].type"),
        ({"message": [QUESTION, {"type": "text", "content": 3}]}, "message[1].content"),
        ({"message": [QUESTION], "stream": "yes"}, "stream"),
        ({"message": [QUESTION], "messageId": "m" * 257}, "messageId"),
    ],
)
def test_a_field_that_is_wrong_is_named(body: Any, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        ask("POST", MESSAGES, body, agentId=AGENT)

    assert refused.value.field == field


def test_an_empty_body_and_one_that_is_not_json_are_refused() -> None:
    with pytest.raises(MalformedJson):
        ask("POST", MESSAGES, b"{", agentId=AGENT)
    with pytest.raises(InvalidRequest, match="empty"):
        ask("POST", MESSAGES, agentId=AGENT)


def test_every_path_of_the_layout_is_served_and_no_other() -> None:
    assert set(ROUTES) == set(paths.HUB_OPERATIONS.values())


def test_a_ticket_has_its_expiry_and_is_never_cached() -> None:
    call = ask("POST", "/ws/ticket")
    assert isinstance(call, Call)
    assert call.request == IssueTicket()
    assert (call.status, call.headers) == (201, ((b"cache-control", b"no-store"),))
    assert told(call, Ticket(text="t", expires_at=CREATED)) == {"ticket": "t", "expiresAt": "2023-05-25T12:00:00.000Z"}
