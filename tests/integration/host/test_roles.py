"""The role of an agent, as others see it: real hosts, a gateway, and every kind of card."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.wire_client import WireClient
from tests.integration.cli.session import Session, session
from tests.integration.gateway.signed_in import sign_in
from tests.integration.mcp.tool_client import ToolClient, tool_client
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

ROLE = "You plan the work.\nYou hand it out."
ONE_LINE = "You plan the work. You hand it out."


@pytest.fixture(scope="module")
def here() -> Iterator[Session]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as opened:
        opened.start("lead", "--role", ROLE)
        opened.start("bob")
        yield opened


@pytest.fixture(scope="module")
def served(here: Session) -> Iterator[tuple[RunningGateway, str]]:
    key = new_key(here.home, "laptop", "--actions", "all")
    with gateway(here.home, "") as running:
        until(lambda: running.ask("GET", "/agents/lead/v1/card", key=key).status == 200, "the agent at the gateway")
        yield running, key


def entry(here: Session, name: str) -> dict[str, Any]:
    return next(one for one in here.run("list", "--json").json if one["name"] == name)


def test_an_agent_is_told_its_role_and_those_of_the_others(here: Session) -> None:
    ran = here.run("start", "dummy", "--name", "planner", "--role", ROLE, "--json")
    tasks = WireClient(ran.json["port"], ran.json["socket"]).request("GET", "/tasks").json["tasks"]

    (told,) = [task["message"]["parts"][0]["text"] for task in tasks]
    assert f"\n## Your Role\n{ROLE}\n" in told
    assert f": {ONE_LINE}\n" in told


def test_a_role_lasts_through_a_restart(here: Session) -> None:
    assert here.run("restart", "lead").code == 0

    assert entry(here, "lead")["role"] == ROLE
    assert here.run("list").out.splitlines()[0].split()[:3] == ["AGENT", "STATE", "ROLE"]


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/.well-known/agent.json", ""),
        ("/.well-known/agent-card.json", ""),
        ("/.well-known/agent-card.json", "1.0"),
        ("/.well-known/agent-card.json", "0.3"),
    ],
)
def test_every_card_of_the_host_has_the_role_in_its_description(here: Session, path: str, version: str) -> None:
    def description(name: str) -> str:
        client = WireClient(entry(here, name)["port"])
        return str(client.request("GET", path, headers={"A2A-Version": version} if version else {}).json["description"])

    assert description("lead") == f"{description('bob')}. Its role: {ONE_LINE}"


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/agents/{}/.well-known/agent-card.json", ""),
        ("/agents/{}/.well-known/agent-card.json", "1.0"),
        ("/agents/{}/.well-known/agent-card.json", "0.3"),
        ("/agents/{}", ""),
    ],
)
def test_every_card_of_the_gateway_has_it_too(served: tuple[RunningGateway, str], path: str, version: str) -> None:
    running, key = served

    def description(name: str) -> str:
        more = {"A2A_Version": version} if version else {}
        return str(running.ask("GET", path.format(name), key=key, **more).json["description"])

    assert description("lead") == f"{description('bob')}. Its role: {ONE_LINE}"


def test_no_card_tells_the_team_or_whom_an_agent_accepts(here: Session, served: tuple[RunningGateway, str]) -> None:
    running, key = served
    here.start("secretive", "--team=hidden-team", "--accept-from", "hidden-sender")
    until(lambda: running.ask("GET", "/agents/secretive", key=key).status == 200, "the agent at the gateway")

    bodies = [
        running.ask("GET", path, key=key).body.decode()
        for path in ("/agents/secretive", "/agents/secretive/.well-known/agent-card.json", "/agents/list.json")
    ]
    bodies.append(WireClient(entry(here, "secretive")["port"]).request("GET", "/.well-known/agent.json").body.decode())

    assert not any("hidden" in body for body in bodies)


def test_the_tools_list_roles(here: Session, served: tuple[RunningGateway, str]) -> None:
    running, key = served
    with tool_client(here) as client:
        assert isinstance(client, ToolClient)
        (local,) = client.call("agents")
    call: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "agents", "arguments": {}},
    }
    accepted = {"Accept": "application/json, text/event-stream", "MCP_Protocol_Version": "2025-06-18"}
    remote = running.ask("POST", "/mcp", call, key=key, **accepted).body.decode()

    assert f"; role: {ONE_LINE}" in local
    assert f"; role: {ONE_LINE}" in remote


def test_the_dashboard_has_it(served: tuple[RunningGateway, str]) -> None:
    overview = sign_in(served[0]).ask("GET", "/dashboard/overview").json

    roles = {row["name"]: row["role"] for row in overview["agents"]}
    assert (roles["lead"], roles["bob"]) == (ROLE, ""), json.dumps(overview)
