"""Who may message whom, with real hosts: every way in, proven and unproven senders, and an agent in another's name.

vault      accepts the agent `member` only
desk       accepts people and agents of its team
member     of the team; runs what it is told
outsider   of no team; runs what it is told
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import ParseDict

from synapse.client.http import HostAddress, request
from tests.conformance.a2a_grpc_speakers import NEW_STUB_1_0
from tests.conformance.real_gateway import gateway, new_key
from tests.conformance.wire_client import WireClient
from tests.integration.attach.seat import seated
from tests.integration.cli.session import COMMAND, PATIENCE, ROOT, Session, session
from tests.integration.cli.test_questions import RUNNER
from tests.integration.gateway.signed_in import sign_in
from tests.integration.waiting import until
from tests.samples.ports import own_port

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell whose process connects"),
]

TEAM = "--team=shop"
GRPC_PORT = own_port()
REFUSED = 7
ONLY_MEMBER = "vault accepts no messages from {}, only from member"


class House(Session):
    """A session with agents that run what they are told."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.environ["XDG_CONFIG_HOME"] = str(home / "config")
        profiles = home / "config" / "synapse" / "profiles"
        profiles.mkdir(parents=True)
        (profiles / "runner.toml").write_text(RUNNER, encoding="utf-8")
        typed = self.folder / "typed"
        typed.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@" 2>&1\n', encoding="utf-8")
        typed.chmod(0o755)

    def start_runner(self, name: str, *more: str) -> None:
        ran = self.run("start", "runner", "--name", name, "--port", str(own_port()), *more)
        assert ran.code == 0, ran

    def inside(self, name: str, line: str) -> str:
        """What a command says that an agent runs, on one line, and its exit code."""
        ran = self.run("send", name, f"{line}; echo code=$?", "--response", "--timeout", str(PATIENCE))
        assert ran.code == 0, ran
        return " ".join(ran.out.split())

    def entry(self, name: str) -> dict[str, Any]:
        return next(one for one in self.run("list", "--json").json if one["name"] == name)

    def texts_at(self, name: str) -> list[str]:
        """The messages that an agent has ever got."""
        tasks = request(HostAddress(self.entry(name)["socket"]), "GET", "/tasks").body["tasks"]
        return [task["message"]["parts"][0]["text"] for task in tasks]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h", House) as opened:
        assert isinstance(opened, House)
        opened.start_runner("member", TEAM)
        opened.start_runner("outsider")
        opened.start("vault", "--accept-from", "member")
        opened.start("desk", TEAM, "--accept-from", "person", "--accept-from", "team")
        yield opened


@pytest.mark.parametrize(
    "more", [[], ["--priority", "5"], ["--response"], ["--wait=submitted"], ["--message-id", "again"]], ids=" ".join
)
def test_a_person_who_is_not_accepted_is_refused_and_nothing_is_stored(house: House, more: list[str]) -> None:
    ran = house.run("send", "vault", "of a person", *more)

    assert (ran.code, ran.out) == (REFUSED, "")
    assert ONLY_MEMBER.format("a person") in " ".join(ran.err.split())
    assert "of a person" not in house.texts_at("vault")


def test_a_refusal_has_its_code_for_machines(house: House) -> None:
    ran = house.run("send", "vault", "of a machine", "--json")

    assert ran.code == REFUSED
    assert json.loads(ran.err or ran.out)["error"]["code"] == "sender_not_accepted"


def test_a_person_cannot_send_as_the_accepted_agent(house: House) -> None:
    agent_id = house.entry("member")["agent_id"]

    ran = house.run("send", "vault", "in its name", "--from", "member")

    assert ran.code == REFUSED
    assert ONLY_MEMBER.format(f"unverified.{agent_id}") in " ".join(ran.err.split())
    assert "in its name" not in house.texts_at("vault")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("./typed send vault 'as agent'", "code=7"),
        ("./typed send vault 'as agent' --priority 5", "code=7"),
        ("./typed send vault 'as agent' --response", "code=7"),
        ("./typed send vault 'as agent' --reply-to 00000000", "code=7"),
        ("./typed broadcast 'as agent' --all", "code=7"),
    ],
    ids=["send", "priority 5", "response", "reply to nothing", "broadcast"],
)
def test_an_agent_that_is_not_accepted_is_refused(house: House, words: str, answer: str) -> None:
    said = house.inside("outsider", words)

    assert answer in said
    assert ONLY_MEMBER.format("outsider") in said
    assert "as agent" not in house.texts_at("vault")


def test_an_accepted_agent_is_taken_by_name_and_by_team(house: House) -> None:
    assert "code=0" in house.inside("member", "./typed send vault 'of member by name'")
    assert "code=0" in house.inside("member", "./typed send desk 'of member by team'")
    assert house.run("send", "desk", "of a person, accepted").code == 0
    assert "code=7" in house.inside("outsider", "./typed send desk 'of outsider'")

    assert "of member by name" in house.texts_at("vault")
    assert {"of member by team", "of a person, accepted"} <= set(house.texts_at("desk"))
    assert "of outsider" not in house.texts_at("desk")


def test_a_tool_of_a_model_is_refused_as_its_agent_is(house: House) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "send", "arguments": {"to": "vault", "text": "by a tool"}},
        },
    ]
    (house.folder / "calls").write_text("".join(f"{json.dumps(call)}\n" for call in calls), encoding="utf-8")

    said = house.inside("outsider", "(cat calls; sleep 2) | ./typed mcp | grep -o 'vault accepts[^,]*'")

    assert "vault accepts no messages from outsider" in said
    assert "by a tool" not in house.texts_at("vault")


def test_a_line_that_a_person_types_at_an_agents_prompt_is_that_agents(house: House) -> None:
    ours = [f"{name}={house.environ[name]}" for name in ("SYNAPSE_HOME", "SYNAPSE_UDS_DIR", "PYTHONPATH")]
    dummy = ["dummy", "--name", "typist", "--no-instructions", "--port", str(own_port())]
    with seated("env", "-C", str(house.folder), *ours, *COMMAND, *dummy) as seat:
        until(lambda: any(one["name"] == "typist" for one in house.run("list", "--json").json), "the agent")
        seat.types("@vault at the prompt")
        seat.sees("@vault at the prompt")
        seat.types("\r")

        seat.sees("not sent: vault accepts no messages")
        seat.types("exit\r")
    assert "at the prompt" not in house.texts_at("vault")


TEXT = "over the port"
CLAIM = {"sender": {"sender_id": "MEMBER", "sender_type": "runner", "sender_endpoint": ""}}
V1 = {"messageId": "v1", "role": "ROLE_USER", "parts": [{"text": TEXT}], "metadata": CLAIM}
V03 = {"messageId": "v03", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": TEXT}]}
V03_REST = {"messageId": "v03", "role": "ROLE_USER", "content": [{"text": TEXT}]}


@pytest.mark.parametrize(
    ("path", "body", "version", "shown"),
    [
        (
            "/tasks/send",
            {"message": {"role": "user", "parts": [{"type": "text", "text": TEXT}]}, "metadata": CLAIM},
            "",
            '"code": *"sender_not_accepted"',
        ),
        (
            "/tasks/send-priority?priority=5",
            {"message": {"role": "user", "parts": [{"type": "text", "text": TEXT}]}, "metadata": CLAIM},
            "",
            '"code": *"sender_not_accepted"',
        ),
        ("/message:send", {"message": V1}, "1.0", '"status": *"PERMISSION_DENIED"'),
        ("/message:stream", {"message": V1}, "1.0", '"status": *"PERMISSION_DENIED"'),
        (
            "/",
            {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": V1}},
            "1.0",
            '"code": *-32000',
        ),
        (
            "/",
            {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": V1}},
            "1.0",
            '"code": *-32000',
        ),
        ("/v1/message:send", {"message": V03_REST}, "0.3", '"type": *"PermissionDeniedError"'),
        (
            "/",
            {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": V03}},
            "0.3",
            '"code": *-32000',
        ),
        (
            "/",
            {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": V03}},
            "0.3",
            '"code": *-32000',
        ),
    ],
)
def test_what_a_message_over_the_port_claims_is_worth_nothing(
    house: House, path: str, body: dict[str, Any], version: str, shown: str
) -> None:
    claiming = json.loads(json.dumps(body).replace("MEMBER", house.entry("member")["agent_id"]))
    client = WireClient(house.entry("vault")["port"])

    reply = client.request("POST", path, claiming, {"A2A-Version": version} if version else {})

    assert re.search(shown, reply.body.decode()), reply
    assert "accepts no messages from unverified." in reply.body.decode()
    assert TEXT not in house.texts_at("vault")


def test_a_message_to_a_task_that_asks_for_input_is_checked_too(house: House) -> None:
    script = str(ROOT / "docs" / "examples" / "conformance.toml")
    ran = house.run("start", "scripted", script, "--name", "asker", "--accept-from", "person", "--json")
    port, socket = ran.json["port"], ran.json["socket"]

    def send(client: WireClient, message_id: str, text: str, **more: str) -> dict[str, Any]:
        message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}
        told: dict[str, Any] = client.request(
            "POST", "/message:send", {"message": message}, {"A2A-Version": "1.0"}
        ).json
        return told

    task = send(WireClient(port, socket), "tck-input-required-1", "begin")["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    refused = send(WireClient(port), "over-the-port", "go on", taskId=task["id"])
    after = WireClient(port, socket).request("GET", f"/tasks/{task['id']}", headers={"A2A-Version": "1.0"}).json
    taken = send(WireClient(port, socket), "of-a-person", "go on", taskId=task["id"])

    assert "asker accepts no messages from unverified.user, only from a person" in refused["error"]["message"]
    assert after == task
    assert taken["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_process_that_an_agent_left_behind_is_nobody(house: House) -> None:
    house.inside(
        "member", "setsid -f sh -c './typed send vault left >left.part; echo code=$? >>left.part; mv left.part left'"
    )
    left = house.folder / "left"
    until(left.exists, "what it was told")

    said = " ".join(left.read_text(encoding="utf-8").split())
    assert "code=7" in said
    assert "vault accepts no messages from unverified." in said
    assert "left" not in house.texts_at("vault")


def test_an_agent_that_accepts_few_still_gets_the_answers_to_its_own_requests(house: House) -> None:
    ran = house.run("send", "desk", "ask outsider echo fine", "--response", "--timeout", str(PATIENCE))

    assert ran.code == 0, ran
    assert "fine" in ran.out


def test_an_agent_that_takes_the_name_of_a_stopped_member_has_no_rights_of_it(house: House) -> None:
    house.start_runner("deputy", TEAM)
    house.start("ledger", TEAM, "--accept-from", "deputy", "--accept-from", "team")
    assert "code=0" in house.inside("deputy", "./typed send ledger 'of the real one'")
    port = house.entry("deputy")["port"]

    # In its own name, with its port and its team, and with an environment that shows no agent.
    assert "code=0" in house.inside("outsider", "./typed stop deputy")
    bare = "env -u SYNAPSE_AGENT_ID -u SYNAPSE_SOCKET -u SYNAPSE_LAUNCHED_BY"
    said = house.inside("outsider", f"{bare} ./typed start runner --name deputy --port {port} {TEAM}")
    assert "code=0" in said
    assert house.entry("deputy")["launched_by"]

    said = house.inside("deputy", "./typed send ledger 'of the false one'")

    assert "code=7" in said
    assert "only agents that a person started count" in said
    assert house.texts_at("ledger") == ["of the real one"]


def test_an_agent_that_an_agent_restarts_keeps_its_rights(house: House) -> None:
    assert "code=0" in house.inside("outsider", "./typed restart member")

    assert "code=0" in house.inside("member", "./typed send vault 'after the restart'")


def test_a_message_that_was_queued_while_the_agent_was_stopped_is_rejected_and_never_typed(house: House) -> None:
    house.start("archive", "--accept-from", "person")
    port = house.entry("archive")["port"]
    assert house.run("stop", "archive").code == 0

    sent = house.run("send", "archive", "of nobody", "--queue", "--json")
    queued = sent.json["task"]["id"]
    assert "archive accepts messages only from a person, and refuses what was queued while it did not run" in " ".join(
        sent.err.split()
    )
    house.start("archive", "--accept-from", "person", port=port)
    assert house.run("send", "archive", "of a person", "--response", "--timeout", str(PATIENCE)).code == 0

    task = house.run("status", queued, "--json").json["task"]
    told = WireClient(port).request("GET", f"/tasks/{queued}", headers={"A2A-Version": "1.0"}).json
    assert told["status"]["state"] == "TASK_STATE_REJECTED"
    assert task["metadata"]["reason"] == "sender_not_accepted"
    assert [receipt["step"] for receipt in task["metadata"]["receipts"]] == ["queued", "failed"]
    screen = request(HostAddress(house.entry("archive")["socket"]), "GET", "/screen?lines=100").body
    assert "of a person" in str(screen)
    assert "of nobody" not in str(screen)


@pytest.fixture(scope="module")
def served(house: House) -> Iterator[tuple[Any, str, str]]:
    house.start("safe", "--accept-from", "key.good", "--accept-from", "member")
    good, bad = (new_key(house.home, name, "--scope", "local") for name in ("good", "bad"))
    with gateway(house.home, "", "--grpc-port", str(GRPC_PORT)) as running:
        until(lambda: running.ask("GET", "/agents/safe/v1/card", key=good).status == 200, "the agent at the gateway")
        yield running, good, bad


GATEWAY_CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "supervisor": ("/agents/safe/v1/message:send", {"message": {"content": "TEXT", "role": "user"}}, ""),
    "A2A 1.0": (
        "/agents/safe/v1/message:send",
        {"message": {"messageId": "TEXT", "role": "ROLE_USER", "parts": [{"text": "TEXT"}], "metadata": CLAIM}},
        "1.0",
    ),
    "A2A 0.3": (
        "/agents/safe",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "message/send",
            "params": {"message": {**V03, "messageId": "TEXT", "parts": [{"kind": "text", "text": "TEXT"}]}},
        },
        "0.3",
    ),
    "hub": ("/agents/safe/messages", {"message": [{"type": "text", "content": "TEXT"}]}, ""),
    "MCP": (
        "/mcp",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "send", "arguments": {"to": "safe", "text": "TEXT"}},
        },
        "",
    ),
}


@pytest.mark.parametrize("dialect", GATEWAY_CALLS)
def test_a_key_of_the_gateway_is_accepted_by_its_name_only(
    house: House, served: tuple[Any, str, str], dialect: str
) -> None:
    running, good, bad = served
    path, body, version = GATEWAY_CALLS[dialect]
    more = {"A2A_Version": version} if version else {}
    if dialect == "MCP":
        more = {"Accept": "application/json, text/event-stream", "MCP_Protocol_Version": "2025-06-18"}

    def said(key: str, text: str) -> str:
        told = json.loads(json.dumps(body).replace("TEXT", text).replace("MEMBER", house.entry("member")["agent_id"]))
        return str(running.ask("POST", path, told, key=key, **more).body.decode())

    refused, taken = said(bad, f"bad {dialect}"), said(good, f"good {dialect}")

    assert "safe accepts no messages from key.bad" in refused
    assert "member" not in refused
    assert "accepts no messages" not in taken
    assert f"good {dialect}" in house.texts_at("safe")
    assert f"bad {dialect}" not in house.texts_at("safe")


def test_a_key_is_refused_over_grpc_in_its_own_words(house: House, served: tuple[Any, str, str]) -> None:
    _, good, bad = served

    def send(key: str) -> None:
        message = {"messageId": f"grpc {key}", "role": "ROLE_USER", "parts": [{"text": f"grpc {key}"}]}
        sent = ParseDict({"tenant": "safe", "message": message}, a2a_pb2.SendMessageRequest())
        with grpc.insecure_channel(f"localhost:{GRPC_PORT}") as channel:
            NEW_STUB_1_0(channel).SendMessage(sent, metadata=[("authorization", f"Bearer {key}")], timeout=PATIENCE)

    send(good)
    with pytest.raises(grpc.RpcError) as refused:
        send(bad)

    error: Any = refused.value
    assert (error.code(), error.details()) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "safe accepts no messages from key.bad",
    )
    assert f"grpc {good}" in house.texts_at("safe")
    assert f"grpc {bad}" not in house.texts_at("safe")


def test_a_gateway_without_authentication_proves_nobody() -> None:
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as other:
        other.start("parlour", TEAM, "--accept-from", "person", "--accept-from", "team")
        with gateway(other.home, "", "--no-auth") as running:
            until(lambda: running.ask("GET", "/agents/parlour").status == 200, "the agent at the gateway")
            message = {"message": [{"type": "text", "content": "of any process"}]}
            reply = running.ask("POST", "/agents/parlour/messages", message)

    assert reply.status == 403
    assert "parlour accepts no messages from unverified.user" in reply.body.decode()


def test_a_person_in_the_dashboard_is_a_person(house: House, served: tuple[Any, str, str]) -> None:
    running, _, _ = served
    browser = sign_in(running)

    def send(agent: str) -> Any:
        return browser.ask("POST", f"/dashboard/agents/{agent}/messages", {"text": f"in a browser to {agent}"})

    refused, taken = send("vault"), send("desk")

    assert (refused.status, taken.status) == (403, 202), (refused, taken)
    assert "vault accepts no messages from a person" in refused.body.decode()
    assert "in a browser to desk" in house.texts_at("desk")
