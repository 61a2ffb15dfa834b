"""Real gateways on two machines, with real hosts behind them: every dialect shows and reaches the agents of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import scripted_host, synapse
from tests.conformance.wire_client import Reply
from tests.fakes.replicating_link import ReplicatingLink
from tests.fleet.waiting import until

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Machines:
    """The gateways of gate and box2, a key of each, and the link of gate. Agents: `conf` on both, `only` on box2."""

    gate: RunningGateway
    box2: RunningGateway
    key: str
    box2_key: str
    link: ReplicatingLink

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        return self.gate.ask(method, path, body, key=self.key, **headers)

    def rpc(self, agent: str, method: str, params: object, **headers: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask("POST", f"/agents/{agent}/v1", body, A2A_Version="1.0", **headers).json

    def send(self, agent: str, cue: str, text: str = "hello", **headers: str) -> Any:
        message = {"messageId": cue, "role": "ROLE_USER", "parts": [{"text": text}]}
        return self.rpc(agent, "SendMessage", {"message": message}, **headers)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("m")
    gate, box2 = folder / "gate", folder / "box2"
    gate.mkdir()
    box2.mkdir()
    with ExitStack() as stack:
        stack.enter_context(scripted_host(box2, name="conf"))
        stack.enter_context(scripted_host(box2, name="only"))
        stack.enter_context(scripted_host(gate, name="conf"))
        link = stack.enter_context(ReplicatingLink(gate, "gate", box2=box2).running())
        running = stack.enter_context(gateway(gate, ""))
        other = stack.enter_context(gateway(box2, ""))
        keys = new_key(gate, "laptop", "--actions", "all"), new_key(box2, "laptop", "--all-tasks")
        world = Machines(running, other, *keys, link)
        # A gateway starts without the agents of other machines where the link takes longer than two seconds.
        until(lambda: "only@box2" in names(world.ask("GET", "/agents/list.json")), "the agents of both machines")
        yield world


def names(reply: Reply) -> list[str]:
    return sorted(agent["id"] for agent in reply.json["agents"])


def test_all_lists_and_cards_show_the_agents_of_both_machines(machines: Machines) -> None:
    assert names(machines.ask("GET", "/agents/list.json")) == ["conf", "conf@box2", "only@box2"]
    hub = machines.ask("GET", "/agents").json
    assert "only@box2" in json.dumps(hub), hub
    for name in ("only@box2", "only%40box2"):
        card = machines.ask("GET", f"/agents/{name}/.well-known/agent-card.json")
        assert card.status == 200, card.body
        assert "/agents/only@box2" in json.dumps(card.json) or "/agents/only%40box2" in json.dumps(card.json)


@pytest.mark.parametrize("agent", ["only@box2", "only%40box2"])
def test_a_message_is_answered_by_the_agent_of_the_other_machine(machines: Machines, agent: str) -> None:
    done = machines.send(agent, f"tck-complete-task-{agent}")["result"]["task"]
    task = until(
        lambda: (
            (now := machines.rpc(agent, "GetTask", {"id": done["id"]})["result"])["status"]["state"]
            == "TASK_STATE_COMPLETED"
            and now
        ),
        "the answer",
    )

    assert task["artifacts"][0]["parts"][0]["text"] == "Hello from TCK"
    listed = machines.rpc(agent, "ListTasks", {})["result"]["tasks"]
    assert done["id"] in [one["id"] for one in listed]
    everything = machines.ask("GET", "/tasks").json
    assert done["id"] in json.dumps(everything)


def test_the_supervisor_s_ids_name_the_agent_with_its_machine(machines: Machines) -> None:
    message = {"message": {"content": "hello", "role": "user"}, "configuration": {"blocking": True}}
    task = machines.ask("POST", "/agents/conf@box2/v1/message:send", message).json

    assert task["id"].startswith("conf@box2:"), task
    assert task["status"] == "succeeded"
    again = machines.ask("GET", f"/agents/conf@box2/v1/tasks/{task['id']}").json
    assert again["id"] == task["id"]
    encoded = task["id"].replace("@", "%40").replace(":", "%3A")
    assert machines.ask("GET", f"/agents/conf%40box2/v1/tasks/{encoded}").json["id"] == task["id"]


def test_a_name_without_a_machine_means_the_agent_here(machines: Machines) -> None:
    message = {"message": {"content": "hello", "role": "user"}, "configuration": {"blocking": True}}
    own = machines.ask("POST", "/agents/conf/v1/message:send", message).json
    full = machines.ask("POST", "/agents/conf@gate/v1/message:send", message).json

    assert (own["status"], full["status"]) == ("succeeded", "succeeded")
    remote = machines.ask("GET", "/agents/conf@box2/v1/tasks").json
    assert own["id"].partition(":")[2] not in json.dumps(remote)


def test_a_task_is_canceled_on_its_machine(machines: Machines) -> None:
    task = machines.send("only@box2", "tck-input-required-1")["result"]["task"]

    canceled = machines.rpc("only@box2", "CancelTask", {"id": task["id"]})["result"]

    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


def test_a_stream_of_a_remote_task_has_all_events(machines: Machines) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendStreamingMessage",
        "params": {"message": {"messageId": "tck-stream-001-x", "role": "ROLE_USER", "parts": [{"text": "go"}]}},
    }
    reply = machines.ask("POST", "/agents/only@box2/v1", body, A2A_Version="1.0")

    assert b"Stream hello from TCK" in reply.body
    assert b"TASK_STATE_COMPLETED" in reply.body


def test_a_stream_goes_on_at_the_other_gateway(machines: Machines) -> None:
    """Begun at gate, as a task of box2; resumed at the gateway of box2 itself, by the same numbers."""
    task = machines.send("only@box2", "tck-stream-001-y")["result"]["task"]
    until(
        lambda: (
            machines.rpc("only@box2", "GetTask", {"id": task["id"]})["result"]["status"]["state"]
            == "TASK_STATE_COMPLETED"
        ),
        "the end",
    )

    def events(of: RunningGateway, key: str, agent: str, after: str) -> list[tuple[str, str]]:
        path = f"/agents/{agent}/v1/tasks/{task['id']}:subscribe"
        body = of.ask("POST", path, {}, key=key, Last_Event_ID=after, Accept="text/event-stream").body.decode()
        blocks = [block.split("\n") for block in body.strip().split("\n\n")]
        return [
            (next(line for line in block if line.startswith("id:")), block[-1].partition('"taskId"')[0][:40])
            for block in blocks
            if any(line.startswith("id:") for line in block)
        ]

    here = events(machines.gate, machines.key, "only@box2", "0")
    assert here
    middle = here[0][0].partition(":")[2].strip()
    rest = events(machines.box2, machines.box2_key, "only", middle)

    assert [number for number, _ in rest] == [number for number, _ in here[1:]]


def test_webhooks_of_a_remote_task_are_with_its_host(machines: Machines) -> None:
    task = machines.send("only@box2", "tck-input-required-2")["result"]["task"]
    config = {"taskId": task["id"], "id": "hook", "url": "http://127.0.0.1:9/hook"}

    made = machines.rpc("only@box2", "CreateTaskPushNotificationConfig", config)

    assert made["result"]["url"] == "http://127.0.0.1:9/hook", made
    found = machines.rpc("only@box2", "ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    assert [one["id"] for one in found["result"]["configs"]] == ["hook"]


def test_webhooks_of_a_revoked_key_stop_on_the_other_machine(machines: Machines) -> None:
    key = new_key(machines.gate.home, "hooks")

    def rpc(method: str, params: object, by: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return machines.gate.ask("POST", "/agents/only@box2/v1", body, key=by, A2A_Version="1.0").json

    message = {"messageId": "tck-input-required-3", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    task = rpc("SendMessage", {"message": message}, key)["result"]["task"]
    made = rpc("CreateTaskPushNotificationConfig", {"taskId": task["id"], "id": "h", "url": "http://127.0.0.1:9/"}, key)
    assert "result" in made, made
    operator = new_key(machines.gate.home, "operator", "--all-tasks")
    wanted = {"taskId": task["id"]}
    assert rpc("ListTaskPushNotificationConfigs", wanted, operator)["result"]["configs"]

    synapse(machines.gate.home, "keys", "revoke", "hooks")

    until(lambda: not rpc("ListTaskPushNotificationConfigs", wanted, operator)["result"].get("configs"), "its end")


def test_metrics_name_the_agents_with_their_machine(machines: Machines) -> None:
    text = machines.ask("GET", "/metrics").body.decode()

    assert 'synapse_messages_waiting{agent="only@box2"}' in text
    assert 'synapse_messages_waiting{agent="conf"}' in text


def test_an_answer_does_not_wait_for_a_replica_that_is_behind(machines: Machines) -> None:
    machines.link.pauses.set()
    try:
        message = {"messageId": "tck-complete-task-behind", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        task = machines.rpc("only@box2", "SendMessage", params)["result"]["task"]
        known = machines.rpc("only@box2", "GetTask", {"id": task["id"]})["result"]
    finally:
        machines.link.pauses.clear()

    assert known["id"] == task["id"]
    until(
        lambda: (
            machines.rpc("only@box2", "GetTask", {"id": task["id"]})["result"]["status"]["state"]
            == "TASK_STATE_COMPLETED"
        ),
        "the replica",
    )


def test_a_machine_that_is_away_is_told_in_every_dialect(machines: Machines) -> None:
    task = machines.send("only@box2", "tck-complete-task-before")["result"]["task"]
    machines.link.away["box2"] = "2026-01-02T10:00:00Z"
    try:
        until(lambda: "away since" in machines.ask("GET", "/agents").body.decode(), "the gateway to notice")
        message = {"messageId": "tck-away", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        by_rpc = machines.send("only@box2", "tck-away")["error"]
        assert "box2 is away (since 2026-01-02T10:00:00Z)" in by_rpc["message"], by_rpc
        rest = machines.ask("POST", "/agents/only@box2/v1/message:send", {"message": message}, A2A_Version="1.0")
        assert rest.status == 503
        assert "away" in rest.body.decode()
        assert "Synapse-Queue" in rest.body.decode(), rest.body
        former = {**message, "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "hi"}]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": former}}
        old = machines.ask("POST", "/agents/only@box2/v1", call, A2A_Version="0.3").json["error"]
        assert "away" in old["message"], old
        supervisor = {"message": {"content": "hello", "role": "user"}}
        told = machines.ask("POST", "/agents/only@box2/v1/message:send", supervisor)
        assert "away" in told.body.decode(), told.body
        hub = machines.ask("POST", "/agents/only@box2/messages", {"message": [{"type": "text", "content": "hello"}]})
        assert "away" in hub.body.decode(), hub.body
        cards = machines.ask("GET", "/agents").json["agents"]
        [shown] = [card["metadata"] for card in cards if card["id"] == "only@box2"]
        assert (shown["state"], shown["away"]) == ("ready", True)
        agents: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "agents", "arguments": {}},
        }
        assert "only@box2 (scripted): away" in machines.ask("POST", "/mcp", agents).body.decode()
        # What it has shipped is still read.
        assert machines.rpc("only@box2", "GetTask", {"id": task["id"]})["result"]["id"] == task["id"]
        card = machines.ask("GET", "/agents/only@box2/.well-known/agent-card.json")
        assert "away since" in card.json["description"]
    finally:
        del machines.link.away["box2"]
    until(lambda: "result" in machines.send("only@box2", "tck-complete-task-back"), "the machine to be back")


def test_a_machine_that_nobody_knows_is_not_found(machines: Machines) -> None:
    error = machines.send("only@box9", "tck-x")["error"]

    assert "no machine 'box9'" in error["message"], error
