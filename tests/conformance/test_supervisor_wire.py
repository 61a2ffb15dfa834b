"""The supervisor contract over the wire, endpoint by endpoint: a real gateway with keys, agents behind it and in it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.a2a_push_rows import Webhook
from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.conformance.real_hosts import scripted_host
from tests.conformance.supervisor_examples import CARD, PUSH, SEND, TASK
from tests.conformance.wire_client import Reply, WireClient

pytestmark = pytest.mark.integration

Body = dict[str, Any]
Told = tuple[str, str, Body]
"""One event: its name, its id, its data."""


@dataclass(frozen=True)
class Agent:
    """One agent of the gateway, and the key of a caller."""

    gateway: RunningGateway
    key: str
    name: str

    @property
    def base(self) -> str:
        return f"/agents/{self.name}/v1"

    def ask(self, method: str, path: str, body: object = None) -> Reply:
        sent = body.encode() if isinstance(body, str) else body
        return self.gateway.ask(method, self.base + path, sent, key=self.key)

    def ok(self, method: str, path: str, body: object = None) -> Any:
        reply = self.ask(method, path, body)
        assert reply.status == 200, reply.body
        assert reply.headers["content-type"] == "application/json"
        return reply.json

    def send(
        self, cue: str = "plain", text: str = "hello", *, metadata: Body | None = None, **configuration: Any
    ) -> Body:
        told: Body = self.ok("POST", "/message:send", message(cue, text, metadata, **configuration))
        return told

    def stream(self, path: str, body: Body | None = None, after: str = "") -> list[Told]:
        """Returns all events of a stream."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        with closing(WireClient(self.gateway.entry.port).connection()) as connection:
            sent = None if body is None else json.dumps(body)
            connection.request("POST", self.base + path, sent, headers | ({"Last-Event-ID": after} if after else {}))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("content-type") == "text/event-stream"
            return [event(block) for block in response.read().decode().split("\n\n") if block.strip(": \n")]


def event(block: str) -> Told:
    fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
    return fields["event"], fields["id"], json.loads(fields["data"])


def message(cue: str, text: str, metadata: Body | None = None, **configuration: Any) -> Body:
    spoken = {"content": text, "role": "user", "id": f"{cue}-{uuid.uuid4()}"}
    return {"message": spoken, "configuration": configuration, "metadata": metadata or {}}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Agent]]:
    home = tmp_path_factory.mktemp("v")
    with scripted_host(home, name="conf"), gateway(home, IN_PROCESS) as running:
        key = new_key(home, "laptop")
        yield {name: Agent(running, key, name) for name in ("conf", "tck")}


@pytest.fixture(params=["conf", "tck"], ids=["behind the gateway", "in the gateway"])
def agent(request: pytest.FixtureRequest, agents: dict[str, Agent]) -> Agent:
    return agents[request.param]


def requirement(name: str) -> pytest.MarkDecorator:
    return pytest.mark.requirement(f"wire-sup-{name}")


@requirement("send")
def test_the_example_of_send_message_is_answered_with_the_fields_of_its_example(agent: Agent) -> None:
    with Webhook() as hook:
        body = json.loads(SEND)
        body["configuration"]["pushNotificationConfig"]["url"] = hook.url
        task = agent.ok("POST", "/message:send", body)
        headers, told = hook.next()

    assert list(task) == list(json.loads(TASK))
    assert task["id"].startswith(f"{agent.name}:")
    assert (task["status"], task["messages"][0]["content"]) == ("succeeded", "Your message here")
    assert list(task["messages"][0]) == ["content", "role", "id", "timestamp"]
    assert task["history"][0]["message"] == {"content": "Your message here", "role": "user"}
    assert headers["Authorization"] == "Bearer auth-credentials"
    assert headers["X-A2A-Notification-Token"] == "your-auth-token"
    assert told["id"] == task["id"]


@requirement("send-at-once")
def test_without_blocking_the_answer_comes_at_once(agent: Agent) -> None:
    task = agent.send("tck-cancel")

    assert task["status"] in ("created", "running")
    assert agent.ok("POST", f"/tasks/{task['id']}:cancel")["status"] == "cancelled"


@requirement("continue")
def test_a_message_continues_a_task_that_waits_for_input(agent: Agent) -> None:
    asked = agent.send("tck-multi-turn", blocking=True)
    body = message("plain", "second", blocking=True) | {"taskId": asked["id"]}

    done = agent.ok("POST", "/message:send", body)

    assert (asked["status"], done["id"], done["status"]) == ("running", asked["id"], "succeeded")


@requirement("states")
@pytest.mark.parametrize(
    ("cue", "status"),
    [
        ("plain", "succeeded"),
        ("tck-task-failure", "failed"),
        ("tck-reject-task", "failed"),
        ("tck-input-required", "running"),
    ],
)
def test_each_final_state_has_its_name(agents: dict[str, Agent], cue: str, status: str) -> None:
    assert agents["conf"].send(cue, blocking=True)["status"] == status


@requirement("stream")
def test_a_stream_sends_the_task_until_it_is_final_then_done(agent: Agent) -> None:
    *updates, done = agent.stream("/message:stream", message("tck-stream-001", "go"))

    assert {name for name, _, _ in updates} == {"taskUpdate"}
    assert [data["final"] for _, _, data in updates] == [False] * (len(updates) - 1) + [True]
    assert updates[-1][2]["status"] == "succeeded"
    assert (done[0], done[2]) == ("done", {})
    ids = [seq for _, seq, _ in (*updates, done)]
    assert all(ids)
    assert len(set(ids)) == len(ids)


@requirement("subscribe")
def test_a_broken_stream_is_resumed_after_its_last_event(agent: Agent) -> None:
    told = agent.stream("/message:stream", message("tck-stream-artifact-chunked", "go"))
    task_id = told[0][2]["id"]

    rest = agent.stream(f"/tasks/{task_id}:subscribe", after=told[1][1])

    assert rest == told[2:]


@requirement("get")
def test_a_task_is_read_by_either_form_of_its_id(agent: Agent) -> None:
    task = agent.send(blocking=True)

    for task_id in (task["id"], task["id"].partition(":")[2]):
        assert agent.ok("GET", f"/tasks/{task_id}") == task
    assert agent.ok("GET", f"/tasks/{task['id']}?historyLength=0")["history"] == []


@requirement("list")
def test_tasks_are_listed_filtered_and_paged(agent: Agent) -> None:
    mark = uuid.uuid4().hex
    made = [
        agent.send(cue, blocking=True, metadata={"mark": mark})
        for cue in ("plain", "tck-artifact-text", "tck-task-failure")
    ]
    wanted = json.dumps({"mark": mark})
    query = f"/tasks?metadata={wanted}".replace('"', "%22").replace(" ", "")

    page = agent.ok("GET", f"{query}&pageSize=2")
    rest = agent.ok("GET", f"{query}&pageSize=2&pageToken={page['nextPageToken']}")
    failed = agent.ok("GET", f"{query}&status=failed&historyLength=1&includeArtifacts=true")
    none = agent.ok("GET", f"{query}&lastUpdatedAfter=4102444800000")

    assert list(page) == ["tasks", "totalSize", "pageSize", "nextPageToken"]
    assert (page["totalSize"], page["pageSize"], rest["nextPageToken"]) == (3, 2, "")
    assert [task["id"] for task in (*page["tasks"], *rest["tasks"])] == [task["id"] for task in made[::-1]]
    assert [task["history"] for task in page["tasks"]] == [[], []]
    assert [task["id"] for task in failed["tasks"]] == [made[2]["id"]]
    assert none["tasks"] == []


@requirement("push")
def test_webhooks_are_set_read_listed_and_deleted(agent: Agent) -> None:
    task_id = agent.send(blocking=True)["id"]
    configs = f"/tasks/{task_id}/pushNotificationConfigs"
    wanted = json.loads(PUSH) | {"taskId": task_id}
    wanted["pushNotificationConfig"]["url"] = "http://127.0.0.1:9/task-update"

    assert agent.ok("POST", configs, wanted) == wanted
    assert agent.ok("GET", f"{configs}/config-1") == wanted
    assert agent.ok("GET", configs) == [wanted]
    deleted = agent.ask("DELETE", f"{configs}/config-1")
    assert (deleted.status, deleted.body) == (200, b"")
    assert agent.ok("GET", configs) == []
    assert agent.ask("GET", f"{configs}/config-1").status == 404


@requirement("cards")
def test_the_card_is_the_same_at_each_of_its_places(agent: Agent) -> None:
    card = agent.ok("GET", "/card")

    assert set(json.loads(CARD)) <= card.keys()
    assert card["id"] == agent.name
    assert card["endpoints"]["a2a"].endswith(agent.base)
    for path in (f"/.well-known/agent-cards/{agent.name}.json", f"/agents/{agent.name}/.well-known/agent-card.json"):
        assert agent.gateway.ask("GET", path, key=agent.key).json == card


@requirement("directory")
def test_the_directory_lists_every_agent(agents: dict[str, Agent]) -> None:
    agent = agents["conf"]
    listed = agent.gateway.ask("GET", "/agents/list.json", key=agent.key).json["agents"]

    ours = next(one for one in listed if one["id"] == "conf")
    assert list(ours) == ["id", "name", "description", "cardUrl", "endpoint", "status"]
    assert (ours["cardUrl"], ours["endpoint"], ours["status"]) == ("/agents/conf/v1/card", "/agents/conf/v1", "active")


@requirement("errors")
def test_errors_have_the_form_and_the_codes_of_the_document(agent: Agent) -> None:
    done = agent.send(blocking=True)["id"]
    cases: list[tuple[str, str, object, int, int]] = [
        ("POST", "/message:send", "{no json", 400, -32700),
        ("POST", "/message:send", {"message": {"content": ""}}, 400, -32602),
        ("GET", "/tasks/none", None, 404, -32001),
        ("GET", "/tasks?pageSize=0", None, 400, -32602),
        ("POST", f"/tasks/{done}:cancel", None, 400, -32002),
        ("GET", "/nothing", None, 404, -32601),
    ]
    for method, path, body, status, code in cases:
        reply = agent.ask(method, path, body)
        assert (reply.status, reply.json["error"]["code"]) == (status, code), path
        assert reply.json["error"].keys() <= {"code", "message", "data"}


@requirement("auth")
def test_every_endpoint_requires_a_key(agents: dict[str, Agent]) -> None:
    running = agents["conf"].gateway
    for method, path in [("POST", "/message:send"), ("GET", "/tasks"), ("GET", "/tasks/x"), ("GET", "/card")]:
        reply = running.ask(method, f"/agents/conf/v1{path}", {} if method == "POST" else None)
        assert reply.status == 401
        assert reply.headers["www-authenticate"].startswith("Bearer ")
