"""What a call asked for decides how its answer is told."""

from __future__ import annotations

import json
from typing import Any

from synapse.core.events import StateChanged, Update
from synapse.core.message import Artifact, TextPart
from synapse.core.store import TaskPage
from synapse.core.task import TaskState
from synapse.dialects.dialect import Call, StreamCall
from synapse.dialects.paths import A2A_V1_OPERATIONS, A2A_V1_PREFIXES, ONLY_IN_0_3, TENANT, a2a_v1_paths
from tests.samples.tasks import UPDATED, a_message, a_task
from tests.unit.dialects.a2a_v1.samples import DIALECT, MESSAGE, ROUTES, rest, rpc

SEND: dict[str, Any] = {"message": MESSAGE}
HISTORY = (a_message(message_id="m-1"), a_message(message_id="m-2"))


def told(call: Call | StreamCall, result: Any) -> Any:
    assert isinstance(call, Call)
    return json.loads(call.encode(result))


def test_every_operation_of_the_paths_has_its_routes() -> None:
    assert set(ROUTES) == set(a2a_v1_paths())
    with_tenant = sum(TENANT in prefix for prefix in A2A_V1_PREFIXES)
    known = sum(len(places) for places in A2A_V1_OPERATIONS.values())
    assert len(a2a_v1_paths()) == len(A2A_V1_PREFIXES) * known - with_tenant * len(A2A_V1_OPERATIONS[ONLY_IN_0_3])
    assert {route.media_type for route in ROUTES.values()} == {b"application/a2a+json"}


def test_a_sent_message_is_answered_with_a_task_and_so_much_of_its_history() -> None:
    task = a_task(history=HISTORY)

    assert len(told(rpc("SendMessage", SEND), task)["task"]["history"]) == 2
    one = {**SEND, "configuration": {"historyLength": 1}}
    assert len(told(rest("POST", "/message:send", one), task)["task"]["history"]) == 1
    none = {**SEND, "configuration": {"historyLength": 0}}
    assert "history" not in told(rpc("SendMessage", none), task)["task"]


def test_a_task_is_answered_bare() -> None:
    task = a_task(history=HISTORY)

    assert told(rpc("GetTask", {"id": task.id}), task)["id"] == task.id
    cut = rest("GET", "/tasks/{id}", query="historyLength=1", id=task.id)
    assert [message["messageId"] for message in told(cut, task)["history"]] == ["m-2"]
    assert told(rest("POST", "/tasks/{id}:cancel", id=task.id), task)["id"] == task.id


def test_a_list_is_answered_as_it_was_asked_for() -> None:
    artifact = Artifact(artifact_id="a", parts=(TextPart(text="x"),))
    page = TaskPage((a_task(history=HISTORY, artifacts=(artifact,)),), "", 1)

    plain = told(rpc("ListTasks", {}), page)
    assert (plain["pageSize"], plain["totalSize"], plain["nextPageToken"]) == (50, 1, "")
    assert "artifacts" not in plain["tasks"][0]
    full = told(rest("GET", "/tasks", query="includeArtifacts=true&pageSize=5&historyLength=0"), page)
    assert full["pageSize"] == 5
    assert full["tasks"][0]["artifacts"]
    assert "history" not in full["tasks"][0]


def test_events_of_a_stream_have_an_id_and_no_name() -> None:
    call = rpc("SubscribeToTask", {"id": "t"})
    assert isinstance(call, StreamCall)
    task = a_task(state=TaskState.COMPLETED)

    event = call.encode(Update(9, StateChanged(task_id=task.id, at=UPDATED, state=task.state), task))

    assert event is not None
    assert (event.id, event.name) == ("9", "")
    assert "statusUpdate" in json.loads(event.data)


def test_the_first_event_has_so_much_of_the_history_as_was_asked_for() -> None:
    call = rpc("SendStreamingMessage", {**SEND, "configuration": {"historyLength": 1}})
    assert isinstance(call, StreamCall)

    event = call.encode(Update(9, None, a_task(history=HISTORY)))

    assert event is not None
    assert len(json.loads(event.data)["task"]["history"]) == 1


def test_it_is_known_by_its_name() -> None:
    assert DIALECT.name == "a2a_v1"
