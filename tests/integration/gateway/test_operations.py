"""Operating a real gateway: probes, metrics, documents, logs and traces."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from a2a.types import a2a_pb2 as a2a

from tests.conformance.a2a_grpc_speakers import NEW_STUB_1_0, target_of
from tests.conformance.a2a_push_rows import Webhook
from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.conformance.real_hosts import COMMAND, PATIENCE, environ, scripted_host
from tests.conformance.wire_client import WireClient
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("o")
    with scripted_host(home, name="conf"), gateway(home, f"public_discovery = true\n{IN_PROCESS}") as started:
        yield started


@pytest.fixture(scope="module")
def key(running: RunningGateway) -> str:
    return new_key(running.home, "laptop")


def metrics(running: RunningGateway, key: str) -> dict[str, float]:
    reply = running.ask("GET", "/metrics", key=key)
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain")
    lines = [line for line in reply.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def send(running: RunningGateway, agent: str, key: str, **headers: str) -> str:
    body = {"message": {"content": "hello", "role": "user"}, "configuration": {"blocking": True}}
    reply = running.ask("POST", f"/agents/{agent}/v1/message:send", body, key=key, **headers)
    assert reply.status == 200, reply.body
    return str(reply.json["id"])


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_need_no_key(running: RunningGateway, path: str) -> None:
    reply = running.ask("GET", path)

    assert (reply.status, reply.json) == (200, {"status": "ok"})


def test_metrics_need_a_key_for_all_agents(running: RunningGateway, key: str) -> None:
    some = new_key(running.home, "some", "--agents", "conf")

    assert running.ask("GET", "/metrics").status == 401
    assert running.ask("GET", "/metrics", key=some).status == 403
    assert running.ask("GET", "/metrics", key=key).status == 200


def test_metrics_cover_agents_requests_and_deliveries(running: RunningGateway, key: str) -> None:
    metrics(running, key)
    for agent in ("conf", "tck"):
        send(running, agent, key)
    assert running.ask("GET", "/agents/conf/v1/tasks/none", key=key).status == 404

    seen = until(lambda: _settled(metrics(running, key)), "delivery times")

    assert seen['synapse_messages_waiting{agent="conf"}'] == 0
    assert seen['synapse_requests_total{dialect="supervisor",outcome="ok"}'] >= 2
    assert seen['synapse_requests_total{dialect="supervisor",outcome="task_not_found"}'] >= 1
    assert seen['synapse_request_seconds_count{dialect="supervisor"}'] >= 3
    assert seen['synapse_notifications{state="given_up"}'] == 0


def _settled(seen: dict[str, float]) -> dict[str, float]:
    """The metrics when both agents have answered and are ready again, else nothing."""
    counted = [f'synapse_delivery_seconds_count{{agent="{agent}",step="answered"}}' for agent in ("conf", "tck")]
    is_settled = all(seen.get(name) for name in counted) and seen['synapse_agents{state="ready"}'] == 2
    return seen if is_settled else {}


def test_the_openapi_document_is_served_to_programs_and_people(running: RunningGateway) -> None:
    document = running.ask("GET", "/openapi.json").json
    page = running.ask("GET", "/docs")

    assert document["openapi"] == "3.1.0"
    assert "/agents/{agentId}/v1/message:send" in document["paths"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("agent", ["conf", "tck"])
def test_a_trace_goes_with_the_task_to_the_host_and_to_its_webhooks(
    running: RunningGateway, key: str, agent: str
) -> None:
    with Webhook() as hook:
        body = {
            "message": {"messageId": f"trace-{agent}", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
            "configuration": {"taskPushNotificationConfig": {"url": hook.url}},
        }
        headers = {"traceparent": PARENT, "tracestate": "a=1", "A2A_Version": "1.0"}
        reply = running.ask("POST", f"/agents/{agent}/v1/message:send", body, key=key, **headers)
        told, _ = hook.next()

    assert reply.json["task"]["metadata"]["trace"] == {"traceparent": PARENT, "tracestate": "a=1"}
    assert (told["traceparent"], told["tracestate"]) == (PARENT, "a=1")


def test_grpc_takes_a_trace_too_and_is_counted(running: RunningGateway, key: str) -> None:
    target = target_of(WireClient(running.entry.port), "/agents/conf/v1")
    spoken = a2a.Message(message_id="trace-grpc", role=a2a.ROLE_USER, parts=[a2a.Part(text="hi")])
    request = a2a.SendMessageRequest(message=spoken, tenant="conf")
    metadata = [("authorization", f"Bearer {key}"), ("traceparent", PARENT), ("a2a-version", "1.0")]

    with grpc.insecure_channel(target) as channel:
        answer = NEW_STUB_1_0(channel).SendMessage(request, metadata=metadata, timeout=PATIENCE)

    assert answer.task.metadata["trace"]["traceparent"] == PARENT
    assert metrics(running, key)['synapse_requests_total{dialect="grpc",outcome="ok"}'] >= 1


def test_the_log_is_lines_of_json_without_secrets(running: RunningGateway, key: str, tmp_path: Path) -> None:
    running.ask("GET", "/agents/list.json", key="sk-not-a-key")
    asked = [*COMMAND, "logs", "gateway", "-n", "1000", "--json"]

    said = subprocess.run(
        asked, env=environ(running.home), cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE
    )

    lines = [json.loads(line) for line in json.loads(said.stdout)["lines"]]
    assert {"at", "level", "event", "logger", "room"} <= lines[0].keys()
    assert {"gateway_started", "credentials_refused"} <= {line["event"] for line in lines}
    assert "sk-not-a-key" not in said.stdout.decode()
    assert key not in said.stdout.decode()
