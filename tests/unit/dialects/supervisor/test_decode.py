"""How requests of the supervisor dialect are decoded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from synapse.core.errors import InvalidField, InvalidRequest, MalformedJson
from synapse.core.message import Role
from synapse.core.push import PushConfig
from synapse.core.requests import CancelTask, GetTask, ListTasks, SendAndFollow, SendAndWait, SendMessage, SubscribeTask
from synapse.core.task import TaskState
from synapse.dialects import paths
from synapse.dialects.dialect import Call, StreamCall
from tests.samples.calls import told
from tests.unit.dialects.supervisor.samples import AGENT, MESSAGE, ROUTES, TASK_ID, a_task, ask


def sent(body: dict[str, Any]) -> SendMessage:
    asked = ask("POST", "/message:send", body).request
    assert isinstance(asked, SendMessage)
    return asked


def listed(query: str) -> ListTasks:
    asked = ask("GET", "/tasks", query=query).request
    assert isinstance(asked, ListTasks)
    return asked


def test_a_message_without_more_is_sent_and_answered_at_once() -> None:
    request = sent({"message": {"content": "hi"}})

    assert request.dialect == "supervisor"
    assert request.message.text == "hi"
    assert request.message.role is Role.USER
    assert request.exact
    assert (request.message.message_id, request.task_id, request.context_id, request.push) == ("", "", "", None)
    assert request.metadata == {}


def test_blocking_waits_and_streaming_follows() -> None:
    blocking = ask("POST", "/message:send", {"message": MESSAGE, "configuration": {"blocking": True}})
    elsewhere = ask("POST", "/message:send", {"message": MESSAGE, "blocking": True})
    streaming = ask("POST", "/message:stream", {"message": MESSAGE})

    assert isinstance(blocking.request, SendAndWait)
    assert not isinstance(elsewhere.request, SendAndWait)
    assert isinstance(streaming, StreamCall)
    assert isinstance(streaming.request, SendAndFollow)


@pytest.mark.parametrize(("word", "role"), [("user", Role.USER), ("assistant", Role.AGENT), ("system", Role.USER)])
def test_every_role_is_understood(word: str, role: Role) -> None:
    message = sent({"message": {"content": "hi", "role": word}}).message

    assert message.role is role
    assert message.metadata == ({"role": "system"} if word == "system" else {})


def test_a_message_may_bring_its_id_and_its_time() -> None:
    message = sent({"message": {**MESSAGE, "id": "m-1", "timestamp": "2025-11-18T10:00:00.000Z"}}).message

    assert message.message_id == "m-1"
    assert message.metadata == {"timestamp": "2025-11-18T10:00:00.000Z"}


@pytest.mark.parametrize("task_id", [TASK_ID, f"{AGENT}:{TASK_ID}"])
def test_a_message_continues_a_task_by_either_form_of_its_id(task_id: str) -> None:
    inside = sent({"message": {**MESSAGE, "taskId": task_id, "contextId": "c"}})
    beside = sent({"message": MESSAGE, "taskId": task_id, "contextId": "c"})

    assert inside == beside
    assert (inside.task_id, inside.context_id) == (TASK_ID, "c")


def test_the_callers_metadata_is_stored_apart_from_the_hosts() -> None:
    assert sent({"message": MESSAGE, "metadata": {"ttl": -1}}).metadata == {"request": {"ttl": -1}}


@pytest.mark.parametrize(
    ("authentication", "scheme", "credentials"),
    [
        (None, "", ""),
        ({"schemes": [], "credentials": "c"}, "", "c"),
        ({"schemes": ["bearer"], "credentials": "c"}, "bearer", "c"),
        ({"schemes": ["digest", "Basic", "api-key"], "credentials": "c"}, "Basic", "c"),
        ({"schemes": ["digest"]}, "digest", ""),
    ],
)
def test_a_webhook_uses_the_first_known_scheme(authentication: Any, scheme: str, credentials: str) -> None:
    config = {"url": "https://x.example", "authentication": authentication}

    assert sent({"message": MESSAGE, "configuration": {"pushNotificationConfig": config}}).push == PushConfig(
        url="https://x.example", scheme=scheme, credentials=credentials, dialect="supervisor"
    )


@pytest.mark.parametrize("task_id", [TASK_ID, f"{AGENT}:{TASK_ID}"])
def test_tasks_are_asked_for_by_either_form_of_their_id(task_id: str) -> None:
    assert ask("GET", "/tasks/{id}", id=task_id).request == GetTask(TASK_ID, exact=True)
    assert ask("POST", "/tasks/{id}:cancel", id=task_id).request == CancelTask(TASK_ID, exact=True)
    assert ask("POST", "/tasks/{id}:subscribe", id=task_id).request == SubscribeTask(task_id=TASK_ID)


def test_the_answer_has_the_requested_length_of_history() -> None:
    for length, count in (("0", 0), ("1", 1), ("", 1)):
        call = ask("GET", "/tasks/{id}", id=TASK_ID, query=f"historyLength={length}")
        assert len(told(call, a_task())["history"]) == count


def test_the_id_of_another_agents_task_is_no_task_here() -> None:
    assert ask("GET", "/tasks/{id}", id="agent2:t").request == GetTask("agent2:t", exact=True)


@pytest.mark.parametrize("header", ["event-17", "17"])
def test_a_stream_is_resumed_after_the_last_event(header: str) -> None:
    asked = ask("POST", "/tasks/{id}:subscribe", id="t", headers=[(b"last-event-id", header.encode())])

    assert asked.request == SubscribeTask(task_id="t", after=17)


@pytest.mark.parametrize("header", ["event-", "x-1", "1.5", "٣", "9" * 19])
def test_an_invalid_last_event_id_is_refused(header: str) -> None:
    with pytest.raises(InvalidField):
        ask("POST", "/tasks/{id}:subscribe", id="t", headers=[(b"last-event-id", header.encode("utf-8"))])


def test_a_plain_list_has_the_documents_defaults() -> None:
    assert listed("") == ListTasks(limit=50)


def test_a_list_takes_every_filter() -> None:
    request = listed(
        "contextId=c&pageSize=7&pageToken=next&lastUpdatedAfter=1763460000123"
        "&historyLength=3&includeArtifacts=true&metadata=%7B%22customField%22%3A%22customValue%22%7D"
    )

    assert request == ListTasks(
        context_id="c",
        limit=7,
        cursor="next",
        updated_after=datetime(2025, 11, 18, 10, 0, 0, 123000, tzinfo=UTC),
        metadata={"request": {"customField": "customValue"}},
    )


@pytest.mark.parametrize(
    ("word", "states", "expired"),
    [
        ("created", {TaskState.SUBMITTED}, None),
        ("running", {TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED}, None),
        ("succeeded", {TaskState.COMPLETED}, None),
        ("failed", {TaskState.FAILED, TaskState.REJECTED}, False),
        ("cancelled", {TaskState.CANCELED}, None),
        ("expired", {TaskState.FAILED, TaskState.REJECTED}, True),
    ],
)
def test_every_status_is_a_filter(word: str, states: set[TaskState], expired: bool | None) -> None:
    request = listed(f"status={word}")

    assert request.states == states
    assert request.expired is expired


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("metadata=a:b", {"a": "b"}),
        ("metadata=a%3Db,%20c:d=e", {"a": "b", "c": "d=e"}),
        ('metadata={"n":{"m":1}}', {"n": {"m": 1}}),
        ("metadata=", None),
        ("metadata={}", None),
    ],
)
def test_metadata_is_filtered_by_json_or_by_pairs(query: str, wanted: Any) -> None:
    assert listed(query).metadata == ({} if wanted is None else {"request": wanted})


@pytest.mark.parametrize(
    "query",
    [
        "status=working",
        "pageSize=0",
        "pageSize=101",
        "pageSize=many",
        "historyLength=-1",
        "lastUpdatedAfter=yesterday",
        "lastUpdatedAfter=253402300800000",
        "includeArtifacts=perhaps",
        "metadata={",
        "metadata=[1]",
        "metadata=word",
        "metadata=:v",
        "metadata=" + "{" + '"a":' * 3000,
    ],
)
def test_an_invalid_filter_is_refused(query: str) -> None:
    with pytest.raises(InvalidRequest):
        listed(query)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": {}}, "message.content"),
        ({"message": {"content": ""}}, "message.content"),
        ({"message": {"content": 3}}, "message.content"),
        ({"message": {"content": "x", "role": "robot"}}, "message.role"),
        ({"message": {"content": "x", "id": "i" * 257}}, "message.id"),
        ({"message": {"content": "x", "timestamp": "noon"}}, "message.timestamp"),
        ({"message": MESSAGE, "configuration": {"blocking": "yes"}}, "configuration.blocking"),
        ({"message": MESSAGE, "metadata": []}, "metadata"),
        (
            {"message": MESSAGE, "configuration": {"pushNotificationConfig": {"url": ""}}},
            "configuration.pushNotificationConfig.url",
        ),
    ],
)
def test_a_field_that_is_wrong_is_named(body: Any, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        ask("POST", "/message:send", body)

    assert refused.value.field == field


def test_an_empty_body_and_one_that_is_not_json_are_refused() -> None:
    with pytest.raises(MalformedJson):
        ask("POST", "/message:send", b"{")
    with pytest.raises(InvalidRequest, match="empty"):
        ask("POST", "/message:stream")


def test_every_path_of_the_layout_is_served_and_no_other() -> None:
    assert set(ROUTES) == set(paths.SUPERVISOR_OPERATIONS.values())
    assert isinstance(ask("GET", "/tasks"), Call)
