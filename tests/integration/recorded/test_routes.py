"""What is served where: every path of every dialect, asked with every method, by callers of each version of A2A.

Each is asked with an empty body and ids of nothing, and what is recorded is how that is refused: a path or a method
that comes or goes, or that another dialect answers, changes a line. docs/reference/openapi.json, which
tests/architecture compares, holds the gateway's paths with their schemas. How to record anew: see golden.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from tests.conformance.wire_client import Reply, WireClient
from tests.integration.recorded.golden import check
from tests.integration.recorded.product import Product, product, wire

pytestmark = pytest.mark.integration

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
VERSIONS = ("", "1.0", "0.3", "9.9")
PUSH = "/tasks/none/pushNotificationConfigs"
A2A = (
    "/message:send",
    "/message:stream",
    "/tasks",
    "/tasks/none",
    "/tasks/none:cancel",
    "/tasks/none:subscribe",
    PUSH,
    f"{PUSH}/none",
    "/extendedAgentCard",
    "/card",
)
HOST = (
    "/",
    "/nowhere",
    "/.well-known/agent.json",
    "/.well-known/agent-card.json",
    *(prefix + path for prefix in ("", "/v1", "/tenant", "/v1/tenant") for path in A2A),
    "/tasks/send",
    "/tasks/send-priority",
    "/tasks/create",
    "/tasks/none/cancel",
    "/tasks/none/resolve",
    "/tasks/none/answer",
    "/tasks/none/subscribe",
    "/reply",
    "/answer",
    "/signals",
    "/queue",
    "/status",
    "/commands",
    "/external/discover",
    "/external/agents",
    "/external/agents/none",
    "/external/agents/none/send",
    "/attach",
)
GATEWAY = (
    "/",
    "/nowhere",
    "/.well-known/agent.json",
    "/.well-known/agent-card.json",
    "/.well-known/agent-cards/ada",
    "/agents/list.json",
    "/agents",
    "/agents/ada",
    "/agents/none",
    "/agents/ada/.well-known/agent-card.json",
    "/agents/ada/messages",
    "/agents/ada/v1",
    "/agents/ada/v1/.well-known/agent-card.json",
    *(f"/agents/ada/v1{tenant}{path}" for tenant in ("", "/tenant") for path in A2A),
    "/messages/none",
    "/tasks",
    "/tasks/none",
    "/ws",
    "/ws/ticket",
    "/status",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/healthz",
    "/readyz",
)


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(tmp_path_factory.mktemp("r")) as made:
        made.start_agent("ada")
        yield made


def test_a_host_serves_what_it_served(synapse: Product) -> None:
    (entry,) = synapse.run("list", "--json").json

    # Over its socket: whoever asks there is the user, and `/commands` is served there alone.
    check("wire/routes_of_a_host.txt", answers(wire(entry, over_socket=True), HOST, {}))


def test_a_gateway_serves_what_it_served(synapse: Product) -> None:
    entry = synapse.start_gateway("[rate_limit]\nrequests_per_minute = 1000000\nburst = 100000\n")
    key = synapse.run("keys", "create", "all", "--actions", "read,send,cancel,approve,register", "--json").json["key"]

    check("wire/routes_of_a_gateway.txt", answers(wire(entry), GATEWAY, {"Authorization": f"Bearer {key}"}))


def answers(client: WireClient, paths: Sequence[str], headers: dict[str, str]) -> str:
    """A line for each path and method, with what each version is answered; none for a method that is not taken."""

    def line(asked: tuple[str, str]) -> str:
        path, method = asked
        told = [
            answer(client.request(method, path, body_of(method), headers | ({"A2A-Version": one} if one else {})))
            for one in VERSIONS
        ]
        if all(one.startswith("405 ") for one in told):
            return ""
        same = told[0] if len(set(told)) == 1 else " | ".join(told)
        return f"{method:7} {path}  {same}\n"

    every = [(path, method) for path in paths for method in METHODS]
    with ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(line, every))


def body_of(method: str) -> object:
    return {} if method in ("POST", "PUT", "PATCH") else None


def answer(reply: Reply) -> str:
    """The status, the kind of the body, and the code of an error."""
    kind = reply.headers.get("content-type", "").partition(";")[0]
    return " ".join(filter(None, (str(reply.status), kind, code_of(reply.body) if "json" in kind else "")))


def code_of(body: bytes) -> str:
    """The code of an error, in whichever dialect; nothing for another answer."""
    found: Any = json.loads(body) if body else {}
    if not isinstance(found, dict):
        return ""
    told = cast("dict[str, Any]", found).get("error", found)
    if not isinstance(told, dict):
        return str(told)
    error = cast("dict[str, Any]", told)
    details: Any = error.get("details") or error.get("data")
    reason: Any = cast("list[dict[str, Any]]", details)[0].get("reason") if isinstance(details, list) else ""
    return " ".join(str(one) for one in (error.get("code", ""), reason) if one)
