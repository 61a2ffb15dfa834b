"""The official SDK's client, unmodified, configures webhooks, and its types read the notifications."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from a2a.compat.v0_3.types import Task as FormerTask
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf.json_format import ParseDict

from synapse.core.agent import AgentEntry
from tests.conformance.a2a_push_rows import Webhook, state_in
from tests.conformance.real_hosts import scripted_host
from tests.conformance.sdk_client import ended, everything, message
from tests.conformance.test_a2a_clients import client_of

pytestmark = pytest.mark.integration

WAYS = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")]
"""The SDK has no list and no delete for 0.3 in REST."""
NO_WEBHOOK = "http://127.0.0.1:9/hook"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentEntry]:
    with scripted_host(tmp_path_factory.mktemp("p")) as entry:
        yield entry


@pytest.mark.parametrize(("binding", "version"), WAYS)
async def test_configurations_are_created_read_listed_and_deleted(
    script: AgentEntry, binding: str, version: str
) -> None:
    async with client_of(script, binding, version=version) as client:
        done = await ended(client, message("hi"))
        proof = a2a.AuthenticationInfo(scheme="bearer", credentials="secret")
        wanted = a2a.TaskPushNotificationConfig(
            task_id=done.id, id="mine", url=NO_WEBHOOK, token="tok", authentication=proof
        )
        one = a2a.GetTaskPushNotificationConfigRequest(task_id=done.id, id="mine")
        every = a2a.ListTaskPushNotificationConfigsRequest(task_id=done.id)
        gone = a2a.DeleteTaskPushNotificationConfigRequest(task_id=done.id, id="mine")

        assert await client.create_task_push_notification_config(wanted) == wanted
        assert await client.get_task_push_notification_config(one) == wanted
        assert list((await client.list_task_push_notification_configs(every)).configs) == [wanted]
        for _ in range(2):
            await client.delete_task_push_notification_config(gone)
        assert not (await client.list_task_push_notification_configs(every)).configs
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(one)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_0_3_sets_and_gets_in_every_binding_that_its_client_has(script: AgentEntry, binding: str) -> None:
    async with client_of(script, binding, version="0.3") as client:
        done = await ended(client, message("hi"))
        wanted = a2a.TaskPushNotificationConfig(task_id=done.id, id="mine", url=NO_WEBHOOK)
        one = a2a.GetTaskPushNotificationConfigRequest(task_id=done.id, id="mine")

        assert await client.create_task_push_notification_config(wanted) == wanted
        assert await client.get_task_push_notification_config(one) == wanted


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_refused_address_arrives_as_the_sdks_own_error(script: AgentEntry, binding: str) -> None:
    async with client_of(script, binding) as client:
        done = await ended(client, message("hi"))
        link_local = a2a.TaskPushNotificationConfig(task_id=done.id, url="http://169.254.169.254/latest")
        with pytest.raises(InvalidParamsError):
            await client.create_task_push_notification_config(link_local)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_the_sdks_types_read_notifications(script: AgentEntry, binding: str, version: str) -> None:
    with Webhook() as hook:
        async with client_of(script, binding, version=version) as client:
            request = message("go", "tck-artifact-text")
            request.configuration.task_push_notification_config.url = hook.url
            await everything(client.send_message(request))
        bodies = [hook.next()[1]]
        while state_in(bodies[-1]) != "completed":
            bodies.append(hook.next()[1])

    if version == "1.0":
        kinds = [ParseDict(body, a2a.StreamResponse()).WhichOneof("payload") for body in bodies]
        assert kinds == ["task", "status_update", "artifact_update", "status_update"]
    else:
        assert FormerTask.model_validate(bodies[-1]).artifacts
