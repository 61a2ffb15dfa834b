"""`POST /commands`, by which a gateway asks a host: an older one of either must understand a newer one of the other.

Between a real gateway and a real host stands a relay that writes down what goes by. The first test compares what the
gateway asks and the host answers with the record; the second asks a host in the very words of the record, as a gateway
of the recorded version would. How to record anew: see golden.py.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from threading import Thread
from typing import Any, cast

import pytest

from tests.conformance.wire_client import WireClient
from tests.integration.recorded.golden import FOLDER, check_json
from tests.integration.recorded.product import Product, product, until, wire

pytestmark = pytest.mark.integration

RECORD = "wire/commands.json"
HOOK = "http://127.0.0.1:9/hook"
JSON = dict[str, Any]
KINDS = {
    "SendMessage",
    "CancelTask",
    "ChangeTask",
    "DeleteTask",
    "SetPushConfig",
    "GetPushConfig",
    "ListPushConfigs",
    "DeletePushConfig",
}
# A host takes this one too, though no dialect of a gateway asks for it yet.
ANSWER: JSON = {
    "caller": {"scope": "key:x", "sees_all": True, "actions": ["approve"], "agents": None, "name": "all"},
    "request": {
        "type": "AnswerQuestion",
        "task_id": "",
        "verdict": "allow",
        "option": "",
        "text": "",
        "question_id": "",
    },
}


class _Relay(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, target: WireClient) -> None:
        self.target = target
        self.said: list[Any] = []
        super().__init__(path, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        relay = cast("_Relay", self.server)
        content = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        reply = relay.target.request(self.command, self.path, content)
        if self.path == "/commands":
            answer = {"status": reply.status, "body": reply.json}
            relay.said.append({"request": json.loads(content or b""), "answer": answer})
        self.send_response_only(reply.status)
        self.send_header("Content-Type", reply.headers.get("content-type", ""))
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_POST = _pass  # noqa: N815 - the names that the server looks for


@contextmanager
def relay(path: Path, target: WireClient) -> Generator[_Relay]:
    server = _Relay(str(path), target)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def synapse(tmp_path: Path) -> Iterator[Product]:
    with product(tmp_path) as made:
        yield made


def test_a_gateway_and_a_host_say_what_they_said(synapse: Product) -> None:
    entry = synapse.start_agent("ada")
    with relay(synapse.home / "s" / "relay", wire(entry, over_socket=True)) as between:
        file = synapse.home / "registry" / f"{entry['agent_id']}.json"
        file.write_text(json.dumps(entry | {"socket": between.server_address}), encoding="utf-8")
        gateway = synapse.start_gateway()
        converse(Conversation(synapse, wire(gateway)))
        said = list(between.said)

    kinds = [one["request"]["request"]["type"] for one in said]
    assert set(kinds) == KINDS
    plain = synapse.plain(ada=entry)
    for one in said:
        caller = one["request"]["caller"]
        # A set has no order, and how far the agent is when the host answers depends on the moment.
        caller["actions"] = sorted(caller["actions"])
        plain.know(caller["scope"].removeprefix("key:"), "key id")
        if "version" in one["answer"]["body"]:
            one["answer"]["body"]["version"] = type(one["answer"]["body"]["version"]).__name__
    check_json(RECORD, plain.json(said))


class Conversation:
    """Asks a gateway with a key that may do everything."""

    def __init__(self, synapse: Product, client: WireClient) -> None:
        actions = "read,send,cancel,approve,register"
        made = synapse.run("keys", "create", "all", "--actions", actions, "--agents", "ada", "--json").json
        self._headers = {"Authorization": f"Bearer {made['key']}"}
        self._client = client

    def ask(self, method: str, path: str, body: object = None, version: str = "1.0") -> Any:
        headers = self._headers | ({"A2A-Version": version} if version else {})
        reply = self._client.request(method, path, body, headers)
        return reply.json if reply.body else None


def converse(gateway: Conversation) -> None:
    """Everything that makes a gateway ask a host."""
    at = "/agents/ada/v1"
    parts: list[JSON] = [
        {"text": "ask me", "metadata": {"k": 1}},
        {"data": {"n": [1.5, None]}, "mediaType": "application/json"},
        {"raw": "AAEC", "filename": "f.bin"},
        {"url": "https://example.com/x"},
    ]
    message: JSON = {"messageId": "m-1", "role": "ROLE_USER", "parts": parts, "referenceTaskIds": ["x"]}
    message |= {"contextId": "c-1", "metadata": {"k": "v"}, "extensions": ["https://example.com/ext/pace/v1"]}
    push = {"id": "p-1", "url": HOOK, "token": "t", "authentication": {"scheme": "Bearer", "credentials": "c"}}
    sent = {"message": message, "configuration": {"taskPushNotificationConfig": push}, "metadata": {"user": "ada"}}
    task = gateway.ask("POST", f"{at}/message:send", sent)["task"]["id"]
    configs = f"{at}/tasks/{task}/pushNotificationConfigs"
    gateway.ask("POST", configs, push | {"id": "p-2"})
    gateway.ask("GET", f"{configs}/p-2")
    gateway.ask("GET", configs)
    gateway.ask("DELETE", f"{configs}/p-2")
    gateway.ask("GET", f"{configs}/p-2")
    gateway.ask("PUT", f"/tasks/{task}", {"metadata": {"seen": True}}, "")
    gateway.ask("PUT", f"/tasks/{task}", {"state": "failed"}, "")
    gateway.ask("PUT", f"/tasks/{task}", {"state": "in_progress"}, "")
    other = {"messageId": "m-2", "role": "ROLE_USER", "parts": [{"text": "ask again"}]}
    second = gateway.ask("POST", f"{at}/message:send", {"message": other})["task"]["id"]
    gateway.ask("POST", f"{at}/tasks/{second}:cancel")
    gateway.ask("DELETE", f"/tasks/{second}", None, "")
    hub = {"message": [{"type": "text", "content": "direct"}], "messageId": "m-3", "parentId": task}
    gateway.ask("POST", "/agents/ada/messages", hub, "")


def test_a_host_understands_a_gateway_of_the_recorded_version(synapse: Product) -> None:
    host = wire(synapse.start_agent("ada"), over_socket=True)
    recorded: list[JSON] = json.loads((FOLDER / RECORD).read_text(encoding="utf-8"))
    ids: dict[str, str] = {}

    for one in recorded:
        answer = one["answer"]
        reply = host.request("POST", "/commands", named(one["request"], ids))
        assert reply.status == answer["status"], (one, reply.body)
        if new := answer["body"].get("taskId"):
            ids[new] = reply.json["taskId"]
            until(lambda: is_open_or_ended(host, ids[new]), "the agent has looked at it")
        assert reply.json.keys() == answer["body"].keys()


def test_a_host_takes_an_answer_to_a_question(synapse: Product) -> None:
    entry = synapse.start_agent("ada")
    asked = synapse.run("send", "ada", "permit it", "--response", "--exit-on-wait", "--json").json["task_id"]
    command = ANSWER | {"request": ANSWER["request"] | {"task_id": asked}}

    reply = wire(entry, over_socket=True).request("POST", "/commands", command)

    assert (reply.status, reply.json.get("taskId")) == (200, asked), reply.json


def is_open_or_ended(host: WireClient, task_id: str) -> bool:
    found = host.request("GET", f"/tasks/{task_id}")
    return found.status == 404 or found.json["status"] not in ("submitted", "working")


def named(value: Any, ids: dict[str, str]) -> Any:
    """The recorded request with the ids of this run."""
    text = json.dumps(value)
    for name, real in ids.items():
        text = text.replace(json.dumps(name)[1:-1], real)
    return json.loads(text.replace("<key id>", "0123456789ab"))
