"""An agent without streams or push notifications says so in its card, and refuses requests that need them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import grpc.aio  # type: ignore[import-untyped]  # the same
import pytest
from a2a.types import a2a_pb2 as a2a
from a2a.types import a2a_pb2_grpc

from tests.conformance.real_gateway import RunningGateway, gateway
from tests.conformance.real_hosts import CONFORMANCE, PATIENCE, entry_of, scripted_host
from tests.conformance.wire_client import Reply, WireClient

pytestmark = pytest.mark.integration

CARD = "/.well-known/agent-card.json"
HOOK = "http://127.0.0.1:9/hook"
SWITCHES = "streaming = false\npush_notifications = false\n"
PLAIN = '[default]\nsteps = [{ ask = "Go on." }]\n'


@dataclass(frozen=True)
class Place:
    """An agent by its address: REST of 1.0 below `base`, and its card below `card`."""

    port: int
    base: str = ""
    card: str = ""

    def ask(self, path: str, body: Any = None, version: str = "1.0", method: str = "") -> Reply:
        how = method or ("GET" if body is None else "POST")
        headers = {"A2A-Version": version} if version else {}
        return WireClient(self.port).request(how, f"{self.base}{path}", body, headers)

    def capabilities(self, version: str) -> tuple[bool, bool]:
        headers = {"A2A-Version": version} if version else {}
        card = WireClient(self.port).request("GET", f"{self.card}{CARD}", None, headers).json
        return card["capabilities"]["streaming"], card["capabilities"]["pushNotifications"]

    def task(self) -> str:
        return str(self.ask("/message:send", message()).json["task"]["id"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Runs three agents: `bare` lacks both by its script, `quiet` only at the gateway, `played` is in the gateway."""
    home = tmp_path_factory.mktemp("g")
    (home / "bare.toml").write_text(SWITCHES + PLAIN, encoding="utf-8")
    (home / "quiet.toml").write_text(PLAIN, encoding="utf-8")
    config = f"""
[[agents]]
id = "quiet"
{SWITCHES}
[[agents]]
id = "played"
driver = "scripted"
script = "bare.toml"

[[agents]]
id = "tck"
driver = "scripted"
script = "{CONFORMANCE}"
"""
    with (
        scripted_host(home, home / "bare.toml", "bare"),
        scripted_host(home, home / "quiet.toml", "quiet"),
        gateway(home, config, "--no-auth") as running,
    ):
        yield running


@pytest.fixture(params=["bare at its host", "bare", "quiet", "played"])
def place(request: pytest.FixtureRequest, running: RunningGateway) -> Place:
    if request.param == "bare at its host":
        return Place(entry_of(running.home, "bare").port)
    return at(running, request.param)


def at(running: RunningGateway, agent: str) -> Place:
    return Place(running.entry.port, f"/agents/{agent}/v1", f"/agents/{agent}")


def message(**more: Any) -> dict[str, Any]:
    spoken = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    return {"message": spoken, **more}


def reason(reply: Reply) -> str:
    return str(reply.json["error"]["details"][0]["reason"])


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.parametrize("version", ["", "1.0", "0.3"])
def test_the_card_lacks_both_capabilities(place: Place, running: RunningGateway, version: str) -> None:
    assert place.capabilities(version) == (False, False)
    assert at(running, "tck").capabilities(version) == (True, True)
    assert Place(entry_of(running.home, "quiet").port).capabilities(version) == (True, True), "only at the gateway"


def test_streams_are_refused(place: Place) -> None:
    task = place.task()
    for path, body in (("/message:stream", message()), (f"/tasks/{task}:subscribe", None)):
        reply = place.ask(path, body)
        assert (reply.status, reason(reply)) == (400, "UNSUPPORTED_OPERATION"), path
    for version, call in (
        ("1.0", rpc("SendStreamingMessage", message())),
        ("1.0", rpc("SubscribeToTask", {"id": task})),
        ("0.3", rpc("tasks/resubscribe", {"id": task})),
    ):
        told = place.ask("" if place.base else "/", call, version)
        assert b'"code":-32004' in told.body, told.body


def test_push_notifications_are_refused(place: Place) -> None:
    task = place.task()
    configs = f"/tasks/{task}/pushNotificationConfigs"
    asked = [
        place.ask(configs, {"url": HOOK}),
        place.ask(configs),
        place.ask(f"{configs}/c"),
        place.ask(f"{configs}/c", method="DELETE"),
        place.ask("/message:send", message(configuration={"taskPushNotificationConfig": {"url": HOOK}})),
    ]
    for reply in asked:
        assert (reply.status, reason(reply)) == (400, "PUSH_NOTIFICATION_NOT_SUPPORTED")
    set_push = rpc("tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": {"url": HOOK}})
    assert place.ask("" if place.base else "/", set_push, "0.3").json["error"]["code"] == -32003


def test_all_other_operations_work(place: Place) -> None:
    task = place.task()
    assert place.ask(f"/tasks/{task}").json["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert place.ask(f"/tasks/{task}:cancel", {}).json["status"]["state"] == "TASK_STATE_CANCELED"


async def test_the_supervisor_and_grpc_refuse_them_too(running: RunningGateway) -> None:
    place = at(running, "quiet")
    by_supervisor = place.ask("/message:stream", {"message": {"content": "hi", "role": "user"}}, version="")
    assert by_supervisor.json["error"]["code"] == -32004
    card = WireClient(running.entry.port).request("GET", f"/agents/quiet{CARD}").json
    (address,) = [one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]

    async with grpc.aio.insecure_channel(address) as channel:
        new_stub: Any = a2a_pb2_grpc.A2AServiceStub
        stub = new_stub(channel)
        spoken = a2a.Message(message_id="m", role=a2a.ROLE_USER, parts=[a2a.Part(text="hi")])
        request = a2a.SendMessageRequest(message=spoken, tenant="quiet")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendStreamingMessage(request, timeout=PATIENCE).read()

    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_an_agents_own_commands_still_follow_it(running: RunningGateway) -> None:
    """The switches are about A2A: `synapse send --response` follows the task at the agent's own host."""
    entry = entry_of(running.home, "bare")
    task = Place(entry.port).task()

    with WireClient(entry.port).follow(f"/tasks/{task}/subscribe") as events:
        assert next(events).name == "snapshot"
