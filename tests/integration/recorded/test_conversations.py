"""One whole conversation in each dialect, as it goes over the wire: requests, answers and events.

tests/conformance checks each dialect clause by clause, with the clients of others: gRPC, the hub's WebSocket, push
notifications and every refusal are proven there. Here is what bodies look like as a whole, so that no field comes, goes
or changes its type unnoticed. How to record anew: see golden.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conformance.wire_client import WireClient
from tests.integration.recorded.golden import Plain, check_json
from tests.integration.recorded.product import Product, product, until, wire

pytestmark = pytest.mark.integration

HOOK = "http://127.0.0.1:9/hook"
FACES = ("host", "gateway")
JSON = dict[str, Any]


@dataclass
class Talk:
    """Asks, and writes down what was said on both sides."""

    client: WireClient
    plain: Plain
    headers: dict[str, str] = field(default_factory=dict[str, str])
    said: list[Any] = field(default_factory=list[Any])

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request and its answer."""
        reply = self.client.request(method, path, body, self.headers)
        answer = reply.json if reply.body else None
        kind = reply.headers.get("content-type", "")
        self._note(method, path, body, {"status": reply.status, "type": kind, "body": answer})
        return answer

    def wait(self, path: str, holds: str) -> Any:
        """Ask until the answer holds a text, and write down only that answer."""
        until(lambda: holds in self.client.request("GET", path, None, self.headers).body.decode(), holds)
        return self.ask("GET", path)

    def follow(self, method: str, path: str, body: object = None) -> list[Any]:
        """A request that is answered with a stream."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "text/event-stream", **self.headers}
        with closing(self.client.connection()) as connection:
            connection.request(method, path, content, headers | ({"Content-Type": "application/json"} if body else {}))
            response = connection.getresponse()
            kind, text = response.getheader("content-type", ""), response.read().decode()
        assert response.status == 200, text
        events = [event_of(block) for block in text.split("\n\n") if block.strip(": \n")]
        self._note(method, path, body, {"status": 200, "type": kind, "events": events})
        return events

    def call(self, path: str, method: str, params: JSON) -> Any:
        """One call of JSON-RPC."""
        return self.ask("POST", path, rpc(method, params)).get("result")

    def _note(self, method: str, path: str, body: object, answer: JSON) -> None:
        self.said.append({"request": {"method": method, "path": path, "body": body}, "answer": answer})

    def check(self, name: str) -> None:
        check_json(f"wire/{name}.json", self.plain.json(self.said))


def rpc(method: str, params: JSON) -> JSON:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def event_of(block: str) -> JSON:
    """An event as its lines say; its id is a place in the log of this run."""
    lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
    fields: JSON = {name: json.loads(value) if name == "data" else value for name, _, value in lines}
    return fields | ({"id": "<seq>"} if "id" in fields else {})


@dataclass
class World:
    """An agent, and a gateway in front of it."""

    agent: JSON
    gateway: JSON
    key: str
    plain: Plain

    def talk(self, face: str, version: str = "") -> Talk:
        headers = {"A2A-Version": version} if version else {}
        if face == "host":
            return Talk(wire(self.agent), self.plain.afresh(), headers)
        return Talk(wire(self.gateway), self.plain.afresh(), headers | {"Authorization": f"Bearer {self.key}"})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with product(tmp_path_factory.mktemp("w")) as synapse:
        agent, gateway = synapse.start_agent("ada"), synapse.start_gateway()
        yield World(agent, gateway, new_key(synapse), synapse.plain(ada=agent, gateway=gateway))


def new_key(synapse: Product) -> str:
    return str(
        synapse.run("keys", "create", "all", "--actions", "read,send,cancel,approve,register", "--json").json["key"]
    )


def mount(face: str) -> str:
    return "" if face == "host" else "/agents/ada/v1"


def say_1_0(text: str, message_id: str, **more: str) -> JSON:
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def say_0_3(text: str, message_id: str, **more: str) -> JSON:
    parts = [{"kind": "text", "text": text}]
    return {"message": {"kind": "message", "messageId": message_id, "role": "user", "parts": parts, **more}}


@pytest.mark.parametrize("face", FACES)
def test_a2a_1_0_over_rest(world: World, face: str) -> None:
    talk, at = world.talk(face, "1.0"), mount(face)
    card = "/.well-known/agent-card.json"
    talk.ask("GET", card if face == "host" else f"/agents/ada{card}")
    parts = [{"text": "report"}, {"data": {"n": [1.5, None]}}, {"raw": "AAEC", "filename": "f.bin"}]
    parts += [{"url": "https://example.com/x", "mediaType": "text/html"}]
    whole = {"messageId": f"rest-1-{face}", "role": "ROLE_USER", "parts": parts, "metadata": {"k": 1}}
    done = talk.ask("POST", f"{at}/message:send", {"message": whole, "metadata": {"user": "ada"}})["task"]
    talk.ask("POST", f"{at}/message:send", say_1_0("direct", f"rest-2-{face}"))
    asked = talk.ask("POST", f"{at}/message:send", say_1_0("ask me", f"rest-3-{face}"))["task"]
    push = {"id": "p-1", "url": HOOK, "token": "t", "authentication": {"scheme": "Bearer", "credentials": "c"}}
    talk.ask("POST", f"{at}/tasks/{asked['id']}/pushNotificationConfigs", push)
    talk.ask("GET", f"{at}/tasks/{asked['id']}/pushNotificationConfigs/p-1")
    talk.ask("GET", f"{at}/tasks/{asked['id']}/pushNotificationConfigs")
    talk.ask("DELETE", f"{at}/tasks/{asked['id']}/pushNotificationConfigs/p-1")
    talk.ask("POST", f"{at}/message:send", say_1_0("the first", f"rest-4-{face}", taskId=asked["id"]))
    needs = talk.ask("POST", f"{at}/message:send", say_1_0("log in", f"rest-5-{face}"))["task"]
    talk.ask("POST", f"{at}/tasks/{needs['id']}:cancel")
    talk.ask("GET", f"{at}/tasks/{done['id']}?historyLength=0")
    talk.ask("GET", f"{at}/tasks?contextId={done['contextId']}&includeArtifacts=true")
    talk.ask("POST", f"{at}/message:send", say_1_0("refuse", f"rest-6-{face}"))
    talk.ask("POST", f"{at}/message:send", say_1_0("fail", f"rest-7-{face}"))
    talk.follow("POST", f"{at}/message:stream", say_1_0("tell me", f"rest-8-{face}"))
    talk.ask("GET", f"{at}/tasks/nothing")
    talk.check(f"a2a_1_0_rest_{face}")


@pytest.mark.parametrize("face", FACES)
def test_a2a_1_0_over_json_rpc(world: World, face: str) -> None:
    talk, at = world.talk(face, "1.0"), mount(face) or "/"
    done = talk.call(at, "SendMessage", say_1_0("report", f"rpc-1-{face}"))["task"]
    asked = talk.call(at, "SendMessage", say_1_0("ask me", f"rpc-2-{face}"))["task"]
    push = {"taskId": asked["id"], "id": "p-1", "url": HOOK}
    talk.call(at, "CreateTaskPushNotificationConfig", push)
    talk.call(at, "GetTaskPushNotificationConfig", {"taskId": asked["id"], "id": "p-1"})
    talk.call(at, "ListTaskPushNotificationConfigs", {"taskId": asked["id"]})
    talk.call(at, "DeleteTaskPushNotificationConfig", {"taskId": asked["id"], "id": "p-1"})
    talk.call(at, "CancelTask", {"id": asked["id"]})
    talk.call(at, "GetTask", {"id": done["id"]})
    talk.call(at, "ListTasks", {"contextId": done["contextId"]})
    talk.call(at, "GetExtendedAgentCard", {})
    talk.follow("POST", at, rpc("SendStreamingMessage", say_1_0("ask again", f"rpc-3-{face}")))
    talk.call(at, "SubscribeToTask", {"id": done["id"]})
    talk.call(at, "GetTask", {"id": "nothing"})
    talk.call(at, "Nonsense", {})
    talk.check(f"a2a_1_0_json_rpc_{face}")


@pytest.mark.parametrize("face", FACES)
def test_a2a_0_3_over_rest(world: World, face: str) -> None:
    """REST of 0.3 is ProtoJSON in the words of its protobuf."""
    talk, at = world.talk(face, "0.3"), "/v1" if face == "host" else mount(face)
    card = "/.well-known/agent-card.json"
    talk.ask("GET", card if face == "host" else f"/agents/ada{card}")

    def say(text: str, message_id: str, **more: str) -> JSON:
        message = {"messageId": f"{message_id}-{face}", "role": "ROLE_USER", "content": [{"text": text}], **more}
        return {"message": message, "configuration": {"blocking": True}}

    done = talk.ask("POST", f"{at}/message:send", say("report", "rest03-1"))["task"]
    asked = talk.ask("POST", f"{at}/message:send", say("ask me", "rest03-2"))["task"]
    push = {"id": "p-1", "url": HOOK, "token": "t"}
    name = f"tasks/{asked['id']}"
    talk.ask("POST", f"{at}/{name}/pushNotificationConfigs", {"config": {"pushNotificationConfig": push}})
    talk.ask("GET", f"{at}/{name}/pushNotificationConfigs")
    talk.ask("POST", f"{at}/message:send", say("the first", "rest03-3", taskId=asked["id"]))
    talk.ask("GET", f"{at}/tasks/{done['id']}?historyLength=1")
    talk.follow("POST", f"{at}/message:stream", say("ask again", "rest03-4"))
    talk.ask("POST", f"{at}/tasks/{done['id']}:cancel")
    talk.ask("GET", f"{at}/tasks/nothing")
    talk.check(f"a2a_0_3_rest_{face}")


@pytest.mark.parametrize("face", FACES)
def test_a2a_0_3_over_json_rpc(world: World, face: str) -> None:
    talk, at = world.talk(face), mount(face) or "/"

    def say(text: str, message_id: str, **more: str) -> JSON:
        return say_0_3(text, f"{message_id}-{face}", **more) | {"configuration": {"blocking": True}}

    done = talk.call(at, "message/send", say("report", "rpc03-1"))
    asked = talk.call(at, "message/send", say("ask me", "rpc03-2"))
    push = {"taskId": asked["id"], "pushNotificationConfig": {"id": "p-1", "url": HOOK, "token": "t"}}
    talk.call(at, "tasks/pushNotificationConfig/set", push)
    named = {"id": asked["id"], "pushNotificationConfigId": "p-1"}
    talk.call(at, "tasks/pushNotificationConfig/get", named)
    talk.call(at, "tasks/pushNotificationConfig/list", {"id": asked["id"]})
    talk.call(at, "tasks/pushNotificationConfig/delete", named)
    talk.call(at, "tasks/cancel", {"id": asked["id"]})
    talk.call(at, "tasks/get", {"id": done["id"], "historyLength": 1})
    talk.call(at, "agent/getAuthenticatedExtendedCard", {})
    talk.follow("POST", at, rpc("message/stream", say("ask again", "rpc03-3")))
    talk.follow("POST", at, rpc("tasks/resubscribe", {"id": "nothing"}))
    talk.call(at, "tasks/get", {"id": "nothing"})
    talk.check(f"a2a_0_3_json_rpc_{face}")


def test_supervisor(world: World) -> None:
    talk, at = world.talk("gateway"), mount("gateway")
    talk.ask("GET", "/agents/list.json")
    talk.ask("GET", "/.well-known/agent-cards/ada")

    def say(text: str, **more: str) -> JSON:
        return {"message": {"content": text, "role": "user", **more}, "configuration": {"blocking": True}}

    done = talk.ask("POST", f"{at}/message:send", say("report"))
    asked = talk.ask("POST", f"{at}/message:send", say("ask me"))
    push = {"id": "p-1", "url": HOOK, "token": "t"}
    talk.ask("POST", f"{at}/tasks/{asked['id']}/pushNotificationConfigs", {"pushNotificationConfig": push})
    talk.ask("GET", f"{at}/tasks/{asked['id']}/pushNotificationConfigs/p-1")
    talk.ask("GET", f"{at}/tasks/{asked['id']}/pushNotificationConfigs")
    talk.ask("DELETE", f"{at}/tasks/{asked['id']}/pushNotificationConfigs/p-1")
    talk.ask("POST", f"{at}/message:send", say("the first", taskId=asked["id"]))
    talk.ask("GET", f"{at}/tasks/{done['id']}")
    talk.ask("GET", f"{at}/tasks?pageSize=1&status=failed")
    needs = talk.ask("POST", f"{at}/message:send", say("log in"))
    talk.ask("POST", f"{at}/tasks/{needs['id']}:cancel")
    talk.ask("POST", f"{at}/message:send", say("fail"))
    talk.follow("POST", f"{at}/message:stream", say("fail again"))
    talk.ask("GET", f"{at}/tasks/nothing")
    talk.check("supervisor")


def test_hub(world: World) -> None:
    talk = world.talk("gateway")

    def say(text: str, **more: Any) -> JSON:
        return {"message": [{"type": "text", "content": text}], **more}

    talk.ask("GET", "/agents/ada")
    sent = talk.ask("POST", "/agents/ada/messages", say("report", messageId="hub-1", metadata={"k": "v"}))
    talk.wait(f"/tasks/{sent['taskId']}", '"completed"')
    talk.ask("GET", f"/messages/{sent['messageId']}")
    asked = talk.ask("POST", "/agents/ada/messages", say("ask me", messageId="hub-2", parentId=sent["taskId"]))
    talk.wait(f"/tasks/{asked['taskId']}", "Which one?")
    talk.ask("GET", f"/tasks?parentId={sent['taskId']}")
    talk.ask("PUT", f"/tasks/{asked['taskId']}", {"metadata": {"seen": True}})
    talk.ask("PUT", f"/tasks/{asked['taskId']}", {"state": "failed"})
    talk.ask("DELETE", f"/tasks/{asked['taskId']}")
    talk.ask("GET", f"/tasks/{asked['taskId']}")
    talk.follow("POST", "/agents/ada/messages", say("fail", messageId="hub-3", stream=True))
    talk.ask("POST", "/agents/none/messages", say("hello"))
    talk.check("hub")


def test_synapse(world: World) -> None:
    talk = Talk(wire(world.agent, over_socket=True), world.plain.afresh())

    def say(text: str, **more: Any) -> JSON:
        return {"message": {"role": "user", "parts": [{"type": "text", "text": text}]}, **more}

    def sent(path: str, body: JSON) -> str:
        return str(talk.ask("POST", path, body)["task"]["id"])

    talk.ask("GET", "/.well-known/agent.json")
    talk.ask("GET", "/status")
    done = sent("/tasks/send", say("report", metadata={"response_expected": True}))
    talk.wait(f"/tasks/{done}", '"completed"')
    talk.follow("GET", f"/tasks/{done}/subscribe")
    permit = sent("/tasks/send-priority?priority=4", say("permit it"))
    talk.wait(f"/tasks/{permit}", '"input_required"')
    talk.ask("GET", "/queue")
    talk.ask("POST", f"/tasks/{permit}/answer", {"verdict": "allow"})
    talk.wait(f"/tasks/{permit}", '"completed"')
    made = sent("/tasks/create", say("wait for me"))
    talk.ask("POST", "/reply", {"task_id": made, "message": say("here")["message"]})
    talk.ask("POST", f"/tasks/{made}/cancel")
    talk.ask("POST", f"/tasks/{made}/resolve", {"verdict": "retry"})
    talk.ask("POST", "/answer", {"verdict": "deny"})
    talk.ask("GET", "/tasks?limit=1&status=canceled")
    talk.ask("GET", "/external/agents")
    talk.ask("GET", "/tasks/nothing")
    talk.check("synapse")
