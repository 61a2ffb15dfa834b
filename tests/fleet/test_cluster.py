"""Three servers in a cluster, joined with `join nats://…`: the leader of the streams is killed, and messages go on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from uuid import uuid4

import pytest

from synapse.client.http import NoAnswer
from synapse.fleet import names
from tests.fleet.careful_client import closed_rows, end_in, insist, row_of, typed
from tests.fleet.cluster import Cluster, three_servers
from tests.fleet.waiting import until
from tests.fleet.world import World, open_world
from tests.integration.chaos.house import LINE_RULES

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
ROUNDS = 30
"""Messages that are sent one after the other, before and after the kill."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    with three_servers(tmp_path_factory.mktemp("cluster")) as running:
        yield running


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
    nonces = [send(world) for _ in range(ROUNDS)]

    cluster.servers[mail["cluster"]["leader"]].kill()
    nonces += [send(world) for _ in range(ROUNDS)]
    until(lambda: cluster.leader not in ("", mail["cluster"]["leader"]), "another leader", bound=60)

    # Presence is told again, and mail is kept and delivered.
    until(lambda: bob_is_listed(world), "bob to be listed", bound=60)
    box2.stop_link()
    kept = [uuid4().hex[:12] for _ in range(3)]
    for nonce in kept:
        insist(laptop, "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")
    until(lambda: cluster.stream(names.MAIL_STREAM).get("state", {}).get("messages"), "the mail to be kept", bound=60)
    box2.start_link()

    nonces += kept
    rows = closed_rows(laptop, [f"m-{nonce}" for nonce in nonces], bound=60)
    assert {(row["state"], end_in(row)) for row in rows} == {("settled", "completed")}
    assert typed(box2, "bob") == nonces


def send(world: World) -> str:
    """Sends a message and waits until bob's machine has accepted it; returns its nonce."""
    nonce = uuid4().hex[:12]
    insist(world["laptop"], "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")
    until(lambda: row_of(world["laptop"], f"m-{nonce}")["state"] != "open", "the message to be accepted", bound=60)
    return nonce


def bob_is_listed(world: World) -> bool:
    # The buckets have leaders of their own, elected later than that of the mail.
    with suppress(NoAnswer, AssertionError):
        return "bob" in [agent["name"] for agent in world["laptop"].ask_link("/fleet/agents")["agents"]]
    return False
