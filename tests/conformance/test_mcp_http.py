"""MCP at a real gateway, on the wire: who gets in, what the protocol demands of HTTP, and what hostile clients get."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.mcp_agents import mcp_config
from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import COMMAND, PATIENCE, dummy_host, environ
from tests.conformance.wire_client import Reply, WireClient
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

NEW = "2026-07-28"
BOTH = "application/json, text/event-stream"
EVERYTHING = {"to": "tck", "text": "hello"}


class Caller:
    """A client of MCP with a key of its own."""

    def __init__(self, running: RunningGateway, key: str) -> None:
        self.running = running
        self.key = key

    def post(self, body: object, **headers: str) -> Reply:
        return self.running.ask("POST", "/mcp", body, key=self.key, **headers)

    def call(self, tool: str, **arguments: object) -> Any:
        """Returns the result of a tool call."""
        reply = self.post(request("tools/call", name=tool, arguments=arguments))
        assert reply.status == 200, reply.body
        return reply.json["result"]

    def said(self, tool: str, **arguments: object) -> list[str]:
        result = self.call(tool, **arguments)
        assert not result["isError"], result
        return [block["text"] for block in result["content"]]

    def refused(self, tool: str, **arguments: object) -> str:
        result = self.call(tool, **arguments)
        assert result["isError"], result
        return str(result["content"][0]["text"])


def request(method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def task_in(text: str) -> str:
    return text.split()[1].strip(":,")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("m")
    with dummy_host(home), gateway(home, mcp_config(home)) as one:
        yield one


@pytest.fixture(scope="module")
def laptop(running: RunningGateway) -> Caller:
    return Caller(running, new_key(running.home, "laptop"))


def test_a_message_reaches_a_program_on_a_terminal_under_the_name_of_the_key(laptop: Caller) -> None:
    head, text = laptop.said("send", to="ada", text="hello there", wait="answer")

    assert text == "echo: hello there"
    (status, _) = laptop.said("status", of=task_in(head))
    assert "completed at ada, from key.laptop" in status


def test_a_caller_without_a_key_is_challenged(running: RunningGateway) -> None:
    for key in ("", "wrong"):
        reply = running.ask("POST", "/mcp", request("tools/list"), key=key)

        assert (reply.status, reply.json["id"], reply.json["error"]["code"]) == (401, None, -32600)
        assert reply.json["error"]["data"]["code"] == "credentials_refused"
        assert reply.headers["www-authenticate"].startswith('Bearer realm="synapse"')


def test_the_key_may_be_in_either_header(running: RunningGateway, laptop: Caller) -> None:
    assert running.ask("POST", "/mcp", request("tools/list"), X_API_Key=laptop.key).status == 200


def test_a_revoked_key_is_refused_at_once(running: RunningGateway) -> None:
    caller = Caller(running, new_key(running.home, "lost"))
    task = task_in(caller.said("send", **EVERYTHING)[0])
    revoked = [*COMMAND, "keys", "revoke", "lost"]
    subprocess.run(revoked, env=environ(running.home), check=True, capture_output=True, timeout=PATIENCE)

    for body in (request("tools/call", name="status", arguments={"of": task}), request("tools/list")):
        assert caller.post(body).status == 401


def test_a_key_does_only_what_it_may(running: RunningGateway) -> None:
    reader = Caller(running, new_key(running.home, "reader", "--actions", "read"))
    sender = Caller(running, new_key(running.home, "sender", "--actions", "send", "--agents", "ada"))

    assert "tck" in reader.said("agents")[0]
    assert reader.refused("send", **EVERYTHING).startswith("these credentials do not allow 'send'")
    assert sender.refused("agents").startswith("these credentials do not allow 'read'")
    assert "nobody" in sender.refused("send", to="nobody", text="hi")
    assert sender.refused("send", **EVERYTHING) == sender.refused("send", to="xyz", text="hi").replace("xyz", "tck")
    task = task_in(sender.said("send", to="ada", text="hi")[0])
    assert sender.refused("cancel", task=task).startswith("these credentials do not allow 'cancel'")


def test_the_task_of_another_key_is_missing(running: RunningGateway, laptop: Caller) -> None:
    other = Caller(running, new_key(running.home, "other"))
    task = task_in(laptop.said("send", to="tck", text="never")[0])
    missing = "0" * 36

    assert other.refused("status", of=task) == other.refused("status", of=missing).replace(missing, task)
    assert other.refused("cancel", task=task) == other.refused("cancel", task=missing).replace(missing, task)
    assert laptop.said("cancel", task=task) == [f"task {task} at tck is canceled."]


def test_a_message_is_sent_once_for_each_key(running: RunningGateway, laptop: Caller) -> None:
    other = Caller(running, new_key(running.home, "third"))
    tasks = [task_in(one.said("send", **EVERYTHING, idempotency_key="k")[0]) for one in (laptop, laptop, other)]

    assert (tasks[0] == tasks[1], tasks[0] == tasks[2]) == (True, False)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD"])
def test_only_post_is_served(laptop: Caller, method: str) -> None:
    reply = laptop.running.ask(method, "/mcp", key=laptop.key, Accept="text/event-stream")

    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert method == "HEAD" or reply.json["error"]["data"]["code"] == "method_not_allowed"


def test_a_foreign_page_is_refused(laptop: Caller) -> None:
    reply = laptop.post(request("tools/list"), Origin="https://evil.example.com")

    assert (reply.status, reply.json["error"]["data"]["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (request("tools/list"), {"Content-Type": "text/plain"}, 415, -32600),
        (request("tools/list"), {"Accept": "text/event-stream"}, 406, -32600),
        (request("tools/list"), {"MCP-Protocol-Version": "1999-01-01"}, 400, -32022),
        (request("tools/list"), {"MCP-Protocol-Version": NEW}, 400, -32602),
        (request("nothing"), {"MCP-Protocol-Version": "2025-06-18"}, 200, -32601),
        ([request("ping")], {"MCP-Protocol-Version": "2025-06-18"}, 400, -32600),
        (b"", {}, 400, -32700),
        (b"{", {}, 400, -32700),
        (b"[" * 200_000, {}, 400, -32700),
        (b'{"a":' * 200_000, {}, 400, -32700),
        (b" " * (11 * 1024 * 1024), {}, 413, -32600),
    ],
)
def test_what_does_not_fit_is_refused_in_the_form_of_the_protocol(
    laptop: Caller, body: object, headers: dict[str, str], status: int, code: int
) -> None:
    reply = laptop.post(body, **headers)

    assert (reply.status, reply.json["error"]["code"]) == (status, code), reply.body
    assert reply.json["jsonrpc"] == "2.0"


@pytest.mark.parametrize("version", ["", "2025-03-26"])
def test_a_batch_is_answered_where_the_version_has_it(laptop: Caller, version: str) -> None:
    headers = {"MCP-Protocol-Version": version} if version else {}
    reply = laptop.post([request("ping"), {"jsonrpc": "2.0", "method": "notifications/x"}, request("ping")], **headers)

    assert reply.json == [{"jsonrpc": "2.0", "id": 1, "result": {}}] * 2


WRONG: list[dict[str, Any]] = [
    {"to": ["tck"], "text": "hi"},
    {"to": "tck", "text": {"a": 1}},
    {"to": "tck", "text": ""},
    {"to": "tck", "text": "hi", "wait": True},
    {"to": "tck", "text": "hi", "wait": "answer", "timeout": -1},
    {"to": "tck", "text": "hi", "wait": "answer", "timeout": "9"},
    {"to": "tck", "text": "hi", "priority": 5},
    {"to": "tck", "text": "hi", "files": ["/etc/passwd"]},
    {"to": "tck", "text": "hi", "idempotency_key": "k" * 1000},
    {"to": "tck\nada", "text": "hi"},
    {"to": "../../tasks", "text": "hi"},
    {"to": "tck", "text": "hi", "a": [[[[[[[[]]]]]]]]},
    {},
]


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_arguments_are_told_to_the_model(laptop: Caller, arguments: dict[str, object]) -> None:
    assert laptop.refused("send", **arguments)


def test_a_megabyte_and_control_characters_arrive_as_they_were(laptop: Caller) -> None:
    for text in ("x" * 1_000_000, "\x1b[2J\x00\x07\u202e", "𝄞 日本\r\n\t", '"}],"isError":true'):
        _, back = laptop.said("send", to="tck", text=text, wait="answer")
        assert back == text


def test_a_lone_surrogate_is_replaced(laptop: Caller) -> None:
    call = request("tools/call", name="send", arguments={"to": "tck", "text": "a\ud800b", "wait": "answer"})
    body = json.dumps(call).encode()
    assert b"\\ud800" in body
    result = laptop.post(body).json["result"]

    assert result["content"][1]["text"] == "a\N{REPLACEMENT CHARACTER}b"


def test_ids_of_any_kind_come_back(laptop: Caller) -> None:
    for one in ("", "a\u0000b", 0, -7, 2**53, 10**30):
        assert laptop.post({"jsonrpc": "2.0", "id": one, "method": "ping"}).json["id"] == one


def test_a_client_that_leaves_ends_the_wait_and_not_the_task(laptop: Caller) -> None:
    body = json.dumps(request("tools/call", name="send", arguments={"to": "tck", "text": "brief", "wait": "answer"}))
    for accept in ("application/json", BOTH):
        before = tasks_of(laptop)
        with closing(WireClient(laptop.running.entry.port).connection()) as connection:
            headers = {"Content-Type": "application/json", "Accept": accept, "Authorization": f"Bearer {laptop.key}"}
            connection.request("POST", "/mcp", body, headers)
            (task,) = until(partial(new_tasks, laptop, before), "the task")
        until(partial(is_answered, laptop, task), "the answer")


def new_tasks(caller: Caller, before: set[str]) -> set[str]:
    return tasks_of(caller) - before


def is_answered(caller: Caller, task: str) -> bool:
    return "soon: brief" in caller.said("status", of=task)


def tasks_of(caller: Caller) -> set[str]:
    reply = caller.running.ask("GET", "/tasks?agentId=tck&limit=100", key=caller.key)
    return {task["id"] for task in reply.json["tasks"]}


def test_requests_are_counted_by_what_became_of_them(laptop: Caller) -> None:
    laptop.said("agents")
    laptop.refused("send", to="nobody", text="hi")
    laptop.post(b"{")
    metrics = laptop.running.ask("GET", "/metrics", key=laptop.key).body.decode()

    for outcome in ("ok", "agent_not_found", "invalid_request"):
        assert f'synapse_requests_total{{dialect="mcp",outcome="{outcome}"}}' in metrics


def test_requests_over_the_limit_are_refused_with_the_time_to_wait(tmp_path: Path) -> None:
    more = "[rate_limit]\nrequests_per_minute = 1\nburst = 3\n"
    with gateway(tmp_path, mcp_config(tmp_path) + more) as running:
        caller = Caller(running, new_key(tmp_path, "laptop"))
        calls = [request("tools/call", name="send", arguments=EVERYTHING)] * 3
        assert caller.post(calls[0]).status == 200
        batched = caller.post(calls)

        assert (batched.status, batched.json["error"]["data"]["code"]) == (429, "rate_limited")
        assert int(batched.headers["retry-after"]) > 0


def test_a_gateway_that_ends_names_the_task_that_goes_on(tmp_path: Path) -> None:
    with gateway(tmp_path, mcp_config(tmp_path)) as running:
        key = new_key(tmp_path, "laptop")
        body = json.dumps(
            request("tools/call", name="send", arguments={"to": "tck", "text": "never", "wait": "answer"})
        )
        headers = {"Content-Type": "application/json", "Accept": BOTH, "Authorization": f"Bearer {key}"}
        with closing(WireClient(running.entry.port).connection()) as connection:
            connection.request("POST", "/mcp", body, headers)
            response = connection.getresponse()
            running.process.terminate()
            said = response.read().decode()

    assert (response.status, response.getheader("content-type")) == (200, "text/event-stream")
    assert said.startswith("event: message\ndata: ")
    reply = json.loads(said.partition("data: ")[2])
    assert "The task goes on; call `status` with this id later." in reply["result"]["content"][0]["text"]


def test_a_wait_ends_at_the_setting_of_the_gateway(tmp_path: Path) -> None:
    with gateway(tmp_path, mcp_config(tmp_path, more="mcp_wait = 1")) as running:
        caller = Caller(running, new_key(tmp_path, "laptop"))
        begun = time.monotonic()
        (text,) = caller.said("send", to="tck", text="never", wait="answer", timeout=3600)

    assert "no answer from tck yet" in text
    assert 0.9 < time.monotonic() - begun < 8
