"""The official SDK's client, unmodified, holds conversations with a script and with a program on a terminal: with their
own hosts, and through a gateway.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from synapse.core.agent import AgentEntry
from tests.conformance.real_gateway import IN_PROCESS, gateway
from tests.conformance.real_hosts import dummy_host, scripted_host
from tests.conformance.sdk_client import ended, everything, message

pytestmark = pytest.mark.integration

PATIENCE = 30.0
BINDINGS = ["JSONRPC", "HTTP+JSON"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AgentEntry]]:
    """Runs each agent at its own host and behind a gateway, and one script also in the gateway itself."""
    home = tmp_path_factory.mktemp("c")
    with scripted_host(home) as script, dummy_host(home) as dummy, gateway(home, IN_PROCESS, "--no-auth") as running:

        def behind(name: str) -> AgentEntry:
            return AgentEntry(name, "any", endpoint=f"{running.url}/agents/{name}", socket=running.entry.socket)

        yield {
            "script at its host": script,
            "script behind the gateway": behind("conf"),
            "script in the gateway": behind("tck"),
            "dummy at its host": dummy,
            "dummy behind the gateway": behind("ada"),
        }


@pytest.fixture(params=["at its host", "behind the gateway", "in the gateway"])
def script(request: pytest.FixtureRequest, hosts: dict[str, AgentEntry]) -> AgentEntry:
    return hosts[f"script {request.param}"]


@pytest.fixture(params=["at its host", "behind the gateway"])
def dummy(request: pytest.FixtureRequest, hosts: dict[str, AgentEntry]) -> AgentEntry:
    return hosts[f"dummy {request.param}"]


@asynccontextmanager
async def client_of(
    entry: AgentEntry,
    binding: str,
    *,
    streaming: bool = True,
    version: str = "1.0",
    uds: bool = False,
    tenant: str = "",
) -> AsyncGenerator[Client]:
    """Yields a client for the agent's card; with another version than 1.0 it finds only those interfaces.

    With a tenant, the card names it, and so the client names it in each request.
    """
    transport = httpx.AsyncHTTPTransport(uds=entry.socket) if uds else None
    async with httpx.AsyncClient(timeout=PATIENCE, transport=transport) as http:
        factory = ClientFactory(
            ClientConfig(streaming=streaming, supported_protocol_bindings=[binding], httpx_client=http)
        )
        card = await A2ACardResolver(http, entry.endpoint).get_agent_card()
        if version != "1.0":
            kept = [interface for interface in card.supported_interfaces if interface.protocol_version == version]
            del card.supported_interfaces[:]
            card.supported_interfaces.extend(kept)
        for interface in card.supported_interfaces if tenant else ():
            interface.tenant = tenant
        async with asyncio.timeout(PATIENCE):
            yield factory.create(card)


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "plain"])
async def test_a_conversation_goes_through_its_question_to_the_answer(
    script: AgentEntry, binding: str, version: str, streaming: bool
) -> None:
    async with client_of(script, binding, streaming=streaming, version=version) as client:
        asked = await ended(client, message("first", "tck-multi-turn"))
        assert asked.status.state == a2a.TASK_STATE_INPUT_REQUIRED
        assert asked.status.message.parts[0].text == "Go on."

        done = await ended(client, message("second", task_id=asked.id))

        assert (done.id, done.context_id) == (asked.id, asked.context_id)
        assert done.status.state == a2a.TASK_STATE_COMPLETED
        assert [one.parts[0].text for one in done.history] == ["first", "Go on.", "second"]
        assert done.artifacts[0].parts[0].text == "done: second"


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_stream_is_the_task_and_then_its_changes(script: AgentEntry, binding: str, version: str) -> None:
    async with client_of(script, binding, version=version) as client:
        events = await everything(client.send_message(message("go", "tck-stream-artifact-chunked")))
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds == [
            "task",
            "status_update",
            "status_update",
            "artifact_update",
            "artifact_update",
            "status_update",
        ]
        assert events[4].artifact_update.append
        assert events[4].artifact_update.last_chunk
        assert events[-1].status_update.status.state == a2a.TASK_STATE_COMPLETED

        (only,) = await everything(client.send_message(message("hi", "tck-message-response")))
        assert only.message.parts[0].text == "Direct message response"


@pytest.mark.parametrize("binding", BINDINGS)
async def test_artifacts_of_every_kind_arrive(script: AgentEntry, binding: str) -> None:
    async with client_of(script, binding) as client:
        for cue, kind in (("text", "text"), ("file-x", "raw"), ("file-url", "url"), ("data", "data")):
            task = await ended(client, message("go", f"tck-artifact-{cue}"))
            assert task.artifacts[0].parts[0].WhichOneof("content") == kind


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_task_is_followed_by_several_and_canceled(script: AgentEntry, binding: str) -> None:
    async with client_of(script, binding) as client:
        stream = client.send_message(message("wait", "tck-cancel"))
        task_id = (await anext(stream)).task.id
        other = client.subscribe(a2a.SubscribeToTaskRequest(id=task_id))
        assert (await anext(other)).task.id == task_id

        canceled = await client.cancel_task(a2a.CancelTaskRequest(id=task_id))

        assert canceled.status.state == a2a.TASK_STATE_CANCELED
        for rest in (await everything(stream), await everything(other)):
            assert rest[-1].status_update.status.state == a2a.TASK_STATE_CANCELED


@pytest.mark.parametrize("binding", BINDINGS)
async def test_refusals_arrive_as_the_sdks_own_errors(script: AgentEntry, binding: str) -> None:
    async with client_of(script, binding) as client:
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


@pytest.mark.parametrize("binding", BINDINGS)
async def test_pages_of_tasks_follow_each_other(script: AgentEntry, binding: str) -> None:
    async with client_of(script, binding) as client:
        context = str(uuid.uuid4())
        made = [(await ended(client, message("hi", context_id=context))).id for _ in range(3)]
        first = await client.list_tasks(a2a.ListTasksRequest(context_id=context, page_size=2, include_artifacts=True))
        rest = await client.list_tasks(
            a2a.ListTasksRequest(context_id=context, page_size=2, page_token=first.next_page_token)
        )
        assert [task.id for task in (*first.tasks, *rest.tasks)] == made[::-1]
        assert (first.total_size, rest.next_page_token) == (3, "")
        assert len(first.tasks[0].artifacts) == 1


async def test_the_unix_socket_takes_the_same_client(script: AgentEntry) -> None:
    async with client_of(script, "JSONRPC", uds=True) as client:
        done = await ended(client, message("over the socket"))
        assert done.artifacts[0].parts[0].text == "over the socket"


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_program_on_a_terminal_answers(dummy: AgentEntry, binding: str, version: str) -> None:
    async with client_of(dummy, binding, version=version) as client:
        done = await ended(client, message("hello there"))
        assert done.status.state == a2a.TASK_STATE_COMPLETED
        assert "echo: hello there" in done.artifacts[-1].parts[0].text


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_program_on_a_terminal_is_interrupted_by_a_cancel(dummy: AgentEntry, binding: str) -> None:
    async with client_of(dummy, binding) as client:
        stream = client.send_message(message("wait 60"))
        task_id = (await anext(stream)).task.id
        await anext(stream)
        await client.cancel_task(a2a.CancelTaskRequest(id=task_id))
        assert (await everything(stream))[-1].status_update.status.state == a2a.TASK_STATE_CANCELED

        again = await ended(client, message("still there?"))
        assert "echo: still there?" in again.artifacts[-1].parts[0].text


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_client_may_name_a_tenant_in_each_request(script: AgentEntry, binding: str) -> None:
    """1.0 §11.3: over REST the tenant precedes each path; the address names the agent already."""
    async with client_of(script, binding, tenant="acme") as client:
        asked = await ended(client, message("first", "tck-multi-turn"))
        assert asked.status.state == a2a.TASK_STATE_INPUT_REQUIRED
        set_push = a2a.TaskPushNotificationConfig(task_id=asked.id, url="http://127.0.0.1:9/hook")
        made = await client.create_task_push_notification_config(set_push)
        named = {"task_id": asked.id, "id": made.id}
        get_push = a2a.GetTaskPushNotificationConfigRequest(**named)
        assert (await client.get_task_push_notification_config(get_push)).url == made.url
        of_task = a2a.ListTaskPushNotificationConfigsRequest(task_id=asked.id)
        assert len((await client.list_task_push_notification_configs(of_task)).configs) == 1
        delete_push = a2a.DeleteTaskPushNotificationConfigRequest(**named)
        await client.delete_task_push_notification_config(delete_push)
        assert asked.id in [task.id for task in (await client.list_tasks(a2a.ListTasksRequest())).tasks]
        stream = client.subscribe(a2a.SubscribeToTaskRequest(id=asked.id))
        assert (await anext(aiter(stream))).task.id == asked.id
        canceled = await client.cancel_task(a2a.CancelTaskRequest(id=asked.id))
        assert canceled.status.state == a2a.TASK_STATE_CANCELED


def test_only_1_0_has_tenants(script: AgentEntry) -> None:
    base = script.endpoint + ("/v1" if "/agents/" in script.endpoint else "")

    def asked(path: str, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.get(f"{base}/acme{path}", headers=named, timeout=PATIENCE)

    assert set(asked("/tasks", A2A_Version="1.0").json()) == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    assert asked("/tasks").json().keys() == asked("/tasks", A2A_Version="1.0").json().keys()
    former = asked("/tasks", A2A_Version="0.3")
    assert (former.status_code, former.json()["type"]) == (404, "MethodNotFoundError")
    unknown = asked("/tasks", A2A_Version="9.9").json()
    assert unknown["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    missing = asked("/tasks/no-such-task", A2A_Version="1.0").json()
    assert missing["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"
    assert asked("/nowhere", A2A_Version="1.0").status_code == 404


async def test_the_extended_card_is_read_with_a_tenant(hosts: dict[str, AgentEntry]) -> None:
    async with client_of(hosts["script behind the gateway"], "HTTP+JSON", tenant="acme") as client:
        card = await client.get_extended_agent_card(a2a.GetExtendedAgentCardRequest())
        assert card.supported_interfaces[0].url.endswith("/agents/conf/v1")
