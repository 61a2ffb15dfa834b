"""The official SDK's clients over gRPC, unmodified, hold conversations through a gateway: of A2A 1.0 and of 0.3."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio  # type: ignore[import-untyped]  # it has no types of its own
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.compat.v0_3 import a2a_v0_3_pb2 as v0_3
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as v0_3_grpc
from a2a.types import a2a_pb2 as a2a
from a2a.types import a2a_pb2_grpc
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.conformance.real_hosts import scripted_host
from tests.conformance.sdk_client import ended, everything, message

pytestmark = pytest.mark.integration

PATIENCE = 30.0
CONFIG = f"""
default_agent = "tck"
allow_private_webhooks = true
{IN_PROCESS}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Runs one agent in a gateway, and one in a host behind it."""
    home = tmp_path_factory.mktemp("g")
    with scripted_host(home), gateway(home, CONFIG, "--no-auth") as running:
        yield running


@pytest.fixture(params=["tck", "conf"], ids=["in the gateway", "behind the gateway"])
def agent(request: pytest.FixtureRequest, running: RunningGateway) -> str:
    return f"{running.url}/agents/{request.param}"


@asynccontextmanager
async def client_of(agent: str, *, streaming: bool = True) -> AsyncGenerator[Client]:
    """Yields a client for the agent's card, which has the port of gRPC and the tenant."""
    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        card = await A2ACardResolver(http, agent).get_agent_card()
        factory = ClientFactory(
            ClientConfig(
                streaming=streaming,
                supported_protocol_bindings=["GRPC"],
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
            )
        )
        client = factory.create(card)
        try:
            yield client
        finally:
            await client.close()


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "plain"])
async def test_a_conversation_goes_through_its_question_to_the_answer(agent: str, streaming: bool) -> None:
    async with asyncio.timeout(PATIENCE):
        async with client_of(agent, streaming=streaming) as client:
            asked = await ended(client, message("first", "tck-multi-turn"))
            assert asked.status.state == a2a.TASK_STATE_INPUT_REQUIRED
            assert asked.status.message.parts[0].text == "Go on."

            done = await ended(client, message("second", task_id=asked.id))

            assert (done.id, done.context_id) == (asked.id, asked.context_id)
            assert done.status.state == a2a.TASK_STATE_COMPLETED
            assert [one.parts[0].text for one in done.history] == ["first", "Go on.", "second"]
            assert done.artifacts[0].parts[0].text == "done: second"


async def test_a_stream_is_the_task_and_then_its_changes(agent: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with client_of(agent) as client:
            events = await everything(client.send_message(message("go", "tck-stream-artifact-chunked")))
            kinds = [event.WhichOneof("payload") for event in events]
            assert kinds[0] == "task"
            assert kinds.count("artifact_update") == 2
            assert events[-1].status_update.status.state == a2a.TASK_STATE_COMPLETED

            (only,) = await everything(client.send_message(message("hi", "tck-message-response")))
            assert only.message.parts[0].text == "Direct message response"


async def test_artifacts_of_every_kind_arrive(agent: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with client_of(agent) as client:
            for cue, kind in (("text", "text"), ("file-x", "raw"), ("file-url", "url"), ("data", "data")):
                task = await ended(client, message("go", f"tck-artifact-{cue}"))
                assert task.artifacts[0].parts[0].WhichOneof("content") == kind


async def test_a_task_is_followed_by_several_and_canceled(agent: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with client_of(agent) as client:
            stream = client.send_message(message("wait", "tck-cancel"))
            task_id = (await anext(stream)).task.id
            other = client.subscribe(a2a.SubscribeToTaskRequest(id=task_id))
            assert (await anext(other)).task.id == task_id

            canceled = await client.cancel_task(a2a.CancelTaskRequest(id=task_id))

            assert canceled.status.state == a2a.TASK_STATE_CANCELED
            for rest in (await everything(stream), await everything(other)):
                assert rest[-1].status_update.status.state == a2a.TASK_STATE_CANCELED


async def test_refusals_arrive_as_the_sdks_own_errors(agent: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with client_of(agent) as client:
            done = await ended(client, message("hi"))
            with pytest.raises(TaskNotFoundError):
                await client.get_task(a2a.GetTaskRequest(id="no-such-task"))
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(a2a.CancelTaskRequest(id=done.id))
            with pytest.raises(UnsupportedOperationError):
                await everything(client.send_message(message("more", task_id=done.id)))
            with pytest.raises(UnsupportedOperationError):
                await everything(client.subscribe(a2a.SubscribeToTaskRequest(id=done.id)))
            with pytest.raises(InvalidParamsError):
                await client.list_tasks(a2a.ListTasksRequest(page_size=1000))


async def test_pages_of_tasks_follow_each_other(agent: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with client_of(agent) as client:
            context = str(uuid.uuid4())
            made = [(await ended(client, message("hi", context_id=context))).id for _ in range(3)]
            first = await client.list_tasks(
                a2a.ListTasksRequest(context_id=context, page_size=2, include_artifacts=True)
            )
            rest = await client.list_tasks(
                a2a.ListTasksRequest(context_id=context, page_size=2, page_token=first.next_page_token)
            )
            assert [task.id for task in (*first.tasks, *rest.tasks)] == made[::-1]
            assert (first.total_size, rest.next_page_token) == (3, "")
            assert len(first.tasks[0].artifacts) == 1


async def test_webhooks_are_set_read_listed_and_deleted(agent: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with client_of(agent) as client:
            stream = client.send_message(message("first", "tck-multi-turn"))
            task_id = (await everything(stream))[0].task.id

            made = await client.create_task_push_notification_config(
                a2a.TaskPushNotificationConfig(task_id=task_id, url="http://127.0.0.1:9/hook", token="t-1")
            )
            one = await client.get_task_push_notification_config(
                a2a.GetTaskPushNotificationConfigRequest(task_id=task_id, id=made.id)
            )
            listed = await client.list_task_push_notification_configs(
                a2a.ListTaskPushNotificationConfigsRequest(task_id=task_id)
            )
            await client.delete_task_push_notification_config(
                a2a.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=made.id)
            )
            none = await client.list_task_push_notification_configs(
                a2a.ListTaskPushNotificationConfigsRequest(task_id=task_id)
            )

            assert (one.url, one.token, one.task_id) == ("http://127.0.0.1:9/hook", "t-1", task_id)
            assert [config.id for config in listed.configs] == [made.id]
            assert not none.configs


async def test_the_extended_card_is_the_agents(agent: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with client_of(agent) as client:
            card = await client.get_extended_agent_card(a2a.GetExtendedAgentCardRequest())
            grpc_interface = card.supported_interfaces[-1]
            assert (grpc_interface.protocol_binding, grpc_interface.tenant) == ("GRPC", agent.rpartition("/")[2])


@asynccontextmanager
async def former_stub(running: RunningGateway) -> AsyncGenerator[Any]:
    """Returns the stub of 0.3, which has no tenants."""
    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        card = await A2ACardResolver(http, f"{running.url}/agents/tck").get_agent_card()
    async with grpc.aio.insecure_channel(card.supported_interfaces[-1].url) as channel:
        new_stub: Any = v0_3_grpc.A2AServiceStub
        yield new_stub(channel)


def former_message(text: str, cue: str = "plain", **more: Any) -> v0_3.SendMessageRequest:
    spoken = v0_3.Message(
        message_id=f"{cue}-{uuid.uuid4()}", role=v0_3.ROLE_USER, content=[v0_3.Part(text=text)], **more
    )
    return v0_3.SendMessageRequest(request=spoken, configuration=v0_3.SendMessageConfiguration(blocking=True))


@pytest.mark.parametrize("metadata", [(), (("x-agent-id", "conf"),)], ids=["the default agent", "the agent it names"])
async def test_a_client_of_0_3_holds_a_conversation(
    running: RunningGateway, metadata: tuple[tuple[str, str], ...]
) -> None:
    async with asyncio.timeout(PATIENCE):
        async with former_stub(running) as stub:
            asked = (await stub.SendMessage(former_message("first", "tck-multi-turn"), metadata=metadata)).task
            assert asked.status.state == v0_3.TASK_STATE_INPUT_REQUIRED
            second = former_message("second", task_id=asked.id)
            events = [event async for event in stub.SendStreamingMessage(second, metadata=metadata)]
            assert events[0].task.id == asked.id
            assert events[-1].status_update.final
            name = f"tasks/{asked.id}"
            done = await stub.GetTask(v0_3.GetTaskRequest(name=name, history_length=1), metadata=metadata)
            assert done.status.state == v0_3.TASK_STATE_COMPLETED
            assert len(done.history) == 1
            card = await stub.GetAgentCard(v0_3.GetAgentCardRequest(), metadata=metadata)
            assert card.protocol_version.startswith("0.3")


async def test_a_client_of_0_3_follows_cancels_and_gets_notifications(running: RunningGateway) -> None:
    async with asyncio.timeout(PATIENCE):
        async with former_stub(running) as stub:
            stream = stub.SendStreamingMessage(former_message("wait", "tck-cancel"))
            task_id = (await anext(aiter(stream))).task.id
            name = f"tasks/{task_id}"
            other = stub.TaskSubscription(v0_3.TaskSubscriptionRequest(name=name))
            assert (await anext(aiter(other))).task.id == task_id
            hook = v0_3.PushNotificationConfig(url="http://127.0.0.1:9/hook")
            made = await stub.CreateTaskPushNotificationConfig(
                v0_3.CreateTaskPushNotificationConfigRequest(
                    parent=name, config_id="mine", config=v0_3.TaskPushNotificationConfig(push_notification_config=hook)
                )
            )
            assert made.name == f"{name}/pushNotificationConfigs/mine"
            one = await stub.GetTaskPushNotificationConfig(v0_3.GetTaskPushNotificationConfigRequest(name=made.name))
            assert one.push_notification_config.url == hook.url
            listed = await stub.ListTaskPushNotificationConfig(v0_3.ListTaskPushNotificationConfigRequest(parent=name))
            assert [config.name for config in listed.configs] == [made.name]
            await stub.DeleteTaskPushNotificationConfig(v0_3.DeleteTaskPushNotificationConfigRequest(name=made.name))

            canceled = await stub.CancelTask(v0_3.CancelTaskRequest(name=name))

            assert canceled.status.state == v0_3.TASK_STATE_CANCELLED
            assert [event async for event in other][-1].status_update.final
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.CancelTask(v0_3.CancelTaskRequest(name=name))
            assert str(refused.value.details()).startswith("TaskNotCancelableError: ")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """Yields the gRPC address of a gateway that requires keys, and the keys of two callers."""
    home = tmp_path_factory.mktemp("k")
    ours, theirs = new_key(home, "us"), new_key(home, "them", "--agents", "somebody-else")
    with gateway(home, IN_PROCESS) as running:
        card = running.ask("GET", "/agents/tck/.well-known/agent-card.json", key=ours).json
        yield card["supportedInterfaces"][-1]["url"], ours, theirs


async def test_a_key_admits_its_caller_to_its_agents_only(locked: tuple[str, str, str]) -> None:
    address, ours, theirs = locked

    async def status(key: str) -> Any:
        metadata = (("authorization", f"Bearer {key}"), ("a2a-version", "1.0")) if key else ()
        async with grpc.aio.insecure_channel(address) as channel:
            new_stub: Any = a2a_pb2_grpc.A2AServiceStub
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await new_stub(channel).GetTask(a2a.GetTaskRequest(tenant="tck", id="none"), metadata=metadata)
        return refused.value.code()

    async def conversation() -> None:
        assert await status("") == grpc.StatusCode.UNAUTHENTICATED
        assert await status("wrong") == grpc.StatusCode.UNAUTHENTICATED
        assert await status(ours) == grpc.StatusCode.NOT_FOUND
        assert await status(theirs) == grpc.StatusCode.NOT_FOUND
        async with grpc.aio.insecure_channel(address) as channel:
            new_stub: Any = a2a_pb2_grpc.A2AServiceStub
            metadata = (("authorization", f"Bearer {ours}"),)
            request = message("hi")
            request.tenant = "tck"
            done = await new_stub(channel).SendMessage(request, metadata=metadata)
            assert done.task.artifacts[0].parts[0].text == "hi"

    await asyncio.wait_for(conversation(), PATIENCE)
