"""Push notifications of A2A 0.3: decoding of configurations, their answers, and the body of a notification."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.compat.v0_3.types import Task as SdkTask
from a2a.compat.v0_3.types import TaskPushNotificationConfig
from google.protobuf.json_format import ParseDict

from synapse.core.errors import InvalidField
from synapse.core.events import MetadataChanged, StateChanged, Update
from synapse.core.push import PushConfig
from synapse.core.requests import DeletePushConfig, GetPushConfig, ListPushConfigs, SendAndWait, SetPushConfig
from synapse.core.task import TaskState
from synapse.dialects.a2a_v0_3.push import encode_notification
from synapse.dialects.dialect import AnyCall, Call
from tests.samples.tasks import UPDATED, a_task
from tests.unit.dialects.a2a_v0_3.samples import REST_MESSAGE, RPC_MESSAGE, rest, rpc

CONFIGS = "/v1/tasks/{id}/pushNotificationConfigs"
ONE = CONFIGS + "/{config}"
WIRE: dict[str, Any] = {
    "id": "c-1",
    "url": "https://example.com/hook",
    "token": "tok",
    "authentication": {"schemes": ["Bearer"], "credentials": "secret"},
}
CONFIG = PushConfig(
    id="c-1", url="https://example.com/hook", token="tok", scheme="Bearer", credentials="secret", dialect="a2a_v0_3"
)
SET = SetPushConfig(task_id="t", config=CONFIG)


def answer(asked: AnyCall, fact: object) -> Any:
    """Returns the encoded result of a call."""
    assert isinstance(asked, Call)
    return json.loads(asked.encode(fact))


def test_a_configuration_is_set_in_both_bindings_and_as_the_sdk_sends_it() -> None:
    named = {"name": "tasks/t/pushNotificationConfigs/c-1", "pushNotificationConfig": WIRE}
    whole = {"parent": "tasks/t", "config_id": "c-1", "config": {"name": "x", "push_notification_config": WIRE}}

    assert rpc("tasks/pushNotificationConfig/set", {"taskId": "t", "pushNotificationConfig": WIRE}).request == SET
    assert rest("POST", CONFIGS, named, id="t").request == SET
    assert rest("POST", CONFIGS, whole, id="t").request == SET
    nameless = {key: value for key, value in WIRE.items() if key != "id"}
    by_id = {"configId": "c-1", "config": {"pushNotificationConfig": nameless}}
    assert rest("POST", CONFIGS, by_id, id="t").request == SET


@pytest.mark.parametrize(
    ("schemes", "chosen"),
    [([], ""), (["Digest"], "Digest"), (["Digest", "basic", "Bearer"], "basic"), (["API-Key"], "API-Key")],
)
def test_of_several_schemes_the_first_that_we_know_is_used(schemes: list[str], chosen: str) -> None:
    wire = {**WIRE, "authentication": {"schemes": schemes, "credentials": "x"}}
    asked = rpc("tasks/pushNotificationConfig/set", {"taskId": "t", "pushNotificationConfig": wire}).request

    assert isinstance(asked, SetPushConfig)
    assert asked.config.scheme == chosen


def test_configurations_are_read_and_deleted() -> None:
    by_id = {"id": "t", "pushNotificationConfigId": "c-1"}

    get = GetPushConfig(task_id="t", config_id="c-1")
    assert rpc("tasks/pushNotificationConfig/get", by_id).request == get
    assert rest("GET", ONE, id="t", config="c-1").request == get
    assert rpc("tasks/pushNotificationConfig/get", {"id": "t"}).request == GetPushConfig(task_id="t")
    assert rpc("tasks/pushNotificationConfig/list", {"id": "t"}).request == ListPushConfigs(task_id="t")
    assert rest("GET", CONFIGS, id="t").request == ListPushConfigs(task_id="t")
    delete = DeletePushConfig(task_id="t", config_id="c-1")
    assert rpc("tasks/pushNotificationConfig/delete", by_id).request == delete
    assert rest("DELETE", ONE, id="t", config="c-1").request == delete
    with pytest.raises(InvalidField):
        rpc("tasks/pushNotificationConfig/delete", {"id": "t"})
    with pytest.raises(InvalidField):
        rest("POST", CONFIGS, {}, id="t")


def test_a_configuration_comes_with_a_message() -> None:
    said = rpc("message/send", {"message": RPC_MESSAGE, "configuration": {"pushNotificationConfig": WIRE}}).request
    assert isinstance(said, SendAndWait)
    assert said.send.push == CONFIG

    body = {"message": REST_MESSAGE, "configuration": {"pushNotification": WIRE, "blocking": True}}
    said = rest("POST", "/v1/message:send", body).request
    assert isinstance(said, SendAndWait)
    assert said.send.push == CONFIG


def test_json_rpc_answers_as_the_schema_has_it() -> None:
    set_ = rpc("tasks/pushNotificationConfig/set", {"taskId": "t", "pushNotificationConfig": WIRE})
    told = answer(set_, CONFIG)

    assert told == {"taskId": "t", "pushNotificationConfig": WIRE}
    assert TaskPushNotificationConfig.model_validate(told).push_notification_config.token == "tok"
    assert answer(rpc("tasks/pushNotificationConfig/list", {"id": "t"}), [CONFIG]) == [told]
    deleted = rpc("tasks/pushNotificationConfig/delete", {"id": "t", "pushNotificationConfigId": "c"})
    assert answer(deleted, None) is None


def test_rest_answers_as_the_protobuf_has_it() -> None:
    told = answer(rest("GET", ONE, id="t", config="c-1"), CONFIG)

    assert told == {"name": "tasks/t/pushNotificationConfigs/c-1", "pushNotificationConfig": WIRE}
    ParseDict(told, a2a_v0_3_pb2.TaskPushNotificationConfig())
    page = answer(rest("GET", CONFIGS, id="t"), [CONFIG])
    assert page == {"configs": [told]}
    ParseDict(page, a2a_v0_3_pb2.ListTaskPushNotificationConfigResponse())
    assert answer(rest("DELETE", ONE, id="t", config="c"), None) == {}
    bare = PushConfig(id="c", url="https://example.com")
    assert answer(rest("GET", ONE, id="t", config="c"), bare)["pushNotificationConfig"] == {
        "id": "c",
        "url": "https://example.com",
    }


def test_a_notification_is_the_whole_task() -> None:
    done = a_task(state=TaskState.COMPLETED)
    changed = StateChanged(task_id=done.id, at=UPDATED, state=TaskState.COMPLETED)

    told = json.loads(encode_notification(Update(1, changed, done)) or b"")

    assert (told["kind"], told["status"]["state"]) == ("task", "completed")
    assert SdkTask.model_validate(told).id == done.id
    silent = MetadataChanged(task_id=done.id, at=UPDATED, metadata={"x": 1})
    assert encode_notification(Update(1, silent, done)) is None
