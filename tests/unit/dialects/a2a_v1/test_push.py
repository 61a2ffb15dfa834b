"""Push notifications of A2A 1.0: decoding of configurations, their answers, and the body of a notification."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import ParseDict

from synapse.core.errors import InvalidField
from synapse.core.events import ArtifactAdded, MetadataChanged, StateChanged, TaskOpened, Update
from synapse.core.message import Artifact, TextPart
from synapse.core.push import PushConfig
from synapse.core.requests import (
    DeletePushConfig,
    GetPushConfig,
    ListPushConfigs,
    SendAndFollow,
    SendAndWait,
    SetPushConfig,
)
from synapse.core.task import TaskState
from synapse.dialects.a2a_v1.push import encode_notification
from synapse.dialects.dialect import AnyCall, Call
from tests.samples.tasks import TASK_ID, UPDATED, a_message, a_task
from tests.unit.dialects.a2a_v1.samples import MESSAGE, rest, rpc

CONFIGS = "/tasks/{id}/pushNotificationConfigs"
ONE = CONFIGS + "/{config}"
WIRE: dict[str, Any] = {
    "id": "c-1",
    "url": "https://example.com/hook",
    "token": "tok",
    "authentication": {"scheme": "Bearer", "credentials": "secret"},
}
CONFIG = PushConfig(
    id="c-1", url="https://example.com/hook", token="tok", scheme="Bearer", credentials="secret", dialect="a2a_v1"
)


def answer(asked: AnyCall, fact: object) -> Any:
    """Returns the encoded result of a call."""
    assert isinstance(asked, Call)
    return json.loads(asked.encode(fact))


@pytest.mark.parametrize(
    ("by_rpc", "by_rest", "request_"),
    [
        (
            ("CreateTaskPushNotificationConfig", {**WIRE, "taskId": "t"}),
            ("POST", CONFIGS, WIRE),
            SetPushConfig(task_id="t", config=CONFIG),
        ),
        (
            ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c-1"}),
            ("GET", ONE),
            GetPushConfig(task_id="t", config_id="c-1"),
        ),
        (
            ("ListTaskPushNotificationConfigs", {"taskId": "t"}),
            ("GET", CONFIGS),
            ListPushConfigs(task_id="t"),
        ),
        (
            ("DeleteTaskPushNotificationConfig", {"task_id": "t", "id": "c-1"}),
            ("DELETE", ONE),
            DeletePushConfig(task_id="t", config_id="c-1"),
        ),
    ],
)
def test_both_bindings_decode_to_equal_requests(
    by_rpc: tuple[str, Any], by_rest: tuple[Any, ...], request_: object
) -> None:
    assert rpc(*by_rpc).request == request_
    assert rest(*by_rest, id="t", config="c-1").request == request_
    assert rest(by_rest[0], "/v1" + by_rest[1], *by_rest[2:], id="t", config="c-1").request == request_


def test_a_configuration_comes_with_a_message() -> None:
    body = {"message": MESSAGE, "configuration": {"taskPushNotificationConfig": WIRE}}

    for asked in (rpc("SendMessage", body).request, rest("POST", "/message:send", body).request):
        assert isinstance(asked, SendAndWait)
        assert asked.send.push == CONFIG
    streamed = rpc("SendStreamingMessage", body).request
    assert isinstance(streamed, SendAndFollow)
    assert streamed.send.push == CONFIG


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": None}, "url"),
        ({"url": ""}, "url"),
        ({"url": 7}, "url"),
        ({"authentication": {}}, "authentication.scheme"),
        ({"token": []}, "token"),
        ({"taskId": ""}, "taskId"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        rpc("CreateTaskPushNotificationConfig", {**WIRE, "taskId": "t", **change})

    assert refused.value.field == field


def test_the_task_of_the_path_and_of_the_body_must_agree() -> None:
    assert rest("POST", CONFIGS, {**WIRE, "taskId": "t"}, id="t").request == SetPushConfig(task_id="t", config=CONFIG)
    with pytest.raises(InvalidField):
        rest("POST", CONFIGS, {**WIRE, "taskId": "other"}, id="t")


def test_a_configuration_is_encoded_as_the_oracle_expects() -> None:
    told = answer(rest("GET", ONE, id="t", config="c-1"), CONFIG)

    assert told == {**WIRE, "taskId": "t"}
    proto = ParseDict(told, a2a_pb2.TaskPushNotificationConfig())
    assert (proto.task_id, proto.authentication.credentials) == ("t", "secret")


def test_absent_fields_of_a_configuration_are_left_out() -> None:
    bare = PushConfig(id="c", url="https://example.com", dialect="a2a_v1")

    assert answer(rpc("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c"}), bare) == {
        "id": "c",
        "taskId": "t",
        "url": "https://example.com",
    }


def test_the_list_has_pages_and_its_fields_even_when_empty() -> None:
    configs = [PushConfig(id=f"c-{number}", url="https://example.com") for number in range(3)]

    def page(query: str) -> tuple[list[str], str]:
        told = answer(rest("GET", CONFIGS, None, query, id="t"), configs)
        ParseDict(told, a2a_pb2.ListTaskPushNotificationConfigsResponse())
        return [one["id"] for one in told["configs"]], told["nextPageToken"]

    assert page("") == (["c-0", "c-1", "c-2"], "")
    assert page("pageSize=2") == (["c-0", "c-1"], "2")
    assert page("pageSize=2&pageToken=2") == (["c-2"], "")
    assert answer(rpc("ListTaskPushNotificationConfigs", {"taskId": "t", "pageSize": "5"}), ()) == {
        "configs": [],
        "nextPageToken": "",
    }
    with pytest.raises(InvalidField):
        rest("GET", CONFIGS, None, "pageToken=mine", id="t")


def test_a_deletion_is_answered_with_nothing() -> None:
    assert answer(rest("DELETE", ONE, id="t", config="c"), None) == {}


def test_a_notification_equals_the_result_of_a_stream() -> None:
    done = a_task(state=TaskState.COMPLETED)
    artifact = Artifact(artifact_id="a", parts=(TextPart(text="42"),))
    opened = TaskOpened(
        task_id=done.id,
        at=UPDATED,
        agent_id="x",
        inbox="x",
        context_id="c-1",
        scope="s",
        dialect="a2a_v1",
        message=a_message(),
    )
    changed = StateChanged(task_id=done.id, at=UPDATED, state=TaskState.COMPLETED)
    handed = ArtifactAdded(task_id=done.id, at=UPDATED, artifact=artifact)
    told = [json.loads(encode_notification(Update(1, event, done)) or b"") for event in (opened, changed, handed)]

    assert [list(one) for one in told] == [["task"], ["statusUpdate"], ["artifactUpdate"]]
    assert told[1]["statusUpdate"]["taskId"] == TASK_ID
    for one in told:
        ParseDict(one, a2a_pb2.StreamResponse())
    silent = MetadataChanged(task_id=done.id, at=UPDATED, metadata={"x": 1})
    assert encode_notification(Update(1, silent, done)) is None
