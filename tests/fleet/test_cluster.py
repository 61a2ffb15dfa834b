"""Three servers in a cluster, joined with `join nats://…`: the leader of the streams is killed, and messages go on."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from synapse.client.http import NoAnswer
from synapse.fleet import names
from tests.fleet.careful_client import closed_rows, end_in, insist, row_of, typed
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.waiting import until
from tests.fleet.world import World, open_world
from tests.integration.chaos.house import LINE_RULES
from tests.samples.ports import own_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
ROUNDS = 30
"""Messages that are sent one after the other, before and after the kill."""


@dataclass(slots=True)
class Cluster:
    """Servers by their names, and the ports at which they tell about themselves."""

    servers: dict[str, NatsServer]
    monitors: dict[str, int]

    @property
    def url(self) -> str:
        return ",".join(server.url for server in self.servers.values())

    def about(self, path: str) -> list[dict[str, Any]]:
        """Returns what each server that runs tells."""
        return [
            fetch(f"http://127.0.0.1:{self.monitors[name]}/{path}")
            for name, server in self.servers.items()
            if server.process.poll() is None
        ]

    @property
    def is_formed(self) -> bool:
        """Whether all servers follow the same leader, and are ready."""
        followed = [told.get("meta_cluster", {}) for told in self.about("jsz")]
        leaders = {one.get("leader") for one in followed}
        sizes = {one.get("cluster_size") for one in followed}
        is_ready = all(one.get("status") == "ok" for one in self.about("healthz"))
        return is_ready and sizes == {3} and len(leaders) == 1 and None not in leaders

    def stream(self, name: str) -> dict[str, Any]:
        """Returns what the cluster tells of a stream; empty while it has no leader."""
        for told in self.about("jsz?accounts=true&streams=true&config=true"):
            for account in told.get("account_details", ()):
                for stream in account.get("stream_detail", ()):
                    if stream["name"] == name and stream.get("cluster", {}).get("leader"):
                        return dict(stream)
        return {}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    routes = {f"s{number}": own_port() for number in range(3)}
    made = Cluster({}, {name: own_port() for name in routes})
    with ExitStack() as ending:
        for name, port in routes.items():
            others = ", ".join(f'"nats://127.0.0.1:{other}"' for other in routes.values() if other != port)
            config = f"""
server_name: {name}
http: "127.0.0.1:{made.monitors[name]}"
cluster {{ name: trio, listen: "127.0.0.1:{port}", routes: [{others}] }}
"""
            made.servers[name] = ending.enter_context(nats_server(tmp_path_factory.mktemp(name), config))
        until(lambda: made.is_formed, "the three servers to have a leader", lambda: made.about("jsz"))
        yield made


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Generator[World]:
    with open_world("laptop", "box2", namespaces=False) as joined:
        joined.join(cluster.url)
        joined["box2"].add_profile("bob", LINE_RULES, "line_recorder")
        joined["box2"].start("bob", name="bob")
        yield joined


def test_messages_go_on_while_the_leader_of_the_streams_is_killed(world: World, cluster: Cluster) -> None:
    laptop, box2 = world["laptop"], world["box2"]
    mail = until(lambda: cluster.stream(names.MAIL_STREAM), "a leader of the mail")
    assert mail["config"]["num_replicas"] == 3
    usual = [send(world) for _ in range(ROUNDS)]

    cluster.servers[mail["cluster"]["leader"]].kill()
    killed = time.monotonic()
    after = [send(world) for _ in range(ROUNDS)]
    until(lambda: leader_of(cluster) not in ("", mail["cluster"]["leader"]), "another leader", bound=60)
    led = time.monotonic() - killed
    sys.stdout.write(
        f"direct message: at most {max(one.seconds for one in usual):.2f} s before the kill, and "
        f"{max(one.seconds for one in after):.2f} s after it; streams led again after {led:.1f} s\n"
    )

    # Presence is told again, and mail is kept and delivered.
    until(lambda: bob_is_listed(world), "bob to be listed", bound=60)
    box2.stop_link()
    kept = [uuid4().hex[:12] for _ in range(3)]
    for nonce in kept:
        insist(laptop, "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")
    until(lambda: cluster.stream(names.MAIL_STREAM).get("state", {}).get("messages"), "the mail to be kept", bound=60)
    box2.start_link()

    nonces = [*(one.nonce for one in (*usual, *after)), *kept]
    rows = closed_rows(laptop, [f"m-{nonce}" for nonce in nonces], bound=60)
    assert {(row["state"], end_in(row)) for row in rows} == {("settled", "completed")}
    assert typed(box2, "bob") == nonces


class Sent(NamedTuple):
    """A message, and how long it took until bob's machine had accepted it."""

    nonce: str
    seconds: float


def send(world: World) -> Sent:
    nonce = uuid4().hex[:12]
    begun = time.monotonic()
    insist(world["laptop"], "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")
    until(lambda: row_of(world["laptop"], f"m-{nonce}")["state"] != "open", "the message to be accepted", bound=60)
    return Sent(nonce, time.monotonic() - begun)


def leader_of(cluster: Cluster) -> str:
    return str(cluster.stream(names.MAIL_STREAM).get("cluster", {}).get("leader", ""))


def fetch(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
            return told
    except (urllib.error.URLError, OSError):
        return {}  # it is not ready yet, or not any more


def bob_is_listed(world: World) -> bool:
    # The buckets have leaders of their own, elected later than that of the mail.
    with suppress(NoAnswer, AssertionError):
        return "bob" in [agent["name"] for agent in world["laptop"].ask_link("/fleet/agents")["agents"]]
    return False
