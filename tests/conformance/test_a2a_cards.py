"""Cards name the address at which their reader reaches the agent: the name in the request, if it is ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc.aio  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as v0_3
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as v0_3_grpc

from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.conformance.real_hosts import COMMAND, PATIENCE, entry_of, environ, scripted_host
from tests.conformance.wire_client import Reply, WireClient

pytestmark = pytest.mark.integration

CARD = "/.well-known/agent-card.json"
AGENT = "/agents/tck"
DEFAULT = f'default_agent = "tck"\n{IN_PROCESS}'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("g")
    with scripted_host(home), gateway(home, DEFAULT) as running:
        yield running


@pytest.fixture(scope="module")
def key(running: RunningGateway) -> str:
    return new_key(running.home, "laptop", "--actions", "all")


def authorities(card: Any) -> set[str]:
    """Returns every name and port in a card, except those of gRPC."""
    urls: list[str] = [one["url"] for one in card.get("supportedInterfaces", ()) if one["protocolBinding"] != "GRPC"]
    urls += [one["url"] for one in card.get("additionalInterfaces", ()) if one["transport"] != "GRPC"]
    urls += [card[name] for name in ("url",) if name in card]
    urls += list(card.get("endpoints", {}).values())
    return {urlsplit(url).netloc for url in urls}


def fetch(port: int, path: str, **headers: str) -> Reply:
    return WireClient(port).request(
        "GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()}
    )


@pytest.mark.parametrize("version", ["", "1.0", "0.3"])
@pytest.mark.parametrize("path", [CARD, f"{AGENT}{CARD}", f"{AGENT}/v1/card", f"{AGENT}/v1/extendedAgentCard"])
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_card_names_the_authority_that_it_was_read_from(
    running: RunningGateway, key: str, name: str, path: str, version: str
) -> None:
    port = running.entry.port
    named = {"A2A-Version": version} if version else {}

    card = fetch(port, path, Host=f"{name}:{port}", Authorization=f"Bearer {key}", **named).json

    assert authorities(card) == {f"{name}:{port}"}
    grpc_urls = [one["url"] for one in card.get("supportedInterfaces", ()) if one["protocolBinding"] == "GRPC"]
    assert all(url.startswith(f"{name}:") for url in grpc_urls)


def test_the_extended_card_of_json_rpc_names_it_too(running: RunningGateway, key: str) -> None:
    port = running.entry.port
    for method, version in (("GetExtendedAgentCard", "1.0"), ("agent/getAuthenticatedExtendedCard", "0.3")):
        call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
        named = {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {key}", "A2A-Version": version}
        told = WireClient(port).request("POST", f"{AGENT}/v1", call, named)
        assert authorities(told.json["result"]) == {f"127.0.0.1:{port}"}


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("path", [CARD, "/.well-known/agent.json"])
def test_the_cards_of_a_host_name_it_too(running: RunningGateway, name: str, path: str) -> None:
    port = entry_of(running.home, "conf").port

    assert authorities(fetch(port, path, Host=f"{name}:{port}").json) == {f"{name}:{port}"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost:1"},
        {"Host": "127.0.0.1:PORT@evil.example"},
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"},
    ],
)
def test_a_name_that_is_not_ours_is_never_repeated(running: RunningGateway, key: str, headers: dict[str, str]) -> None:
    port = running.entry.port
    sent = {name: value.replace("PORT", str(port)) for name, value in headers.items()}

    told = fetch(port, f"{AGENT}{CARD}", Authorization=f"Bearer {key}", **sent)

    assert b"evil" not in told.body
    assert authorities(told.json) == {f"localhost:{port}"}


def test_a_card_names_the_address_that_a_trusted_proxy_forwards(tmp_path: Path) -> None:
    with gateway(tmp_path, f"behind_proxy = true\n{DEFAULT}") as running:
        key = f"Bearer {new_key(tmp_path, 'laptop')}"
        port = running.entry.port
        told = {"X-Forwarded-Host": "made-up.example, agents.example.com", "X-Forwarded-Proto": "https"}

        forwarded = fetch(port, CARD, Authorization=key, **told).json
        nonsense = fetch(port, CARD, Authorization=key, **{**told, "X-Forwarded-Host": "a b/evil"}).json

    assert authorities(forwarded) == {"agents.example.com"}
    assert forwarded["url"] == "https://agents.example.com/agents/tck"
    assert authorities(nonsense) == {f"localhost:{port}"}


def test_a_public_address_replaces_all_others(tmp_path: Path) -> None:
    with gateway(tmp_path, f'public_url = "https://agents.example.com"\n{DEFAULT}') as running:
        key = f"Bearer {new_key(tmp_path, 'laptop')}"
        card = fetch(running.entry.port, CARD, Authorization=key).json

    assert authorities(card) == {"agents.example.com"}


def test_the_origin_has_the_card_of_the_default_agent(running: RunningGateway, key: str, tmp_path: Path) -> None:
    own = running.ask("GET", f"{AGENT}{CARD}", key=key)
    assert running.ask("GET", CARD, key=key).json == own.json
    assert running.ask("GET", CARD).status == 401

    with gateway(tmp_path, "", "--no-auth") as without_agents:
        missing = without_agents.ask("GET", CARD, A2A_Version="1.0")
    assert (missing.status, missing.json["error"]["status"]) == (404, "NOT_FOUND")
    assert "default_agent" in missing.json["error"]["details"][0]["metadata"]["hint"]


async def test_grpc_of_0_3_has_an_absolute_address_and_that_of_1_0_has_not(running: RunningGateway, key: str) -> None:
    """0.3 §5.6 requires a URL for every transport, 1.0.1 host and port for gRPC; a channel takes host and port."""
    card = running.ask("GET", f"{AGENT}{CARD}", key=key).json
    former: str
    (former,) = [one["url"] for one in card["additionalInterfaces"] if one["transport"] == "GRPC"]
    (current,) = [one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]

    assert former == f"http://{current}"
    assert current.startswith("localhost:")

    async with grpc.aio.insecure_channel(urlsplit(former).netloc) as channel:
        new_stub: Any = v0_3_grpc.A2AServiceStub
        stub = new_stub(channel)
        metadata = (("authorization", f"Bearer {key}"),)
        told = await stub.GetAgentCard(v0_3.GetAgentCardRequest(), metadata=metadata, timeout=PATIENCE)

    assert told.name == card["name"]


def test_an_unknown_default_agent_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text(f'default_agent = "tkc"\n{IN_PROCESS}', encoding="utf-8")
    command = [*COMMAND, "gateway", "--port", "0", "--no-auth"]

    done = subprocess.run(
        command, env=environ(tmp_path), cwd=tmp_path, capture_output=True, timeout=PATIENCE, check=False
    )

    assert done.returncode != 0
    assert b"default_agent 'tkc'" in done.stderr
    assert b"tck" in done.stderr


def test_a_default_agent_may_run_elsewhere_or_be_described_only(tmp_path: Path) -> None:
    with scripted_host(tmp_path), gateway(tmp_path, 'default_agent = "conf"', "--no-auth") as running:
        assert running.ask("GET", CARD).json["id"] == "conf"
    with gateway(tmp_path, 'default_agent = "later"\n[[agents]]\nid = "later"\n', "--no-auth") as running:
        assert running.ask("GET", CARD).status == 404
        assert json.loads(running.ask("GET", "/agents/list.json").body)["agents"] == []
