"""How A2A 0.3 encodes tasks, in both of its forms, and agent cards."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from synapse.core.events import ArtifactAdded, ReceiptChanged, StateChanged, TaskEvent, Update
from synapse.core.message import Artifact, DataPart, FilePart, Part, TextPart
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.dialects.a2a_v0_3.encode import JSON_RPC, PROTO_JSON, CardFacts, TaskEncoder, agent_card
from synapse.dialects.dialect import AnyCall, Call, StreamCall
from synapse.dialects.paths import a2a_v0_3_paths
from tests.samples.tasks import TASK_ID, a_message
from tests.unit.dialects.a2a_v0_3.samples import AT, REST_MESSAGE, ROUTES, RPC_MESSAGE, a_question, a_task, rest, rpc

ANSWER = Artifact(
    artifact_id="a-1",
    name="answer",
    description="d",
    parts=(TextPart(text="done"),),
    metadata={"source": "script"},
    extensions=("urn:x",),
)
DIRECT = a_task(state=TaskState.COMPLETED, reason="direct_message", artifacts=(ANSWER,))


def test_every_state_has_its_own_name_in_both_forms() -> None:
    for names in (JSON_RPC.states, PROTO_JSON.states):
        assert set(names) == set(TaskState)
        assert len(set(names.values())) == len(TaskState)
    assert JSON_RPC.states[TaskState.INPUT_REQUIRED] == "input-required"
    assert PROTO_JSON.states[TaskState.CANCELED] == "TASK_STATE_CANCELLED"


def test_json_rpc_encodes_a_task_with_its_kind() -> None:
    assert JSON_RPC.task_object(a_task(artifacts=(ANSWER,), metadata={"k": 1})) == {
        "kind": "task",
        "id": TASK_ID,
        "contextId": "c-1",
        "status": {"state": "working", "timestamp": "2026-01-15T10:30:05.123Z"},
        "artifacts": [
            {
                "artifactId": "a-1",
                "name": "answer",
                "description": "d",
                "parts": [{"kind": "text", "text": "done"}],
                "metadata": {"source": "script"},
                "extensions": ("urn:x",),
            }
        ],
        "history": [{**RPC_MESSAGE, "contextId": "c-1", "taskId": TASK_ID}],
        "metadata": {"k": 1},
    }


def test_rest_encodes_a_task_as_the_protobuf_defines_it() -> None:
    assert PROTO_JSON.task_object(a_task(artifacts=(ANSWER,), metadata={"k": 1})) == {
        "id": TASK_ID,
        "contextId": "c-1",
        "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-15T10:30:05.123Z"},
        "artifacts": [
            {
                "artifactId": "a-1",
                "name": "answer",
                "description": "d",
                "parts": [{"text": "done"}],
                "metadata": {"source": "script"},
                "extensions": ("urn:x",),
            }
        ],
        "history": [{**REST_MESSAGE, "contextId": "c-1", "taskId": TASK_ID}],
        "metadata": {"k": 1},
    }


@pytest.mark.parametrize(
    ("part", "by_rpc", "by_rest"),
    [
        (TextPart(text="t"), {"kind": "text", "text": "t"}, {"text": "t"}),
        (
            FilePart(content=b"hi", name="n", media_type="m"),
            {"kind": "file", "file": {"bytes": "aGk=", "name": "n", "mimeType": "m"}},
            {"file": {"fileWithBytes": "aGk=", "name": "n", "mimeType": "m"}},
        ),
        (
            FilePart(url="u"),
            {"kind": "file", "file": {"uri": "u"}},
            {"file": {"fileWithUri": "u"}},
        ),
        (
            DataPart(data={"a": 1}, metadata={"k": 1}),
            {"kind": "data", "data": {"a": 1}, "metadata": {"k": 1}},
            {"data": {"data": {"a": 1}}, "metadata": {"k": 1}},
        ),
        (
            DataPart(data=[1]),
            {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}},
            {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True}},
        ),
    ],
)
def test_each_kind_of_part_is_encoded(part: Part, by_rpc: dict[str, Any], by_rest: dict[str, Any]) -> None:
    assert JSON_RPC.part_object(part) == by_rpc
    assert PROTO_JSON.part_object(part) == by_rest


@pytest.mark.parametrize("encoder", [JSON_RPC, PROTO_JSON])
def test_a_question_stands_in_the_status_and_not_in_the_history(encoder: TaskEncoder) -> None:
    task = encoder.task_object(a_question())

    assert task["status"]["message"]["messageId"] == "m-2"
    assert [message["messageId"] for message in task["history"]] == ["m-1"]


@pytest.mark.parametrize("encoder", [JSON_RPC, PROTO_JSON])
def test_the_status_message_has_the_reason_of_the_end(encoder: TaskEncoder) -> None:
    status = encoder.status_object(a_task(state=TaskState.FAILED, note="no tokens left"))

    assert "no tokens left" in json.dumps(status["message"])
    assert status["message"]["taskId"] == TASK_ID


@pytest.mark.parametrize("encoder", [JSON_RPC, PROTO_JSON])
@pytest.mark.parametrize(("length", "count"), [(None, 3), (0, 3), (2, 2)])
def test_the_history_is_cut_and_zero_means_all(encoder: TaskEncoder, length: int | None, count: int) -> None:
    history = tuple(a_message(message_id=name) for name in ("one", "two", "three"))

    assert len(encoder.task_object(a_task(history=history), length)["history"]) == count


def test_an_answer_with_a_plain_message_is_encoded_without_a_task() -> None:
    by_rpc = json.loads(JSON_RPC.encode_sent(DIRECT))
    by_rest = json.loads(PROTO_JSON.encode_sent(DIRECT))

    assert (by_rpc["kind"], by_rpc["parts"]) == ("message", [{"kind": "text", "text": "done"}])
    assert by_rest["message"]["content"] == [{"text": "done"}]
    assert "taskId" not in by_rpc
    assert "taskId" not in by_rest["message"]
    assert json.loads(JSON_RPC.encode_update(Update(1, None, DIRECT)) or b"") == by_rpc


def state_changed(task: Task) -> Update:
    return Update(7, StateChanged(task_id=task.id, at=AT, state=task.state), task)


@pytest.mark.parametrize(
    ("task", "ends_when_asked", "final"),
    [
        (a_task(), True, False),
        (a_question(), False, False),
        (a_question(), True, True),
        (a_task(state=TaskState.COMPLETED), False, True),
    ],
)
def test_the_last_status_of_a_stream_is_final(task: Task, ends_when_asked: bool, final: bool) -> None:
    by_rpc = JSON_RPC.encode_update(state_changed(task), ends_when_asked=ends_when_asked)
    by_rest = PROTO_JSON.encode_update(state_changed(task), ends_when_asked=ends_when_asked)

    assert json.loads(by_rpc or b"")["final"] is final
    assert json.loads(by_rest or b"")["statusUpdate"].get("final", False) is final


def test_an_artifact_is_an_update_with_its_kind() -> None:
    task = a_task()
    event = ArtifactAdded(task_id=task.id, at=AT, artifact=ANSWER, append=True, last_chunk=False)

    by_rpc = json.loads(JSON_RPC.encode_update(Update(7, event, task)) or b"")
    by_rest = json.loads(PROTO_JSON.encode_update(Update(7, event, task)) or b"")["artifactUpdate"]

    assert (by_rpc["kind"], by_rpc["append"], by_rpc["lastChunk"]) == ("artifact-update", True, False)
    assert (by_rest["append"], "lastChunk" in by_rest) == (True, False)
    assert by_rpc["artifact"]["artifactId"] == by_rest["artifact"]["artifactId"] == "a-1"


def test_updates_that_a2a_cannot_express_are_not_sent() -> None:
    task = a_task()
    typed: TaskEvent = ReceiptChanged(task_id=task.id, at=AT, step=ReceiptStep.TYPED, source="journal")

    assert JSON_RPC.encode_update(Update(7, typed, task)) is None
    assert PROTO_JSON.encode_update(Update(7, typed, task)) is None
    call = rpc("tasks/resubscribe", {"id": "t"})
    assert call.encode(Update(7, typed, task)) is None


@pytest.mark.parametrize(
    ("call", "final"),
    [
        (partial(rpc, "message/stream", {"message": RPC_MESSAGE}), True),
        (partial(rpc, "tasks/resubscribe", {"id": "t"}), False),
    ],
)
def test_a_question_ends_the_stream_of_a_message_but_not_of_a_subscription(call: Any, final: bool) -> None:
    asked = call()
    assert isinstance(asked, StreamCall)
    event = asked.encode(state_changed(a_question()))

    assert event is not None
    assert (event.id, event.name, json.loads(event.data)["final"]) == ("7", "", final)


def test_answers_have_the_requested_length_of_history() -> None:
    task = a_task(history=(a_message(), a_message(message_id="m-2")))

    def count(call: AnyCall) -> int:
        assert isinstance(call, Call)
        told = json.loads(call.encode(task))
        return len(told.get("task", told)["history"])

    one = {"historyLength": 1}
    assert count(rpc("message/send", {"message": RPC_MESSAGE})) == 2
    assert count(rpc("message/send", {"message": RPC_MESSAGE, "configuration": one})) == 1
    assert count(rest("POST", "/v1/message:send", {"message": REST_MESSAGE})) == 2
    assert count(rest("POST", "/v1/message:send", {"message": REST_MESSAGE, "configuration": one})) == 1
    assert count(rpc("tasks/get", {"id": "t", **one})) == 1
    assert count(rest("GET", "/v1/tasks/{id}", query="historyLength=1", id="t")) == 1
    assert count(rpc("tasks/cancel", {"id": "t"})) == 2


def test_every_operation_of_the_paths_has_its_routes() -> None:
    assert set(ROUTES) == set(a2a_v0_3_paths())


def test_the_card_has_every_required_field() -> None:
    facts = CardFacts(
        name="n", description="d", url="http://localhost:1", version="1", input_modes=("a",), output_modes=("b",)
    )
    card = agent_card(facts)

    assert (card["protocolVersion"], card["preferredTransport"], card["url"]) == ("0.3.0", "JSONRPC", facts.url)
    assert {one["transport"] for one in card["additionalInterfaces"]} == {"JSONRPC", "HTTP+JSON"}
    assert card["skills"][0].keys() >= {"id", "name", "description", "tags"}
    assert card["capabilities"]["streaming"] is True
